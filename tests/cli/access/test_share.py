"""A colleague's key on a local machine: let in, used by the system's ssh, taken out; a private key is refused."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from cloudgpu.access.ssh.client_files import new_host_key
from tests.cli.many import QuickProgram

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="the system's ssh is not installed")


@pytest.fixture
def colleague(tmp_path):
    """The files of a colleague's key pair."""
    pair = new_host_key()
    private = tmp_path / "ada"
    private.write_text(pair.private_pem)
    private.chmod(0o600)
    (tmp_path / "ada.pub").write_text(pair.public_line.replace(" cloudgpu", " ada@laptop") + "\n")
    return private


def logs_in(colleague, value):
    """Whether the colleague gets in with what `share` said, and with nothing else."""
    known = colleague.with_name("known_hosts")
    _, _, port, where = value["ssh"].split()
    known.write_text(f"[127.0.0.1]:{port} {value['host_key']}\n")
    options = [
        "-F",
        "/dev/null",
        "-i",
        colleague,
        "-o",
        f"UserKnownHostsFile={known}",
        "-o",
        "StrictHostKeyChecking=yes",
    ]
    words = ["ssh", *options, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-p", port, where, "echo", "hello"]
    return subprocess.run(words, capture_output=True, check=False, text=True, timeout=30).stdout == "hello\n"


@needs_ssh
def test_a_colleague_gets_in_and_is_taken_out_again(cloudgpu, colleague):
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare").code == 0
    public = str(colleague) + ".pub"
    value = cloudgpu("share", "amber-fox", "--key", public, "-o", "json").json
    assert (value["shared"], value["changed"]) == (True, True)
    assert logs_in(colleague, value)
    assert cloudgpu("share", "--key", public, "-o", "json").json["changed"] is False
    assert cloudgpu("share", "--key", public, "--remove", "-o", "json").json["changed"] is True
    assert not logs_in(colleague, value)
    assert "had no such key" in cloudgpu("share", "--remove").out
    assert cloudgpu("exec", "--", "amber-fox").code == 127, "without a name: a command for the only machine"
    assert cloudgpu("exec", "amber-fox", "--", "true").code == 0


@pytest.mark.soak
@needs_ssh
def test_a_colleagues_home_reaches_a_shared_machine_by_its_name(cloudgpu, many, tmp_path):
    bob = QuickProgram(tmp_path / "bob" / "home", many=many)
    bob.environ["CLOUDGPU_LEDGER"] = f"sqlite:///{cloudgpu.home}/ledger/ledger.db"
    bob.config('owner = "bob"\n')
    assert cloudgpu("up", "--yes", "--name", "amber-fox", "--template", "bare").code == 0
    refused = bob("exec", "amber-fox", "--", "true")
    assert (refused.code, "the key of this home was not let in there" in refused.err) == (255, True)
    assert cloudgpu("share", "--key", str(bob.home / "keys" / "id_ed25519.pub")).code == 0
    assert "OWNER" in bob("ls").out
    assert bob("ssh", "amber-fox", "echo", "hello").out == "hello\n"
    (tmp_path / "data").write_text("of bob's")
    assert bob("cp", str(tmp_path / "data"), "amber-fox:data").code == 0
    assert bob("exec", "amber-fox", "--", "cat", "data").out == "of bob's"
    assert cloudgpu("exec", "amber-fox", "--", "cat", "data").out == "of bob's"
    assert cloudgpu("share", "--remove").out == "No shared key can log in to amber-fox any more.\n"
    assert bob("exec", "amber-fox", "--", "true").code == 255


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("", "holds no OpenSSH public key"),
        ("hello", "holds no OpenSSH public key"),
        ("ssh-ed25519 AAAA", "holds no OpenSSH public key"),
        ('command="rm" ssh-ed25519 AAAA', "holds no OpenSSH public key"),
        ("the private one", "holds a private key"),
        ("two", "holds 2 lines"),
    ],
)
def test_what_is_no_public_key_is_refused(cloudgpu, tmp_path, content, words):
    pair = new_host_key()
    special = {"the private one": pair.private_pem, "two": f"{pair.public_line}\n# and\n{pair.public_line}\n"}
    file = tmp_path / "key"
    if content is not None:
        file.write_text(special.get(content, content))
    said = cloudgpu("share", "amber-fox", "--key", str(file), "-o", "json")
    error = said.json["error"]
    assert (said.code, error["field"], error["value"]) == (2, "--key", str(file))
    assert words in error["message"]
    assert error["next"]


def test_no_key_and_no_machine_are_said(cloudgpu, colleague):
    assert cloudgpu("share", "amber-fox", "-o", "json").json["error"]["field"] == "--key"
    assert cloudgpu("share", "amber-fox", "--key", f"{colleague}.pub").code == 7
