"""Instances of Compute Engine: request, launch, list, stop, delete."""
