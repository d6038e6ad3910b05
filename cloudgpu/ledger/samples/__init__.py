"""What agents measured, day by day."""
