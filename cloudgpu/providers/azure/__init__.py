"""Azure: machines with GPUs, one resource group per launch, and the price list."""
