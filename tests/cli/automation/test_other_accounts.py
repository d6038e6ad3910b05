"""Two members whose account `lab` is two: the command line of each on its own model of a cloud, and one ledger."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli import aws_line, azure_line, gcp_line
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.gcp.fixtures import gcp, gcp_process

__all__ = ["aws", "aws_process", "azure_arm", "azure_process", "gcp", "gcp_process"]
ROOT = Path(__file__).parents[3]
FROM = "--ssh-from 203.0.113.7"
ELSE = "22222222-2222-4333-8444-555555555555"  # bob's subscription


@contextmanager
def another(cloud: str, **environ: str) -> Iterator[dict[str, str]]:
    """Run a second model of a cloud, in a process of its own; give what it says to export."""
    words = [sys.executable, "-m", f"tests.clouds.{cloud}"]
    server = subprocess.Popen(words, cwd=ROOT, env=os.environ | environ, stdout=subprocess.PIPE, text=True)
    try:
        told = dict[str, str]()
        assert server.stdout is not None
        while (said := server.stdout.readline()).startswith("export "):
            name, _, value = said.removeprefix("export ").strip().partition("=")
            told[name] = value
            if name == {"aws": "AWS_DEFAULT_REGION", "azure": "AZURE_SUBSCRIPTION_ID"}[cloud]:
                break
        yield told
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


class Member:
    """A command line with a home and an environment of its own."""

    def __init__(self, who, line, home, monkeypatch, **environ):
        self.line, self.monkeypatch = line, monkeypatch
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text((line.home / "config.toml").read_text().replace('"ada"', f'"{who}"'))
        self.environ = {"CLOUDGPU_HOME": str(home), **environ}

    def __call__(self, words):
        with self.monkeypatch.context() as patch:
            for name, value in self.environ.items():
                patch.setenv(name, value)
            return self.line(words)


def flat(said):
    """What was said beside the answer, on one line."""
    return " ".join(said.err.split())


class Lab:
    """Ada, whose machine fox runs, and bob, ten minutes later."""

    def __init__(self, line, tmp_path, monkeypatch, server, up, **bob):
        monkeypatch.setenv("CLOUDGPU_LEDGER", f"sqlite:///{tmp_path}/lab.db")
        self.server, self.up = server, up
        self.ada = Member("ada", line, tmp_path / "ada", monkeypatch)
        self.bob = Member("bob", line, tmp_path / "bob", monkeypatch, **bob)
        made = self.ada(f"{up} --name fox")
        assert made.code == 0, made.err

    def check(self, ada, bob, *, sold=True):
        """Whatever bob types, ada's machine is neither called gone nor let out of the budget, and she can end it.

        `sold`: there is something for bob to launch.
        """
        there = f"{ada} is not reachable from here: fox is a machine of ada's `lab`; `lab` here is {bob}."
        self.server.advance(600)
        for words in ("ls --refresh", "reap --dry-run", "reap", "orphans"):
            said = self.bob(words)
            assert (said.code, there in flat(said)) == (8, True), (words, said)
        for words in ("down fox --yes", "stop fox --yes", "show fox --refresh", "extend fox 30d --yes"):
            said = self.bob(words)
            assert (said.code, f"fox belongs to {ada}; `lab` here is {bob}." in flat(said)) == (8, True), (words, said)
        assert self.bob("ls").code == 0
        assert self.bob("budget set lab --amount 0.01 --period month --yes").code == 0
        assert self.bob(f"{self.up} --name owl").code == (3 if sold else 4), "a stranger's look frees no reservation"
        (machine,) = self.ada("ls --refresh -o json").json["machines"]
        assert (machine["name"], machine["state"], machine["billed"]) == ("fox", "running", True)
        assert self.ada("down fox --yes").code == 0
        assert self.bob("ls --refresh").code == 0


@pytest.mark.soak
def test_two_accounts_of_aws_with_one_name(own_home, capsys, aws, tmp_path, monkeypatch):
    line = aws_line.Line(own_home, capsys, aws)
    up = f"up --gpu v100 --no-wait --yes {FROM}"
    with another("aws", MOTO_ACCOUNT_ID="222222222222") as told:
        lab = Lab(line, tmp_path, monkeypatch, aws, up, AWS_ENDPOINT_URL=told["AWS_ENDPOINT_URL"])
        lab.check("AWS account 123456789012", "AWS account 222222222222")
    assert aws.instances(live=True) == []


@pytest.mark.soak
def test_two_projects_of_google_cloud_with_one_name(own_home, capsys, gcp, tmp_path, monkeypatch):
    line = gcp_line.Line(own_home, capsys, gcp)
    lab = Lab(line, tmp_path, monkeypatch, gcp, f"up --gpu t4 --no-wait --yes {FROM}", GOOGLE_CLOUD_PROJECT="bobs-lab")
    lab.check("Google project cloudgpu-test", "Google project bobs-lab", sold=False)
    assert gcp.billable() == []


@pytest.mark.soak
def test_two_subscriptions_of_azure_with_one_name(own_home, capsys, azure_arm, tmp_path, monkeypatch):
    line = azure_line.Line(own_home, capsys, azure_arm)
    mine = os.environ["AZURE_SUBSCRIPTION_ID"]
    with another("azure", CLOUDGPU_TEST_SUBSCRIPTION=ELSE) as told:
        lab = Lab(line, tmp_path, monkeypatch, azure_arm, f"up --gpu t4 --no-wait --yes {FROM}", **told)
        lab.check(f"Azure subscription {mine}", f"Azure subscription {ELSE}")
    assert azure_arm.instances(live=True) == []


def check_shared(lab, ada, bob):
    """Once ada has shared fox, bob gets in, and his account tells no more of it than before; then no longer."""
    there = f"{ada} is not reachable from here: fox is a machine of ada's `lab`; `lab` here is {bob}."
    lab.server.advance(600)
    refused = lab.bob("exec fox -- true")
    assert (refused.code, "the key of this home was not let in there" in flat(refused)) == (255, True), refused.err
    key = f"{lab.bob.environ['CLOUDGPU_HOME']}/keys/id_ed25519.pub"
    shared = lab.ada(f"share fox --key {key} --from 192.0.2.9")
    assert shared.code == 0, shared.err
    assert lab.bob("exec fox -- echo hello").out == "hello\n"
    for words in ("ls --refresh", "reap"):
        said = lab.bob(words)
        assert (said.code, there in flat(said)) == (8, True), (words, said)
    assert lab.bob("down fox --yes").code == 8
    assert lab.bob("exec fox -- echo again").out == "again\n"
    (machine,) = lab.ada("ls --refresh -o json").json["machines"]
    assert (machine["name"], machine["state"], machine["billed"]) == ("fox", "running", True)
    assert lab.ada(f"share fox --key {key} --remove").code == 0
    assert lab.bob("exec fox -- true").code == 255
    assert lab.ada("down fox --yes").code == 0


@pytest.mark.soak
def test_a_machine_in_another_project_of_google_cloud_is_reached_once_it_is_shared(
    own_home, capfd, gcp, tmp_path, monkeypatch
):
    gcp.dwell(operation=-1)
    gcp.serve_ssh()
    line = gcp_line.Line(own_home, capfd, gcp)
    line.config(f"{gcp_line.CONFIG}ssh_port = {gcp.ssh_port}\n")
    up = f"up --gpu t4 --template bare --yes {FROM}"
    lab = Lab(line, tmp_path, monkeypatch, gcp, up, GOOGLE_CLOUD_PROJECT="bobs-lab")
    check_shared(lab, "Google project cloudgpu-test", "Google project bobs-lab")
    assert gcp.billable() == []


@pytest.mark.soak
def test_a_machine_in_another_subscription_of_azure_is_reached_once_it_is_shared(
    own_home, capfd, azure_arm, tmp_path, monkeypatch
):
    azure_arm.serve_ssh()
    line = azure_line.Line(own_home, capfd, azure_arm)
    line.config(f"{azure_line.CONFIG}ssh_port = {azure_arm.ssh_port}\n")
    up, mine = f"up --gpu t4 --template bare --yes {FROM}", os.environ["AZURE_SUBSCRIPTION_ID"]
    with another("azure", CLOUDGPU_TEST_SUBSCRIPTION=ELSE) as told:
        lab = Lab(line, tmp_path, monkeypatch, azure_arm, up, **told)
        check_shared(lab, f"Azure subscription {mine}", f"Azure subscription {ELSE}")
    assert azure_arm.instances(live=True) == []


@pytest.mark.parametrize("verb", ["ls --refresh", "reap", "down fox --yes"])
def test_each_command_asks_aws_at_most_once_whose_account_it_is(own_home, capsys, aws, verb):
    line = aws_line.Line(own_home, capsys, aws)
    assert line(f"up --gpu v100 --no-wait --yes {FROM} --name fox").code == 0
    said, calls = line.calls(verb)
    assert (said.code, calls.count("GetCallerIdentity")) == (0, 1), said.err
