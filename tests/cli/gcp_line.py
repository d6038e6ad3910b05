"""The command line in this process, on our model of Google Cloud."""

from __future__ import annotations

import json

from tests.cli import line

REGIONS = ("us-central1", "us-west1")
CONFIG = f"""
provider = "gcp"
owner = "ada"
address_services = []
[accounts.lab]
provider = "gcp"
regions = {json.dumps(REGIONS)}
"""


class Line(line.Line):
    """Runs commands; `home` is where config.toml lies."""

    def __init__(self, home, capsys, gcp):
        self.gcp = gcp
        super().__init__(home, capsys, gcp, CONFIG)
