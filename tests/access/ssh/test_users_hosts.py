"""The user's known_hosts as OpenSSH writes it: plain, hashed, with ports and patterns; revoked keys are none."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.access.ssh.user_hosts import confirmed_key
from cloudgpu.errors import InvalidRequest

KEY = " ".join(new_host_key().public_line.split()[:2])
OTHER = " ".join(new_host_key().public_line.split()[:2])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "known_hosts"


@pytest.mark.parametrize(
    ("line", "host", "port", "found"),
    [
        ("box KEY", "box", 22, True),
        ("box,10.0.0.5 KEY a comment", "10.0.0.5", 22, True),
        ("Box KEY", "bOX", 22, True),
        ("box KEY", "box", 2222, False),
        ("[box]:2222 KEY", "box", 2222, True),
        ("[box]:2222 KEY", "box", 22, False),
        ("*.lab.org KEY", "a.lab.org", 22, True),
        ("*.lab.org,!b.lab.org KEY", "b.lab.org", 22, False),
        ("box? KEY", "box1", 22, True),
        ("# box KEY", "box", 22, False),
        ("@cert-authority box KEY", "box", 22, False),
        ("@revoked * KEY\nbox KEY", "box", 22, False),
        ("@revoked * OTHER\nbox KEY", "box", 22, True),
        ("broken\n\nbox ssh-ed25519 AAAA\nbox KEY", "box", 22, True),
        ("|1|nonsense|=== ssh-ed25519 AAAA", "box", 22, False),
    ],
)
def test_an_entry_counts_as_for_openssh(file, line, host, port, found):
    file.write_text(line.replace("OTHER", OTHER).replace("KEY", KEY) + "\n")  # made anew: no part of a case's name
    assert confirmed_key(file, host, port) == (KEY if found else None)


def test_no_file_confirms_nothing(file):
    assert confirmed_key(file, "box", 22) is None


def test_a_file_that_cannot_be_read_is_said(file):
    file.mkdir()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        confirmed_key(file, "box", 22)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH's ssh-keygen is not installed")
def test_hashed_entries_of_ssh_keygen_and_the_best_of_several_kinds(file, tmp_path):
    for kind in ("rsa", "ecdsa", "ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", tmp_path / kind], check=True)
    lines = {kind: " ".join((tmp_path / f"{kind}.pub").read_text().split()[:2]) for kind in ("rsa", "ecdsa", "ed25519")}
    file.write_text("".join(f"[box]:2222 {line}\n" for line in lines.values()))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert "box" not in file.read_text()
    assert confirmed_key(file, "box", 2222) == lines["ed25519"]
    assert confirmed_key(file, "other", 2222) is None
    file.write_text(f"box {lines['rsa']}\nbox {lines['ecdsa']}\n")
    assert confirmed_key(file, "box", 22) == lines["ecdsa"]
