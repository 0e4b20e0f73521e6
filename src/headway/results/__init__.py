"""What a simulation returns, and how it is stored."""
