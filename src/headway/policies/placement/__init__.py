"""Placement policies, one file each."""
