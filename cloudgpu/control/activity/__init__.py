"""What the machines' agents say, gathered and kept."""
