"""Workloads from files and generators."""
