"""The outcome of a simulation: its schema, metrics, figures, timeline and files."""
