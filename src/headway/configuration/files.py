"""The tables that one file may hold side by side."""

from __future__ import annotations

from typing import Any

from headway.configuration.conversion import TomlTable


class DescriptionFile(TomlTable, kw_only=True):
    """A file that describes a cluster, a network or models; a reader types the tables it reads.

    `calibration` records how the rest was measured, and is not read.
    """

    cluster: Any = None
    network: Any = None
    gpu: Any = None
    profile: Any = None
    calibration: Any = None
    model: Any = None
