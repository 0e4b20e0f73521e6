"""The past of the cluster for pages, from the event log, read by a process of its own."""
