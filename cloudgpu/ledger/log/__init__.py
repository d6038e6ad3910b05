"""The ledger's lines whatever the database: chain, files, locks, projections."""
