from __future__ import annotations

import shutil
import stat
import subprocess

import pytest

from cloudgpu.access.ssh.client_files import SshHost, new_host_key, ssh_client, ssh_command, write_config
from cloudgpu.core.model.instances import Address
from cloudgpu.errors import InvalidRequest
from tests.access.sshserver import Server, wait_for


@pytest.fixture
def spaced(tmp_path):
    """Return a server and config whose paths have a blank and a percent sign."""
    root = tmp_path / "a home with 100% blanks"
    root.mkdir()
    (root / "connections").touch()
    server = Server(root).start().pin()
    yield server, root / "ssh_config"
    server.kill()


def publish(server, file):
    target = server.target
    write_config(
        file, [SshHost("box", target.id, target.address)], key_file=target.key_file, known_hosts=target.known_hosts
    )


def say_hello(file):
    command = ssh_command(file, "box", ["echo", "hello"])
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)


def test_the_systems_client_logs_in_with_our_key_to_the_pinned_machine(spaced):
    server, file = spaced
    publish(server, file)
    said = say_hello(file)
    assert (said.stdout, said.stderr, said.returncode) == ("hello\n", "", 0)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_it_can_be_included_and_names_only_its_own_machines(spaced, tmp_path):
    server, file = spaced
    publish(server, file)
    (tmp_path / "config").write_text(f'Include "{file}"\nHost *\n  User somebody\n')
    asked = [shutil.which("ssh"), "-G", "-F", str(tmp_path / "config")]
    ours = subprocess.run([*asked, "box"], capture_output=True, text=True, check=True).stdout
    other = subprocess.run([*asked, "example.org"], capture_output=True, text=True, check=True).stdout
    assert "user tester\n" in ours
    assert "hostkeyalias cg-test\n" in ours
    assert "stricthostkeychecking true\n" in ours
    assert "user somebody\n" in other
    assert "hostkeyalias" not in other


def test_the_systems_client_refuses_another_host_key(spaced):
    server, file = spaced
    publish(server, file)
    server.kill()
    server.host_key = new_host_key()
    server.start()
    said = say_hello(file)
    assert said.returncode == 255
    assert said.stdout == ""
    assert "HOST IDENTIFICATION HAS CHANGED" in said.stderr


def test_without_machines_there_is_no_config(spaced):
    server, file = spaced
    publish(server, file)
    write_config(file, [], key_file=server.target.key_file, known_hosts=server.target.known_hosts)
    assert not file.exists()
    write_config(file, [], key_file=server.target.key_file, known_hosts=server.target.known_hosts)


def test_an_unchanged_config_is_not_written_again(spaced):
    server, file = spaced
    publish(server, file)
    before = file.stat().st_ino
    publish(server, file)
    assert file.stat().st_ino == before
    wait_for(lambda: not list(file.parent.glob(".ssh_config*")))


@pytest.mark.parametrize("user", ['a"b', "a\nProxyCommand evil", "a\\b"])
def test_what_could_be_read_as_another_option_is_refused(tmp_path, user):
    host = SshHost("box", "cg-1", Address("127.0.0.1", 22, user))
    with pytest.raises(InvalidRequest) as refused:
        write_config(tmp_path / "config", [host], key_file=tmp_path / "key", known_hosts=tmp_path / "known_hosts")
    assert (refused.value.field, refused.value.value) == ("user", user)
    assert not (tmp_path / "config").exists()


def test_a_path_that_cannot_be_written_into_the_config_is_said_to_be_one(tmp_path):
    host = SshHost("box", "cg-1", Address("127.0.0.1", 22, "me"))
    key_file = tmp_path / 'a"b'
    with pytest.raises(InvalidRequest) as refused:
        write_config(tmp_path / "config", [host], key_file=key_file, known_hosts=tmp_path / "known_hosts")
    assert (refused.value.field, refused.value.value) == ("CLOUDGPU_HOME", str(key_file))


def test_a_computer_without_a_client_is_told_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidRequest) as caught:
        ssh_client()
    assert "openssh-client" in caught.value.next
