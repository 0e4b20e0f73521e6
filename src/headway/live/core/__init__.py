"""The decisions of the live scheduler: a state machine without I/O."""
