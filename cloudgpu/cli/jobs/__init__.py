"""The verbs about jobs: run, jobs, logs, cancel."""
