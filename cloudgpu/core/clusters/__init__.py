"""Clusters: which machines are the nodes of one, how complete it is, and what its engine needs and says."""
