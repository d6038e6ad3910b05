"""The ledger's lines and what they make of the machines."""
