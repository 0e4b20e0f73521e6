"""Jobs on a Slurm cluster: as steps of one allocation, or each as a batch job of its own."""
