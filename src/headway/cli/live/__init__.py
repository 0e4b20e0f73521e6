"""Commands of the scheduler: serve it, give it jobs, and watch it."""
