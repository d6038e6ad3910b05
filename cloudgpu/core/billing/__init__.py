"""What something costs: rates, charges, rules of rounding, totals, forecasts."""
