"""Instances of EC2: request, launch, list, stop, terminate."""
