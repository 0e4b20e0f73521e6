"""The event log: a JSON line for every event the core handled and the instructions returned."""
