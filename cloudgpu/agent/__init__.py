"""Runs on the machine itself: one standard-library file, assembled from the files here and sent there as text."""
