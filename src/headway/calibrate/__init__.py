"""Measure real clusters: what their network and their models cost."""
