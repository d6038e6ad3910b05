"""Who may connect, from launch to end, by the command line against our model of AWS with machines that answer SSH.

The model keeps security groups and does not filter: a closed door is a machine whose SSH server does not listen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial

import boto3
import pytest

from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.cli.app import run
from tests.access.sshserver import USER, Server
from tests.address_service import AddressService
from tests.clouds.aws.fixtures import aws, aws_process  # noqa: F401
from tests.clouds.aws.server import served
from tests.clouds.aws.userdata import cloud_config

HOME, CAFE, ADAS, BOBS = "203.0.113.7", "198.51.100.4", "192.0.2.9", "192.0.2.77"
UP = ("up", "--provider", "aws", "--gpu", "t4", "--template", "bare", "--name", "fox", "--yes")


class Aws:
    """A user of the model, at an address that can change."""

    def __init__(self, server, home, capfd):
        self.server, self._capfd = server, capfd
        self.machines = server.serve_ssh()
        self.service = AddressService(HOME.encode())
        (home / "config.toml").write_text(
            f'owner = "ada"\naddress_services = ["{self.service.url}"]\n'
            f'[accounts.aws]\nregions = ["us-east-1"]\nssh_port = {server.ssh_port}\n'
        )

    def __call__(self, *words):
        """Run a command; return its exit code, stdout and stderr."""
        self._capfd.readouterr()
        code = run(list(words))
        return code, *self._capfd.readouterr()

    @property
    def machine(self):
        (one,) = self.server.instances(live=True)
        return one

    def rules(self):
        """Network and description of each rule of our group."""
        (group,) = (one.id for one in self.machine.security_groups)
        found = boto3.client("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"]
        return sorted((one["CidrIp"], one["Description"]) for rule in found for one in rule["IpRanges"])

    def settle(self):
        """Put the agent into the user's home, as the machine's own start script does."""
        base = self.machines.home(self.machine.id) / ".cloudgpu"
        base.mkdir(exist_ok=True)
        for file in cloud_config(str(self.machine.user_data))["write_files"]:
            if file["path"].endswith(("/agent", "/agent.py", "/agent.json")):
                path = base / file["path"].rpartition("/")[2]
                path.write_text(file["content"])
                path.chmod(0o700)

    def shut_the_door(self):
        self.machines.close(self.machine.id)

    def open_the_door(self, host_key=None):
        machine = served(self.machine)
        other = {**machine.given, "ssh_keys": {"ed25519_private": host_key}}
        self.machines.open(machine._replace(given=other) if host_key else machine)

    def at(self, home, ledger, *words):
        """Run a command in another home on a ledger."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CLOUDGPU_HOME", str(home))
            patch.setenv("CLOUDGPU_LEDGER", ledger)
            return self(*words)


@pytest.fixture
def ours(aws, own_home, capfd):  # noqa: F811
    made = Aws(aws, own_home, capfd)
    yield made
    run(["down", "--all", "--yes"])
    made.service.end()


@pytest.mark.soak
def test_a_caller_who_moves_is_told_and_moves_the_rule_and_a_colleague_is_let_in_beside(
    ours, own_home, tmp_path, monkeypatch
):
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115, PTH123
    bobs = tmp_path / "bob"
    bobs.mkdir()
    (bobs / "config.toml").write_text((own_home / "config.toml").read_text().replace('"ada"', '"bob"'))
    (tmp_path / "ada.pub").write_text(client_key(bobs / "keys").public_line)
    bob = partial(ours.at, bobs, f"sqlite:///{own_home}/ledger/ledger.db")
    assert ours(*UP)[0] == 0
    assert ours.rules() == [(f"{HOME}/32", "cloudgpu caller")]

    ours.service.said = CAFE.encode()
    ours.shut_the_door()
    told = f"Your address is {CAFE} now, and SSH on fox is open to {HOME}."
    for words, wanted in ((("exec", "fox", "--", "true"), 255), (("ssh", "fox"), 10), (("tunnel", "fox"), 10)):
        code, _, err = ours(*words)
        assert (code, told in err, "cloudgpu allow fox" in err) == (wanted, True, True), err

    code, out, _ = ours("allow")
    assert code == 0
    assert f"fox: SSH is open to {CAFE} now, and no longer to {HOME}." in out
    assert ours.rules() == [(f"{CAFE}/32", "cloudgpu caller")]
    ours.open_the_door()
    assert ours("exec", "fox", "--", "true")[0] == 0

    code, _, err = bob("exec", "fox", "--", "true")
    assert (code, "fox is ada's, and the key of this home was not let in there" in err) == (255, True), err
    ours.settle()
    share = ("share", "fox", "--key", str(tmp_path / "ada.pub"))
    assert ours(*share)[0] == 2
    code, out, _ = ours(*share, "--from", ADAS)
    assert (code, f"from {ADAS} until it ends" in out) == (0, True)
    ((network, description),) = [rule for rule in ours.rules() if "share" in rule[1]]
    assert (network, description.startswith("cloudgpu share cg-")) == (f"{ADAS}/32", True)
    assert bob("exec", "fox", "--", "echo", "hello")[:2] == (0, "hello\n")
    ours.service.said = BOBS.encode()
    assert bob("allow", "fox")[0] == 0
    assert [network for network, _ in ours.rules()] == [f"{BOBS}/32", f"{CAFE}/32"], "theirs moved, ours did not"
    ours.shut_the_door()
    ours.open_the_door(host_key=new_host_key().private_pem)
    code, _, err = bob("exec", "fox", "--", "true")
    assert (code, "showed another host key than the one pinned" in err) == (255, True), err
    ours.shut_the_door()
    ours.open_the_door()
    assert ours(*share, "--remove")[0] == 0
    assert "was not let in there" in bob("exec", "fox", "--", "true")[2]
    assert ours.rules() == [(f"{CAFE}/32", "cloudgpu caller")]


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("ssh") is None, reason="the system's ssh is not installed")
def test_a_machine_without_a_public_address_is_reached_through_a_jump_host(ours, tmp_path, monkeypatch):
    jump = Server(tmp_path / "bastion")
    jump.root.mkdir()
    jump.start()
    try:
        use(monkeypatch, tmp_path, jump)
        code, _, err = ours(*UP, "--no-public-ip", "--jump", f"{USER}@127.0.0.1:{jump.port}")
        assert code == 0, err
        vpc = boto3.client("ec2").describe_vpcs()["Vpcs"][0]["CidrBlock"]
        assert ours.rules() == [(vpc, "cloudgpu inside")]
        assert ours.service.asked == []
        before = jump.connections
        assert ours("exec", "fox", "--", "echo", "through")[1] == "through\n"
        assert jump.connections == before + 1
        words = [sys.executable, "-m", "cloudgpu", "ssh", "fox", "echo", "hello"]
        assert subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout == "hello\n"
        assert ours("allow", "fox")[0] == 2
    finally:
        ours("down", "--all", "--yes")
        jump.kill()


def use(monkeypatch, tmp_path, jump):
    """Let an `ssh` on PATH read a config of the user's own that knows the jump host."""
    known, config, bin_ = tmp_path / "known", tmp_path / "config", tmp_path / "bin"
    known.write_text(f"[127.0.0.1]:{jump.port} {jump.host_key.public_line}\n")
    config.write_text(
        f"Host 127.0.0.1\n  IdentityFile {client_key(jump.root / 'keys').path}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known}\n  StrictHostKeyChecking yes\n"
    )
    bin_.mkdir()
    real = shutil.which("ssh")
    # LedgerTotal hands -F for the machine itself: the user's own config stands for what is reached without one.
    (bin_ / "ssh").write_text(f'#!/bin/sh\n[ "$1" = -F ] && exec {real} "$@"\nexec {real} -F {config} "$@"\n')
    (bin_ / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")
