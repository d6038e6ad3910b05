"""Forwards local ports to a machine."""
