"""Forecasts of the running cluster, made by a separate process that the API's thread asks."""
