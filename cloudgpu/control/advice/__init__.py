"""Gathers what compare, estimate and recommend are made of."""
