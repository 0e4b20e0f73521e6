"""The scheduler's HTTP API, and its client."""
