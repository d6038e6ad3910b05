"""Documents about what goes on by itself: passes, jobs, policies."""
