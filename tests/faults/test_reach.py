"""A wrong host key, a frozen machine, one that dies while it starts, a port that is taken."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time

import psutil
import pytest

from cloudgpu.access.ssh.client_files import new_host_key
from tests.cli.program import Done
from tests.faults.said import check_document, check_said
from tests.soak.crash import processes_of

SOON_S = 50.0  # alone it takes ten: a bound against waiting without an end, for a machine that is busy


@pytest.fixture
def fox(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "amber-fox").code == 0
    return cloudgpu


def directory(program):
    (root,) = (program.home / "providers" / "local" / "local").glob("i-*")
    return root


def process_number(program) -> int:
    return int((directory(program) / "alive").read_text())


def ways_in(tmp_path):
    file = tmp_path / "sent"
    file.write_text("x")
    return {"exec": ("exec", "amber-fox", "--", "true"), "cp": ("cp", str(file), "amber-fox:"), "tunnel": ("tunnel",)}


def test_a_wrong_host_key_is_refused_at_once_by_every_way_in(fox, tmp_path):
    known = fox.home / "known_hosts"
    known.write_text(f"{known.read_text().split()[0]} {new_host_key().public_line}\n")
    for verb, words in ways_in(tmp_path).items():
        sentence = check_said(fox(*words), 255 if verb == "exec" else 10)
        assert "another host key" in sentence, verb
    assert check_document(fox("tunnel", "-o", "json"), 10)["kind"] == "wrong_host_key"
    assert not (directory(fox) / "home" / "sent").exists()


@pytest.mark.soak
def test_a_wrong_host_key_is_not_tried_again(fox):
    """What goes in between counts who comes: one connection, and no second."""
    known, row = fox.home / "known_hosts", fox.machines()[0]
    known.write_text(f"{known.read_text().split()[0]} {new_host_key().public_line}\n")
    os.kill(process_number(fox), signal.SIGSTOP)  # whoever comes waits in the queue of the real port
    exec_ = fox.start("exec", "amber-fox", "--", "true")
    waiting = []
    try:
        deadline = time.monotonic() + SOON_S
        while not waiting and time.monotonic() < deadline:
            waiting = [one for one in psutil.Process(exec_.pid).net_connections() if one.raddr]
        os.kill(process_number(fox), signal.SIGCONT)
        ports = {one.laddr.port for one in waiting}
        while exec_.poll() is None:
            with contextlib.suppress(psutil.Error):
                ports |= {one.laddr.port for one in psutil.Process(exec_.pid).net_connections() if one.raddr}
        assert exec_.returncode == 255
        assert len(ports) == 1, row
    finally:
        exec_.kill()
        exec_.communicate()


@pytest.mark.soak
def test_a_frozen_machine_is_said_within_seconds_and_can_be_stopped(fox, tmp_path):
    os.kill(process_number(fox), signal.SIGSTOP)
    begun, asked = time.monotonic(), {verb: fox.start(*words) for verb, words in ways_in(tmp_path).items()}
    for verb, process in asked.items():
        out, err = process.communicate(timeout=60)
        done = Done(process.returncode, out.decode(), err.decode())
        assert "does not answer" in check_said(done, 255 if verb == "exec" else 10)
    assert time.monotonic() - begun < SOON_S
    assert fox("show", "amber-fox", "--refresh").code == 0
    stopped = fox("stop", "amber-fox", "--yes", "-o", "json")
    assert (stopped.code, stopped.json["billed"]) == (0, False), stopped.err
    assert processes_of(fox.home) == []


@pytest.mark.soak  # many seconds
def test_a_frozen_machine_can_be_ended(fox):
    os.kill(process_number(fox), signal.SIGSTOP)
    assert fox("down", "--yes").code == 0
    assert processes_of(fox.home) == []


def test_a_machine_that_was_killed_is_said_to_have_died(fox):
    os.kill(process_number(fox), signal.SIGKILL)
    assert "died" in check_said(fox("exec", "amber-fox", "--", "true"), 255)
    assert fox.machines()[0]["billed"] is False


@pytest.mark.soak
@pytest.mark.parametrize(
    ("number", "why"), [(signal.SIGKILL, "died while starting"), (signal.SIGSTOP, "did not answer in time")]
)
def test_a_machine_that_dies_or_hangs_while_it_starts_is_removed_and_said(cloudgpu, number, why):
    cloudgpu.config('[accounts.local]\nprovider = "local"\nmachine_start_timeout = "2s"\n')
    process = cloudgpu.start("up", "--yes", "-o", "json")
    place = cloudgpu.home / "providers" / "local" / "local"
    while process.poll() is None:
        for alive in place.glob("i-*/alive"):
            hit(alive, number)
        time.sleep(0.005)
    out, err = process.communicate()
    error = check_document(Done(process.returncode, out.decode(), err.decode()), 10)
    assert why in error["message"]
    assert "nothing is left running" in error["message"]
    assert processes_of(cloudgpu.home) == []
    assert cloudgpu.machines() == []


def hit(alive, number) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(alive.read_text()), number)


@pytest.mark.soak
def test_a_taken_port_is_passed_over_by_the_tunnel(fox):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = fox("tunnel", "--background", "--port", str(port), "-o", "json", timeout=90)
        assert done.code == 0, done.err
        assert done.json["port"] != port
    assert fox("tunnel", "--stop").code == 0


@pytest.mark.soak
def test_a_taken_port_of_a_machine_moves_it_and_it_is_still_found(fox):
    before = fox.machines()[0]["address"]["port"]
    assert fox("stop", "--yes").code == 0
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", before))
        taken.listen()
        started = fox("start", "--yes", "-o", "json")
        assert started.code == 0, started.err
        assert started.json["address"]["port"] != before
        assert fox("exec", "amber-fox", "--", "true").code == 0


@pytest.mark.soak
def test_five_ups_at_once_make_one_machine(cloudgpu):
    all_ = [cloudgpu.start("up", "--yes", "--no-wait", "--key", "five", "-o", "json") for _ in range(5)]
    said = [process.communicate(timeout=100) for process in all_]
    assert [process.returncode for process in all_] == [0] * 5, said
    assert len(cloudgpu.machines()) == 1
    assert directory(cloudgpu)


def test_ups_at_once_without_a_key_make_one_machine(cloudgpu):
    both = [cloudgpu.start("up", "--yes", "--no-wait", stdin=subprocess.DEVNULL) for _ in range(2)]
    said = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert len(cloudgpu.machines()) == 1
    assert directory(cloudgpu)
