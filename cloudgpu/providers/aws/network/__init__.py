"""VPC, subnets and security groups."""
