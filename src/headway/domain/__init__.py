"""Jobs, workloads, clusters, and the records that all layers share."""
