"""Compares the ledger with a provider's own bill."""
