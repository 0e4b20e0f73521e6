"""Live: the policies of the simulator on real jobs."""
