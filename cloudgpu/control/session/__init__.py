"""What every verb needs of one user: settings, accounts, locks."""
