"""The gate: how training processes ask the scheduler before they send or compute."""
