from __future__ import annotations

from tests.clouds.aws.fixtures import aws, aws_process

__all__ = ["aws", "aws_process"]
