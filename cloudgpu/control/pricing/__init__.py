"""What machines cost as they run: prices over time, meters, a share of a computer, traffic."""
