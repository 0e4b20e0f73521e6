"""Admission policies, one file each."""
