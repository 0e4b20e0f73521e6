"""What runs inside a training process: needs the standard library, and PyTorch to time it."""
