"""The ledger lines of jobs: a type for each body, a function that makes each."""
