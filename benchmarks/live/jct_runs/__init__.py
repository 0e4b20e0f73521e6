"""The parts of the JCT benchmark, `benchmarks/live/jct.py`."""
