"""Predicted iterations of large models against measured ones.

`rows` reads measurements, `outcome` predicts them and sums up the errors by group, `figure` draws
them.
"""
