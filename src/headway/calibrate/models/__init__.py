"""Measure what one iteration of a model costs on one GPU; needs PyTorch and nothing else."""
