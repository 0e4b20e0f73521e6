"""What runs inside a training process; only `timing` and `turn_client` need PyTorch."""
