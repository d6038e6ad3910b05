"""What the machines' agents report, collected and stored."""
