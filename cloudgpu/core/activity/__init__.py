"""Whether a machine is in use, by what its agent says."""
