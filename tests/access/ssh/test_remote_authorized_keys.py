"""The program that lets a key in, run as a machine's interpreter runs it, in a home of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cloudgpu.access.ssh import authorized_keys

pytestmark = pytest.mark.usefixtures("no_bytecode")  # a limit on files would cut it off

MARK = "cloudgpu:m-1"
GUEST = "ssh-ed25519 AAAAguest"
OWN = b'command="x" ssh-ed25519 AAAAown cloudgpu:m-1'
BEFORE = "import resource; resource.setrlimit({limit}, (0, 0))\n"


@pytest.fixture
def keys(tmp_path):
    """The file of keys in a home."""
    (tmp_path / ".ssh").mkdir()
    return tmp_path / ".ssh" / "authorized_keys"


def change(keys, *, add, before=""):
    """Return what the program answers."""
    text = authorized_keys.Path(authorized_keys.__file__).with_name("remote_authorized_keys.py").read_text()
    future = "from __future__ import annotations\n"
    program = text.replace(future, future + before, 1) + f"\n\nmain({MARK!r}, {GUEST!r}, add={add!r})\n"
    environ = {"HOME": str(keys.parents[1])}
    words = [sys.executable, "-IS", "-"]
    done = subprocess.run(words, input=program, capture_output=True, text=True, timeout=30, check=True, env=environ)
    return json.loads(done.stdout)


@pytest.mark.parametrize("end", [b"\n", b"", b"\r\n", b" \n"])
def test_a_guest_gets_the_options_of_the_launch_whose_line_ends_as_an_editor_left_it(keys, end):
    before = b"ssh-rsa AAAAusers ada\n" + OWN + end
    keys.write_bytes(before)
    assert change(keys, add=True) == {"changed": True}
    assert keys.read_bytes() == b'command="x" ssh-ed25519 AAAAguest cloudgpu:m-1 shared\n' + before
    assert change(keys, add=False) == {"changed": True}
    assert keys.read_bytes() == before


def test_a_file_that_cannot_be_made_or_written_is_named_with_the_reason(keys):
    keys.write_bytes(OWN + b"\n")
    answer = change(keys, add=True, before=BEFORE.format(limit="resource.RLIMIT_FSIZE"))
    assert answer == {"error": f"File too large ({keys.parents[1]})"}
    keys.unlink()
    keys.symlink_to("/proc/no-such-directory/keys")
    assert change(keys, add=True)["error"].startswith("No such file or directory (/proc/no-such-directory/.cloudgpu")
    assert [one.name for one in keys.parent.iterdir()] == ["authorized_keys"]
