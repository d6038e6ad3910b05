"""What `run` is asked for, read word by word."""
