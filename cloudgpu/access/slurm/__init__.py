"""Takes Slurm to machines: what they say of themselves, the files, the daemons."""
