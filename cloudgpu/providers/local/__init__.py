"""Machines on this computer that behave like a cloud's."""
