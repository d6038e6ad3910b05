"""What a member or a payer of a lab may do, by the ledger."""
