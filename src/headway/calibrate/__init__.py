"""Measures the network of a real cluster, and models on its GPUs."""
