"""The ledger beside a provider's own bill."""
