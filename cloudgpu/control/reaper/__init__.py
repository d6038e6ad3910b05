"""A run of the reaper: observe, decide, check again, stop, notify."""
