"""Documents about automation: passes, jobs, policies."""
