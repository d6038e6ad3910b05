"""Clusters: one decision over all nodes, proved of all; the engine on them is set up and examined."""
