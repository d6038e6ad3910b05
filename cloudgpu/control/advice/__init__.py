"""Parses the options of compare, estimate and recommend, and makes their documents."""
