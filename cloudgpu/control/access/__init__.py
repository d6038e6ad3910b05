"""Gets a user onto a machine: SSH, Jupyter, colleagues' keys."""
