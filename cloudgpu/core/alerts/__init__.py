"""What is worth an alert, and what has been sent."""
