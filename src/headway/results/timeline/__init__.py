"""Timelines: every task of a run, in memory and in Parquet files."""
