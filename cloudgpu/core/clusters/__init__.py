"""Clusters: which machines are the nodes of one, and how complete it is."""
