"""The only packages that use a cloud's SDK; each provider is found by its entry point."""
