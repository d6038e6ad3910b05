"""The ledger in a PostgreSQL database, for several machines that share one."""
