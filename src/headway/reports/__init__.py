"""Figures, tables and files for people to look at."""
