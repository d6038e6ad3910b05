from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from cloudgpu.access.tunnel.background import REPORT_FD_VARIABLE, find, registered, running, spawn, stop
from cloudgpu.errors import InvalidRequest, Unreachable, WrongHostKey
from tests.access.sshserver import ROOT, wait_for

SERVES = """
import signal, sys, threading
from pathlib import Path
from cloudgpu.access.tunnel.background import registered
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
print("a message")
with registered(Path(sys.argv[1]), sys.argv[2], "name-" + sys.argv[2], 8901):
    told.wait()
"""
DEAF = SERVES.replace("told.set()", "None")
FAILS = """
from cloudgpu.access.tunnel.background import report
from cloudgpu.errors import WrongHostKey
report(WrongHostKey("Another key.", field="known_hosts", value="cg-1", next="Look."))
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    place = tmp_path / "tunnels"
    yield place
    for one in running(place):
        os.kill(one.pid, signal.SIGKILL)


def start(directory, machine="cg-1", script=SERVES, **more):
    return spawn([sys.executable, "-c", script, str(directory), machine], directory, machine, **more)


def test_a_tunnel_in_the_background_is_found_and_stopped(directory):
    own = start(directory)
    assert (own.id, own.name, own.port) == ("cg-1", "name-cg-1", 8901)
    assert running(directory) == [own]
    assert stop(directory, "cg-1") == own
    assert running(directory) == []
    assert not directory.exists()
    assert stop(directory, "cg-1") is None


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM], ids=["an older kernel", "a container's filter"])
def test_a_tunnel_is_stopped_also_where_the_kernel_gives_no_handle_of_it(directory, monkeypatch, refusal):
    def refuse(_pid, _flags=0):
        raise OSError(refusal, os.strerror(refusal))

    own = start(directory)
    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    assert stop(directory, "cg-1") == own
    assert running(directory) == []


@pytest.mark.soak
def test_it_has_its_own_session_and_outlives_the_one_who_started_it(directory):
    script = (
        "import sys, pathlib; from tests.access.tunnel.test_background import start; start(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", script, str(directory)], check=True, timeout=30)
    (own,) = running(directory)
    assert os.getsid(own.pid) == own.pid
    assert stop(directory, own.id) == own


def test_its_files_are_private_and_say_nothing_secret(directory):
    own = start(directory)
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert json.loads((directory / "cg-1.json").read_text()).keys() == {"id", "name", "port", "pid"}
    assert (directory / "cg-1.log").exists()
    assert stop(directory, own.id)


def test_a_killed_one_is_not_there_any_more(directory):
    own = start(directory)
    os.kill(own.pid, signal.SIGKILL)
    wait_for(lambda: running(directory) == [])
    assert not (directory / "cg-1.json").exists()


def test_a_process_that_only_has_the_number_is_left_alone(directory):
    directory.mkdir()
    with subprocess.Popen(["sleep", "60"]) as other:
        (directory / "cg-1.json").write_text(json.dumps({"id": "cg-1", "name": "x", "port": 1, "pid": other.pid}))
        assert stop(directory, "cg-1") is None
        assert other.poll() is None
        other.kill()


def test_one_that_does_not_listen_is_killed(directory):
    own = start(directory, script=DEAF)
    assert stop(directory, "cg-1", timeout=0.3) == own
    assert running(directory) == []


def test_a_second_one_for_the_same_machine_is_refused(directory):
    own = start(directory)
    with pytest.raises(InvalidRequest, match="running already"):
        start(directory)
    with pytest.raises(InvalidRequest, match="running already"), registered(directory, "cg-1", "x", 1):
        pass
    assert running(directory) == [own]


def test_several_machines_have_one_each(directory):
    started = [start(directory, machine) for machine in ("cg-2", "cg-1")]
    assert running(directory) == sorted(started, key=lambda one: one.name)
    assert stop(directory, "cg-1")
    assert [one.id for one in running(directory)] == ["cg-2"]


def test_the_reason_why_it_did_not_start_arrives_as_it_was_said(directory):
    with pytest.raises(WrongHostKey) as caught:
        start(directory, script=FAILS)
    assert caught.value.as_dict() == {
        "kind": "wrong_host_key",
        "field": "known_hosts",
        "value": "cg-1",
        "message": "Another key.",
        "next": "Look.",
    }


def test_an_error_of_a_class_of_ssh_arrives_as_the_nearest_of_ours(directory):
    script = FAILS.replace(
        "from cloudgpu.errors import WrongHostKey", "from cloudgpu.access.ssh.target import LoginRefused"
    )
    with pytest.raises(Unreachable, match="Another key") as caught:
        start(directory, script=script.replace("WrongHostKey(", "LoginRefused("))
    assert caught.value.exit_code == Unreachable.exit_code


def test_ctrl_c_while_it_starts_ends_it(directory, tmp_path):
    pid_file = tmp_path / "pid"
    script = f"""
import os, signal, time
with open({str(pid_file)!r}, "w") as file:
    file.write(str(os.getpid()))
time.sleep(0.5)  # the parent has its process by then, and waits for the report
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
"""
    with pytest.raises(KeyboardInterrupt):
        start(directory, script=script)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_one_that_dies_at_once_points_to_its_messages(directory):
    with pytest.raises(Unreachable, match="status 3") as caught:
        start(directory, script="import sys; print('why', file=sys.stderr); sys.exit(3)")
    assert (directory / "cg-1.log").read_text() == "why\n"
    assert str(directory / "cg-1.log") in caught.value.next


def test_one_that_never_says_anything_is_ended(directory):
    with pytest.raises(Unreachable, match=r"after 0\.5 seconds"):
        start(directory, script="import time; time.sleep(60)", timeout=0.5)
    assert find(directory, "cg-1") is None


def test_a_file_that_is_held_and_says_nothing_is_named(directory):
    with registered(directory, "cg-1", "x", 1):
        (directory / "cg-1.json").write_text("not json")
        with pytest.raises(InvalidRequest) as caught:
            running(directory)
    assert caught.value.value == str(directory / "cg-1.json")


def test_those_who_look_at_once_do_not_take_each_other_for_the_living(directory):
    directory.mkdir()
    own = {"id": "cg-1", "name": "x", "port": 1, "pid": os.getpid()}

    def look(_turn):
        (directory / "cg-1.json").write_text(json.dumps(own))
        return find(directory, "cg-1")

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(look, range(200))) == {None}


def test_without_one_who_waits_nothing_is_told(directory):
    assert REPORT_FD_VARIABLE not in os.environ
    with registered(directory, "cg-1", "x", 1):
        assert [one.pid for one in running(directory)] == [os.getpid()]
    assert running(directory) == []
