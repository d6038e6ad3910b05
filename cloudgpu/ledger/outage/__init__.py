"""Takes entries while the ledger is away, and offers them to it when it is back."""
