"""Which GPUs, instance types and prices there are, and what fits a request."""
