"""Jobs on a Slurm cluster: as steps of allocations, or each as a batch job of its own."""
