"""The command line: reads what was typed, calls control, shows what comes back."""
