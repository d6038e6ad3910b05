"""One user's working place, the accounts and locks that every verb needs."""
