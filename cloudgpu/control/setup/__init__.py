"""Sets up, examines and repairs: init, doctor, ledger, permissions."""
