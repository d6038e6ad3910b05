"""A cloud in memory or in a file that passes the contract."""
