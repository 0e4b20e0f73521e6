"""The page on which people look at runs: its data, its files, and the server on loopback."""
