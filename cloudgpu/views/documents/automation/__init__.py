"""Documents about automation: runs, jobs, policies."""
