"""Graphs of usual ways to train, from the times and sizes of a model's layers.

Pure functions that return a `headway.domain.graph.Graph`.
"""

from headway.domain.layers import Layer
from headway.graphs.ddp import ddp
from headway.graphs.fsdp import fsdp
from headway.graphs.layers import MoeLayer, split_layers
from headway.graphs.moe import moe
from headway.graphs.pipeline import pipeline

__all__ = ["Layer", "MoeLayer", "ddp", "fsdp", "moe", "pipeline", "split_layers"]
