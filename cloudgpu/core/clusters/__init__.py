"""Clusters and their engine: what nodes say of themselves, whether they fit, and the files that make them one."""
