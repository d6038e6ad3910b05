from __future__ import annotations

import stat
import subprocess
import sys

import pytest

from cloudgpu.access.ssh.client_files import new_host_key, pin, pinned, pinned_machines, unpin
from cloudgpu.errors import InvalidRequest
from tests.access.sshserver import ROOT

BARE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFFXZyXbWZ26l2Na9ws02orz9Np6bGcO2ng65sThoomb"
KEY = f"{BARE} a comment"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "home" / "known_hosts"


def test_what_is_pinned_is_found_and_what_is_unpinned_is_gone_with_the_file(file):
    pin(file, "cg-1", KEY)
    pin(file, "cg-2", new_host_key().public_line)
    assert pinned(file, "cg-1") == BARE
    assert pinned_machines(file) == ("cg-1", "cg-2")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    unpin(file, "cg-1")
    assert pinned(file, "cg-1") is None
    unpin(file, "cg-2")
    assert list(file.parent.iterdir()) == []


def test_a_new_pin_replaces_the_old_one(file):
    pin(file, "cg-1", new_host_key().public_line)
    pin(file, "cg-1", KEY)
    assert file.read_text() == f"cg-1 {BARE}\n"


def test_nothing_is_pinned_in_a_file_that_is_not_there(file):
    assert (pinned(file, "cg-1"), pinned_machines(file)) == (None, ())
    unpin(file, "cg-1")
    assert not file.parent.exists()


def test_openssh_finds_the_pinned_key(file):
    pin(file, "cg-1", KEY)
    said = subprocess.run(["ssh-keygen", "-F", "cg-1", "-f", file], capture_output=True, text=True, check=True)
    assert BARE in said.stdout


def test_processes_that_pin_at_once_lose_nothing(file):
    script = (
        "import sys, pathlib; from cloudgpu.access.ssh.client_files import pin, unpin\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "for n in range(10): pin(file, f'cg-{sys.argv[2]}-{n}', sys.argv[3])\n"
        "for n in range(5): unpin(file, f'cg-{sys.argv[2]}-{n}')"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", script, file, str(turn), KEY], env={"PYTHONPATH": str(ROOT)})
        for turn in range(4)
    ]
    assert [one.wait(60) for one in started] == [0] * 4
    assert set(pinned_machines(file)) == {f"cg-{turn}-{number}" for turn in range(4) for number in range(5, 10)}


@pytest.mark.parametrize(
    "line",
    [
        b"cg-2",
        b"cg-2 ssh-ed25519",
        b"cg-2 ssh-ed25519 %%%",
        b"cg-2 ssh-rsa " + BARE.split()[1].encode(),
        b"\xff\xff a b",
    ],
)
def test_a_damaged_line_is_named(file, line):
    pin(file, "cg-1", KEY)
    file.write_bytes(file.read_bytes() + line + b"\n")
    before = file.read_bytes()
    for act in (lambda: pinned(file, "cg-2"), lambda: pin(file, "cg-3", KEY), lambda: unpin(file, "cg-1")):
        with pytest.raises(InvalidRequest, match="Line 2 of") as caught:
            act()
        assert caught.value.field == "known_hosts:2"
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "key", ["", "ssh-ed25519", "ssh-ed25519 AAAA", f"{BARE}\nother ssh-ed25519 AAAA", "hello world"]
)
def test_what_is_no_key_is_not_pinned(file, key):
    with pytest.raises(InvalidRequest):
        pin(file, "cg-1", key)
    assert not file.exists()


@pytest.mark.parametrize("alias", ["", "a b", "*", "a,b", "a\nb", "@revoked", "!x"])
def test_an_alias_that_openssh_would_read_otherwise_is_not_written(file, alias):
    with pytest.raises(InvalidRequest):
        pin(file, alias, KEY)
    assert not file.exists()
