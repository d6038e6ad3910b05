"""Impure and thin: reads the clock, calls core, carries out through providers, access and the ledger."""
