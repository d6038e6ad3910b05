"""Impure and thin: reads the clock, calls core, acts through providers, access and the ledger."""
