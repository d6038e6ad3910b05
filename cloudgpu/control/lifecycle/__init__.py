"""Stops, starts, parks, extends and ends machines."""
