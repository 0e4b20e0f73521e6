"""Measures how fast a GPU runs the operations of transformers; needs nothing but PyTorch."""
