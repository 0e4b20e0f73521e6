"""Graphs from the workloads of other simulators: Chakra's execution traces, SimAI's text."""
