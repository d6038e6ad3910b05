"""Which machines a run of the reaper stops, and why: an ordered list of rules."""
