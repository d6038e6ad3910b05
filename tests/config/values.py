"""What a launch tells a template's `cloud_init`, for tests."""

from __future__ import annotations

VALUES = {
    "provider": "aws",
    "account": "lab",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "instance_type": "p3.2xlarge",
    "market": "spot",
    "gpu": "v100",
    "gpu_count": 1,
    "owner": "Ada O'Neil",
    "project": "default",
    "template": "t",
}
