"""Clusters: one decision over all nodes, carried out on each and proved of all."""
