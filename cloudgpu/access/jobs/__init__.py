"""Takes jobs to machines: what their files are, and the command under a supervisor of its own."""
