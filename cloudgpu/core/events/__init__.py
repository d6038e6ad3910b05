"""The ledger's entries, and how they become machines."""
