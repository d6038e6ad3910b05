"""How long each verb is silent on a terminal at the longest, against the model of AWS, whose answers take a while each.

`python benchmarks/silence.py [LATENCY_S] [SOURCE]` prints a row a verb: seconds in all, the longest time without a byte
on the terminal, and what was on the last line then. SOURCE is the checkout whose `cloudgpu` is run.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.cli.people import Terminal  # noqa: E402
from tests.clouds.aws.server import AwsServer  # noqa: E402

CONFIG = """
provider = "aws"
owner = "ada"
address_services = []
[accounts.lab]
provider = "aws"
regions = ["us-east-1", "us-west-2"]
"""
UP = "up --yes --no-wait --new --ssh-from 203.0.113.7 --zone us-east-1b --instance-type g4dn.xlarge"
VERBS = (
    "doctor",
    f"{UP} --name fox",
    f"{UP} --name owl",
    "ls",
    "ls --refresh",
    "show fox",
    "gpus",
    "quota --account lab",
    "regions --provider aws",
    "estimate --gpu t4",
    "recommend vision",
    "image save fox --name saved --yes",
    "image ls",
    "image rm saved --yes",
    "volume ls",
    "stop fox --yes",
    "start fox --yes --no-wait",
    "orphans",
    "reap",
    "policy backtest nightly",
    "allow fox",
    "cost",
    "cost --verify",
    "report",
    "export",
    "ledger backup backup.sqlite",
    "extend fox 2h --yes",
    "hold fox 2h --yes",
    "catalog refresh --provider aws",
    "init aws --yes",
    "down --all --yes",
)


def measure(latency_s: float, source: Path) -> None:
    """Print the table."""
    server = AwsServer().start()
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "config.toml").write_text(CONFIG)
        environ = os.environ | server.environ | {"CLOUDGPU_HOME": home, "HOME": home, "TERM": "xterm"}
        environ |= {"PYTHONPATH": str(source), "COLUMNS": "100", "AWS_EC2_METADATA_DISABLED": "true", "PAGER": "cat"}
        for verb in VERBS:
            server.faults.latency_s = latency_s
            argv = [sys.executable, "-m", "cloudgpu", *verb.split()]
            seen = Terminal.of(argv, environ, cwd=home, within_s=90)
            print(f"{verb[:45]:45} {seen.code:>4} {seen.seconds:6.1f} s  {seen.silent_s:5.2f} s  {seen.last_line[:60]}")
            if seen.code:
                print(f"    {' '.join(seen.text.split())[-150:]}")
    server.stop()


if __name__ == "__main__":
    measure(float([*sys.argv, "1.5"][1]), Path([*sys.argv, "", str(ROOT)][2] or ROOT))
