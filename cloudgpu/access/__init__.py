"""Talks to a running machine over SSH: keys, connection, exec, copy, tunnel, Jupyter."""
