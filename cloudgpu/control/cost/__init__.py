"""What was spent: cost, exports, reconciliation, the report."""
