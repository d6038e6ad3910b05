"""Amazon EC2 through botocore."""
