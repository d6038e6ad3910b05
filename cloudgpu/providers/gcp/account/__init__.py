"""Login, permissions, roles and budget alerts on Google Cloud."""
