"""Google Cloud: machines of Compute Engine with GPUs, and the price list."""
