from __future__ import annotations

import stat
import subprocess
import sys

import pytest

from cloudgpu.access.ssh.authorized_keys import parse_public_key
from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.errors import InvalidRequest
from tests.access.sshserver import ROOT


def test_the_key_is_made_once_and_private(tmp_path):
    first = client_key(tmp_path / "keys")
    assert client_key(tmp_path / "keys") == first
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.path.parent.stat().st_mode) == 0o700
    assert first.path.with_name("id_ed25519.pub").read_text() == first.public_line + "\n"


def test_openssh_reads_the_key_and_agrees_on_the_public_line(tmp_path):
    key = client_key(tmp_path)
    said = subprocess.run(["ssh-keygen", "-y", "-f", key.path], capture_output=True, text=True, check=True)
    assert said.stdout.split()[:2] == key.public_line.split()[:2]


def test_several_processes_at_once_make_one_key(tmp_path):
    script = (
        "import sys, pathlib; from cloudgpu.access.ssh.client_files import client_key\n"
        "print(client_key(pathlib.Path(sys.argv[1])).public_line)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "keys")]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}) for _ in range(6)
    ]
    assert len({one.communicate(timeout=60)[0] for one in started}) == 1
    assert {path.name for path in (tmp_path / "keys").iterdir()} == {"id_ed25519", "id_ed25519.pub"}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused_with_the_command_that_mends_it(tmp_path, mode):
    path = client_key(tmp_path).path
    path.chmod(mode)
    with pytest.raises(InvalidRequest) as caught:
        client_key(tmp_path)
    assert (caught.value.field, caught.value.value) == ("keys", str(path))
    assert f"chmod 600 '{path}'" in caught.value.next
    path.chmod(0o600)
    assert client_key(tmp_path).path == path


@pytest.mark.parametrize("content", [b"", b"not a key", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", b"\xff\xfe"])
def test_a_damaged_key_is_named_and_not_replaced(tmp_path, content):
    path = client_key(tmp_path).path
    path.write_bytes(content)
    with pytest.raises(InvalidRequest) as caught:
        client_key(tmp_path)
    assert caught.value.value == str(path)
    assert path.read_bytes() == content


def test_a_key_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", path], check=True)
    with pytest.raises(InvalidRequest, match="not an ed25519 key"):
        client_key(tmp_path)


def test_a_place_that_cannot_be_written_to_is_said(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InvalidRequest) as caught:
        client_key(tmp_path / "file")
    assert caught.value.field == "CLOUDGPU_HOME"


def test_every_host_key_is_another_one_and_shows_nothing():
    one, other = new_host_key(), new_host_key()
    assert one.public_line.startswith("ssh-ed25519 ")
    assert one.public_line != other.public_line
    assert "PRIVATE" in one.private_pem
    assert "PRIVATE" not in repr(one)


def test_a_public_half_that_cannot_be_read_is_named(tmp_path):
    public = client_key(tmp_path / "keys").path.with_name("id_ed25519.pub")
    public.unlink()
    public.mkdir()
    with pytest.raises(InvalidRequest, match=r"id_ed25519\.pub cannot be read or written"):
        client_key(tmp_path / "keys")


def test_the_comment_of_a_colleagues_key_moves_nothing_on_a_terminal():
    line = new_host_key().public_line.replace(" cloudgpu", " ada\x1b[31m\x07@lab")
    assert parse_public_key(line).comment == "ada [31m @lab"
