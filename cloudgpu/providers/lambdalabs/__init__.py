"""Lambda Cloud: virtual machines with GPUs by the hour, over its REST API; no stop, no tokens, one firewall for all."""
