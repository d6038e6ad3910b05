"""Clusters: verbs that act on all nodes, each confirmed; sets up the engine (Slurm) and reads its state."""
