"""The command line in this process, on our model of Azure."""

from __future__ import annotations

import json

from tests.cli import line

REGIONS = ("eastus", "westus2")
CONFIG = f"""
provider = "azure"
owner = "ada"
address_services = []
[accounts.lab]
provider = "azure"
regions = {json.dumps(REGIONS)}
"""


class Line(line.Line):
    """Runs commands; `home` is where config.toml lies."""

    def __init__(self, home, capsys, azure_arm):
        self.azure = azure_arm
        super().__init__(home, capsys, azure_arm, CONFIG)
