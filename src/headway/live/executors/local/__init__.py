"""Jobs as processes of this machine, or of the hosts of a testbed on it."""
