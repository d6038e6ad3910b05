"""What a job takes along from this computer, and brings back to it."""
