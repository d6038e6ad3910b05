"""Works on without the ledger, and catches up when it is back."""
