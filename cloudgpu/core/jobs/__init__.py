"""What a job is: the command with its directory, its results and how it ended."""
