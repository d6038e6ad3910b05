"""Who logs in with the machine's own key works in its environment: on a real OpenSSH server, by all that SSH can do."""

from __future__ import annotations

import io
import os
import subprocess
import time
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from cloudgpu.access.copy.copy import copy
from cloudgpu.access.ssh import client_files, execute
from cloudgpu.access.ssh.authorized_keys import add_key, parse_public_key, remove_key
from cloudgpu.access.ssh.client_files import client_key
from cloudgpu.access.ssh.connection import connect
from cloudgpu.agent.program import source
from cloudgpu.core.model.instances import Address
from tests.access.opensshd import AT_HOME, opensshd
from tests.access.sshserver import wait_for
from tests.providers.ssh.hosts import Lab

MARK = "CLOUDGPU_MACHINE"


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """A host behind OpenSSH with a machine on it, and who logs in there: with its key, and with the user's own."""
    with opensshd(tmp_path_factory.mktemp("box"), AT_HOME) as server:
        users = server.target
        host_key = " ".join((server.root / "known_hosts").read_text().split()[1:3])
        facts = {"host": "127.0.0.1", "port": server.port, "user": server.user, "key": str(users.key_file)}
        host = SimpleNamespace(name="bigbox", options={"name": "bigbox", "host_key": host_key, **facts})
        lab = Lab(server.root / "lab", host)
        made = lab.launch(agent_source=source())
        try:
            yield SimpleNamespace(
                server=server, users=users, ours=replace(users, key_file=lab.client.path), lab=lab, id=made.id
            )
        finally:
            lab.provider.terminate(made.id)


@pytest.fixture
def mark(box):
    return f"{box.id}@{os.path.realpath(box.server.home)}/.cloudgpu"


def said(target, command, **more):
    with connect(target, timeout=20) as connection:
        done = connection.capture(command, timeout=20, **more)
    return done.status, done.stdout.decode().strip()


@pytest.mark.soak
def test_a_command_has_the_machines_mark_and_its_own_status(box, mark):
    assert said(box.ours, f'echo "${MARK}"; echo "$SSH_ORIGINAL_COMMAND"; exit 7') == (7, mark)
    assert said(box.ours, "cat; kill -TERM $$", input=b"a'b\"c\\d$e") == (128 + 15, "a'b\"c\\d$e")
    assert said(box.ours, "exec nothing-of-the-sort")[0] == 127


def test_words_arrive_as_they_are(box):
    words = ["a b", "it's", 'say "x"', "$HOME", "back\\slash", "*", "two\nlines", "é", "!"]
    out = io.BytesIO()
    with connect(box.ours, timeout=20) as connection:
        argv = ["printf", "%s\\0", *words]
        assert execute.run(connection, argv, stdin=None, stdout=out, stderr=io.BytesIO()) == 0
    assert out.getvalue().decode().split("\0")[:-1] == words


def test_files_are_copied_with_the_servers_own_sftp(box, mark, tmp_path):
    (tmp_path / "one").write_bytes(b"1\n")
    with connect(box.ours, timeout=20) as connection:
        copy(connection, [str(tmp_path / "one")], "box:one")
        copy(connection, ["box:one"], str(tmp_path / "again"))
        with connection.sftp():
            marked = [one for one in psutil.process_iter() if one.name() == "sftp-server" and is_marked(one, mark)]
    assert (tmp_path / "again").read_bytes() == (box.server.home / "one").read_bytes() == b"1\n"
    assert marked
    (box.server.home / "one").unlink()


def is_marked(process, mark):
    try:
        return process.environ().get(MARK) == mark
    except psutil.Error:
        return False


@pytest.fixture
def ssh(box, tmp_path):
    """The system's client with the config that cloudgpu writes."""
    address = Address("127.0.0.1", box.server.port, box.server.user)
    host = client_files.SshHost("box", box.ours.id, address)
    file = tmp_path / "ssh_config"
    client_files.write_config(file, [host], key_file=box.ours.key_file, known_hosts=box.ours.known_hosts)

    def run(*words, options=(), given=""):
        argv = [client_files.ssh_client(), "-F", str(file), *options, "box", *words]
        return subprocess.run(argv, input=given, capture_output=True, text=True, timeout=20, check=False)

    return run


@pytest.mark.parametrize("options", [[], ["-tt"]], ids=["pipes", "terminal"])
def test_a_login_shell_has_the_mark_as_well(ssh, mark, options):
    done = ssh(options=options, given=f'echo "[${MARK}]"; shopt -q login_shell && echo login\nexit 3\n')
    assert (done.returncode, f"[{mark}]" in done.stdout, "login" in done.stdout.split()) == (3, True, True), done


def test_the_system_s_client_runs_a_command_in_the_machines_environment(ssh, mark):
    done = ssh(f'echo "${MARK}" | tr a-z a-z; exit 4')
    assert (done.returncode, done.stdout.strip()) == (4, mark)


def test_a_login_with_the_users_own_key_has_no_mark(box):
    assert said(box.users, f'echo "[${MARK}]"') == (0, "[]")


@pytest.mark.soak
def test_who_is_let_in_later_gets_the_same_environment_and_goes_again(box, mark, tmp_path):
    guest = client_key(tmp_path / "guest")
    before = (box.server.home / ".ssh" / "authorized_keys").read_bytes()
    launched = replace(box.ours, id=made_id(before))
    with connect(box.ours, timeout=20) as plain:
        connection = replace(plain, target=launched)
        assert add_key(connection, parse_public_key(guest.public_line))
        assert said(replace(box.ours, key_file=guest.path), f'echo "${MARK}"') == (0, mark)
        assert remove_key(connection, parse_public_key(guest.public_line))
    assert (box.server.home / ".ssh" / "authorized_keys").read_bytes() == before


def made_id(keys):
    """Return the machine's id, as our line in authorized_keys has it."""
    return keys.split(b"cloudgpu:")[1].split()[0].decode()


def test_without_its_files_a_login_is_as_it_was_before(box, mark):
    login = box.server.home / ".cloudgpu" / "login"
    login.rename(login.with_name("away"))
    try:
        assert said(box.ours, f'echo "[${MARK}]"; exit 5') == (5, "[]")
    finally:
        login.with_name("away").rename(login)
    assert said(box.ours, f'echo "${MARK}"') == (0, mark)


@pytest.mark.soak
def test_what_a_login_left_behind_ends_with_the_machine_and_the_users_own_does_not(box):
    for target, name in ((box.ours, "ours"), (box.users, "users")):
        said(target, f"nohup sleep 1000 >/dev/null 2>&1 & echo $! >{box.server.home}/{name}")
    ours, users = (psutil.Process(int((box.server.home / name).read_text())) for name in ("ours", "users"))
    try:
        box.lab.provider.stop(box.id)
        wait_for(lambda: not ours.is_running() or ours.status() == psutil.STATUS_ZOMBIE)
        assert users.is_running()
        box.lab.provider.start(box.id)
    finally:
        users.kill()


@pytest.mark.soak
def test_what_still_runs_is_listed_with_its_age_and_without_the_agent_and_the_users_own(box):
    assert box.lab.provider.processes(box.id) == ()
    pids = []
    for target, seconds in ((box.ours, 1001), (box.users, 1002)):
        _, pid = said(target, f"nohup sleep {seconds} >/dev/null 2>&1 & echo $!")
        pids.append(psutil.Process(int(pid)))
    try:
        (found,) = box.lab.provider.processes(box.id)
        assert (found.pid, found.command) == (pids[0].pid, "sleep 1001")
        assert 0 <= found.seconds <= time.time() - pids[0].create_time() + 1
    finally:
        for process in pids:
            process.kill()
