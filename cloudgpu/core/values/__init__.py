"""What everything is counted in: money, units, currencies, times, periods, names."""
