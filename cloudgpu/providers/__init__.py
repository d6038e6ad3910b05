"""The only rooms with a cloud SDK; each provider is found by its entry point."""
