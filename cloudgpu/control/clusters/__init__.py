"""Clusters: the engine on their nodes is set up, examined and taken away."""
