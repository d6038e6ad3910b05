"""Login, permissions, roles and budget alerts on AWS."""
