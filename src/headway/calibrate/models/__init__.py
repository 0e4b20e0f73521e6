"""Measures the cost of an iteration of a model on one GPU; needs nothing but PyTorch."""
