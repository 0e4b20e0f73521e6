"""Slurm as its programs and files describe it: versions, nodes, host lists, topology."""
