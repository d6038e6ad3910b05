"""What stands in for the ledger while it is away, and what is offered to it when it is back."""
