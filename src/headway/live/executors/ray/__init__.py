"""Jobs on a Ray cluster."""
