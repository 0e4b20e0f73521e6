"""The parts of the soak, `benchmarks/live/soak.py`."""
