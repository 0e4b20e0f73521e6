"""The network: all-reduces measured, and a, b, eta fitted to them."""
