"""The command line in this process, on our model of AWS: fast, since nothing is started anew."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from cloudgpu.cli.app import run

REGIONS = ("us-east-1", "us-west-2")  # where our model offers p3.2xlarge
CONFIG = f"""
provider = "aws"
owner = "ada"
address_services = []
[accounts.lab]
provider = "aws"
regions = {json.dumps(REGIONS)}
"""


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


class Line:
    """Runs commands; `home` is where config.toml lies."""

    def __init__(self, home, capsys, aws):
        self.home, self.aws = home, aws
        self._capsys = capsys
        self.config(CONFIG)

    def config(self, text):
        (self.home / "config.toml").write_text(text)

    def __call__(self, *words):
        self._capsys.readouterr()
        code = run([part for word in words for part in word.split(" ")])
        return Said(code, *self._capsys.readouterr())

    def whole(self, *words):
        """Run a command whose words are given one by one."""
        self._capsys.readouterr()
        code = run(list(words))
        return Said(code, *self._capsys.readouterr())
