"""No verb that asks a cloud is silent on a terminal: real ones, on our model of AWS, with a spinner in a hurry."""

from __future__ import annotations

import os
import re
import sys

import pytest

from tests.cli.aws_line import CONFIG
from tests.cli.people import Terminal
from tests.clouds.aws.fixtures import aws, aws_process

__all__ = ["aws", "aws_process"]
LATENCY_S = 0.3  # of each answer of the model
HURRIED = """
import sys
from cloudgpu.cli import progress
progress.SILENT_S, progress.TURN_S = 0.05, 0.02
from cloudgpu.__main__ import main
main()
"""
SHOWN = {  # what the last line says meanwhile
    "ls --refresh": r"ls, looking at your machines: \d of 6 answers, \d of \d+ regions",
    "quota --account lab": r"quota, asking the account: \d of 2 regions",
    "orphans": r"orphans, searching your accounts: \d of 2 accounts",
    "up --dry-run --ssh-from 203.0.113.7 --instance-type g4dn.xlarge": "up, looking for offers",
}


QUICK = [verb if verb in ("orphans", "ls --refresh") else pytest.param(verb, marks=pytest.mark.soak) for verb in SHOWN]


@pytest.mark.parametrize("verb", QUICK)
def test_a_verb_that_waits_for_a_cloud_shows_its_step_and_how_far_it_is(verb, own_home, aws):
    (own_home / "config.toml").write_text(CONFIG)
    aws.faults.latency_s = LATENCY_S
    seen = Terminal.of([sys.executable, "-c", HURRIED, *verb.split()], dict(os.environ) | {"TERM": "xterm"})
    drawn = [line for line in seen.text.split("\r\x1b[K") if " s  " in line[:20]]
    assert any(re.search(SHOWN[verb], line) for line in drawn), seen.text
    assert len(drawn) >= 5, "it turns as long as the cloud is waited for"
