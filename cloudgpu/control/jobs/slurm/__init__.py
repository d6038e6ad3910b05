"""Jobs in Slurm: whether a place has one, what is asked of it, and what it says of them."""
