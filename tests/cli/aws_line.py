"""The command line in this process, on our model of AWS: fast, since nothing is started anew."""

from __future__ import annotations

import json

from tests.cli import line
from tests.cli.line import Said

__all__ = ["CONFIG", "REGIONS", "Line", "Said"]
REGIONS = ("us-east-1", "us-west-2")  # where our model offers p3.2xlarge
CONFIG = f"""
provider = "aws"
owner = "ada"
address_services = []
[accounts.lab]
provider = "aws"
regions = {json.dumps(REGIONS)}
"""


class Line(line.Line):
    """Runs commands; `home` is where config.toml lies."""

    def __init__(self, home, capsys, aws):
        self.aws = aws
        super().__init__(home, capsys, aws, CONFIG)
