"""Graphs of iterations from models, builders and other simulators' files."""
