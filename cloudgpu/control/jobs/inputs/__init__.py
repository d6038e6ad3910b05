"""The options of `run`, parsed and checked."""
