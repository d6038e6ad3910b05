"""Which policy and limits hold for a machine."""
