"""What jobs did in the past of a live cluster, from its event log."""
