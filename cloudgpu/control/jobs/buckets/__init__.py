"""Buckets that jobs read data from, and send results to."""
