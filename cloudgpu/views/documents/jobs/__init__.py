"""Documents of jobs."""
