"""Traces of real clusters, read as workloads: one module per format."""
