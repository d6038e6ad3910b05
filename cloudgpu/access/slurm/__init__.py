"""Runs Slurm on machines: reads their facts, writes its files, starts its daemons, submits jobs."""
