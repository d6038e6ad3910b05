"""Documents about the settings, the ledger and this computer."""
