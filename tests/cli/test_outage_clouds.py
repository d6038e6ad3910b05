"""The ledger's server is down: machines on the models of the three clouds are found by their tags, and ended."""

from __future__ import annotations

import os
import shutil

import pytest

from cloudgpu.control.outage import opening as sessions
from tests.cli import aws_line, azure_line, gcp_line
from tests.cli.line import on_time_of
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.gcp.fixtures import gcp, gcp_process

__all__ = ["aws", "aws_process", "azure_arm", "azure_process", "gcp", "gcp_process"]
pytestmark = [pytest.mark.soak]
UP = "up --gpu t4 --name fox --yes --no-wait --ssh-from 203.0.113.7 -o json"


def of_its_stop(line):
    """What the ledger says of the machine's state, and of its run that has ended."""
    session = sessions.open_session(os.environ)
    row = session.find("fox")
    uses = [use.end for one, use in session.ledger.ended_usages() if one == row.id and use.resource == "instance"]
    session.ledger.close()
    return {name: getattr(row, name) for name in ("state", "billed", "since", "pending_action")}, uses


@pytest.mark.parametrize("kind", ["aws", "gcp", "azure_arm"])
@pytest.mark.parametrize("calls", [True, False], ids=["by its saved call", "by its tags alone"])
def test_stop_and_down_end_a_machine_of_a_cloud_and_the_bill_ends_by_its_word(
    own_home, capsys, request, postgres, monkeypatch, kind, calls
):
    cloud = request.getfixturevalue(kind)
    line = {"aws": aws_line, "gcp": gcp_line, "azure_arm": azure_line}[kind].Line(own_home, capsys, cloud)
    if kind != "aws":
        on_time_of(monkeypatch, cloud)
    monkeypatch.setenv("CLOUDGPU_LEDGER", postgres.schema())
    up = line(UP)
    assert up.code == 0, up.out + up.err
    if not calls:
        shutil.rmtree(own_home / "attempts", ignore_errors=True)
    postgres.kill()
    try:
        stop = line("stop fox --yes -o json")
        assert stop.code == 8
        assert "fox is" in stop.json["error"]["message"], stop.out + stop.err
        assert "not billed, but the ledger does not know it yet" in stop.json["error"]["message"]
    finally:
        postgres.start()
    told = of_its_stop(line)
    assert line("ls --refresh -o json").code == 0
    assert of_its_stop(line) == told, "the look that follows has nothing to put right"
    assert told[0]["billed"] is False
    postgres.kill()
    try:
        down = line("down fox --yes -o json")
        assert "fox was ended and nothing of it is left" in down.json["error"]["message"], down.out + down.err
    finally:
        postgres.start()
    assert line("ls -o json").json["machines"] == []
    assert line("ls --refresh -o json").code == 0
