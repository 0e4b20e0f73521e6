"""Whole evaluations: many runs, their statistics, their verdicts."""
