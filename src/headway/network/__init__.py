"""The cost of communication: networks, laws of contention, messages on ports."""
