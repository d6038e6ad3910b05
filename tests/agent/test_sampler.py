"""Samples of real files, terminals, processes and of stand-ins for nvidia-smi, which no machine of these tests has."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cloudgpu.agent import meters, own, sampler
from cloudgpu.agent.agent import Agent, status, write_terminals
from cloudgpu.agent.sampler import Sampler
from tests.agent.driver import utilization
from tests.agent.machine import MONO, NOW, wait_for


def _looker(machine, **settings):
    machine.settings(**settings)
    return Sampler(machine.dir)


def _look(made, second=0.0):
    """Look at NOW and so many seconds, and return the sample of now."""
    return made.take_sample(NOW + second, MONO + second)[-1]


@pytest.mark.parametrize("name", ["keeper.lock", "supervisor.lock"])
def test_a_job_runs_while_something_that_watches_over_it_lives(machine, name):
    path = machine.dir / "jobs" / "job-0123456789" / "2" / name
    path.parent.mkdir(parents=True)
    path.touch()
    made = _looker(machine)
    assert "job" not in _look(made)
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert _look(made, 5.0)["job"] == ["job-0123456789"]
        assert _look(made, 10.0)["job"] == ["job-0123456789"]
    _look(made, 90.0)  # ends the sample in which it ran
    assert "job" not in _look(made, 100.0)


@pytest.mark.parametrize(("status", "body", "fault"), [
    (200, b"[]", ""), (500, b"[]", "JupyterLab: 500"), (403, b"{}", "JupyterLab: 403"), (302, b"[]", "JupyterLab: 302"),
])  # fmt: skip
def test_an_answer_with_an_error_tells_nothing_of_kernels_whatever_its_body_is(machine, status, body, fault):
    """JupyterLab's own errors are objects; a program in front of it, or in its place, may answer anything."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = (self.path, self.headers["Authorization"])
            self.send_response(status if asked == ("/api/kernels?no_track_activity=1", "token t0") else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Say nothing."""

    directory = machine.dir / "jupyter"
    directory.mkdir()
    (directory / "token").write_text("t0")
    with HTTPServer(("127.0.0.1", 0), Answers) as server, (directory / "alive").open("w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)  # as JupyterLab holds it while it lives
        (directory / "server.json").write_text(json.dumps({"port": server.server_port}))
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        sample = _look(_looker(machine))
        thread.join()
        (directory / "server.json").unlink()  # this is no process of the machine's to end
    assert (sample["fault"], sample["jup"], sample["busy"]) == (fault, None, [])


@pytest.fixture
def shell(machine):
    """A process of the machine in a real terminal: (its leader's descriptor, the terminal's path)."""
    started = []

    def start(*command):
        leader, follower = os.openpty()
        path = os.ttyname(follower)
        child = subprocess.Popen(
            command,
            **dict.fromkeys(("stdin", "stdout", "stderr"), follower),
            env=machine.environ,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(follower)
        started.append((child, leader))
        wait_for(lambda: path in _paths(machine))
        return leader, Path(path)

    yield start
    for child, leader in started:
        child.kill()
        child.wait()
        os.close(leader)


def _paths(machine):
    return own.read_own_meters([f"HOME={machine.home}"])[2]


def _drain(leader):
    os.set_blocking(leader, False)
    with contextlib.suppress(BlockingIOError):
        while os.read(leader, 65_536):
            pass


# -- terminals


def test_a_terminal_of_the_machine_is_found_and_read_afresh(machine, shell):
    leader, path = shell("cat")
    made = Sampler(machine.dir)
    now, mono = time.time(), MONO
    os.utime(path, (now - 500, now - 400))
    first = made.take_sample(now, mono)[-1]
    assert (round(first["in"]), round(first["out"])) == (500, 400)
    os.write(leader, b"typed\n")
    wait_for(lambda: path.stat().st_atime > now - 100)
    second = made.take_sample(now + 5, mono + 5)[-1]
    assert second["in"] == 0.0


def test_a_terminal_that_prints_and_in_which_nobody_types_shows_output_alone(machine, shell):
    """What a `top` that was left open does."""
    leader, path = shell("sh", "-c", "while :; do echo tick; sleep 0.05; done")
    now = time.time()
    os.utime(path, (now - 9000, now - 9000))
    made = Sampler(machine.dir)
    wait_for(lambda: (_drain(leader), path.stat().st_mtime > now - 100)[1])
    one = made.take_sample(time.time(), MONO)[-1]
    assert one["in"] == pytest.approx(9000, abs=60)
    assert one["out"] < 60


def test_our_own_warning_in_a_terminal_is_no_output(machine, shell):
    _, path = shell("cat")
    now = time.time()
    os.utime(path, (now - 9000, now - 9000))
    made = Sampler(machine.dir)
    made.state["told"] = write_terminals("This machine ends in 10 min", [str(path)])
    assert path.stat().st_mtime > now - 100
    assert made.take_sample(now, MONO)[-1]["out"] is None


def test_a_terminal_that_was_opened_and_closed_is_no_fault(machine, shell):
    made = Sampler(machine.dir)
    made.terminals = ["/dev/pts/none-such"]
    one = {}
    made.note_terminals(one, NOW, MONO)
    assert one == {"in": None, "out": None}


def test_a_look_over_ssh_sees_what_was_typed_after_the_last_sample(machine, shell):
    leader, path = shell("cat")
    made = Agent(machine.dir, sampler.MINUTE)
    made.step(time.time(), time.monotonic())
    os.utime(path, (time.time() - 9000, time.time() - 9000))
    assert status(machine.dir, time.time())["samples"][-1]["in"] > 8000
    os.write(leader, b"typed\n")
    wait_for(lambda: path.stat().st_atime > time.time() - 100)
    last = status(machine.dir, time.time())["samples"][-1]
    assert last["in"] < 60
    assert last["fault"], "a glance at the terminals is no look at the meters"


# -- processes of a machine that shares its computer


@pytest.fixture
def process(machine):
    started = []

    def start(code, **environ):
        command = [sys.executable, "-c", code]
        child = subprocess.Popen(command, env={**machine.environ, **environ}, stdin=subprocess.PIPE)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


@pytest.mark.soak
def test_the_work_of_its_own_processes_is_the_machines(machine, process):
    process("while True: pass")
    made = Sampler(machine.dir)
    _look(made)
    wait_for(lambda: own.read_own_meters([f"HOME={machine.home}"])[1]["cpu"] - made.minute_start[1]["cpu"] > 0.2)
    assert _look(made, 1.0)["cpu"] * sampler.MINUTE >= 0.2


def test_the_work_of_others_is_not(machine, process):
    child = process("while True: pass", HOME="/another")
    assert child.pid not in own.processes([f"HOME={machine.home}"])
    assert own.read_own_meters(["no-such-words"])[1]["cpu"] == 0


def test_a_child_that_cleaned_its_environment_still_counts(machine, process):
    code = "import subprocess; subprocess.run(['env', '-i', 'sleep', '60'])"
    parent = process(code)
    wait_for(lambda: len(own.processes([f"HOME={machine.home}"])) == 2)
    assert parent.pid in own.processes([f"HOME={machine.home}"])


def test_what_it_saves_shows_as_a_download_would(machine, process):
    process(f"f = open('{machine.home}/saved', 'wb'); f.write(bytes(5_000_000)); f.flush(); input()")
    assert wait_for(lambda: own.read_own_meters([f"HOME={machine.home}"])[1]["net"] >= 5_000_000)


def test_a_gpu_that_it_does_not_use_is_not_asked_about(machine, process):
    process("input()")
    wait_for(lambda: own.processes([f"HOME={machine.home}"]))
    assert own.read_own_meters([f"HOME={machine.home}"])[3] is False
    assert "gpu" not in _look(_looker(machine, gpus=1))


def test_it_is_up_since_its_oldest_process_began(machine, process):
    process("input()")
    wait_for(lambda: own.processes([f"HOME={machine.home}"]))
    up = own.read_own_meters([f"HOME={machine.home}"])[0]
    assert abs(up - time.clock_gettime(time.CLOCK_BOOTTIME)) < 30


def test_without_proc_nothing_is_known(monkeypatch, tmp_path):
    """macOS."""
    monkeypatch.setattr(own, "PROC", tmp_path / "none")
    assert own.read_own_meters(["x"]) == (None, {"cpu": None, "net": None, "disk": None}, [], True)


# -- the meters of a whole machine


@pytest.fixture
def computer(tmp_path, monkeypatch):
    """Files as the kernel writes them; `counters` sets them."""
    proc, net, block = tmp_path / "proc", tmp_path / "net", tmp_path / "block"
    for path in (proc, net / "eth0" / "statistics", net / "eth0" / "device", block / "nvme0n1" / "device"):
        path.mkdir(parents=True)
    (block / "loop0").mkdir()
    monkeypatch.setattr(meters, "PROC", proc)
    monkeypatch.setattr(meters, "NETWORK_DEVICES", net)
    monkeypatch.setattr(meters, "BLOCK_DEVICES", block)
    monkeypatch.setattr(meters, "TERMINALS", tmp_path / "pts")

    def counters(cores=0.0, received=0, sectors=0):
        tick = os.sysconf("SC_CLK_TCK")
        (proc / "stat").write_text(f"cpu {int(cores * tick)} 0 0 99999 777 0 0 0 5 0\ncpu0 1 2 3\n")
        (net / "eth0" / "statistics" / "rx_bytes").write_text(f"{received}\n")
        (net / "eth0" / "statistics" / "tx_bytes").write_text("7\n")
        line = "259 {} {} 5 0 {} 0 5 0 {} 0 0 0 0\n"
        partition = line.format(1, "nvme0n1p1", sectors, sectors)
        disk = line.format(0, "nvme0n1", sectors, sectors)
        (proc / "diskstats").write_text(disk + partition + line.format(9, "loop0", 99, 99))

    counters()
    return counters


def test_the_meters_are_means_of_a_minute(machine, computer):
    made = _looker(machine, own=None)
    _look(made)
    computer(cores=30.0, received=6_000_000, sectors=60_000)
    one = _look(made, 60)
    assert (one["cpu"], one["net"], one["disk"]) == (0.5, 100_000, 1_024_000)
    assert one["s"] == 60
    assert "gpu" not in one


def test_what_is_half_a_minute_old_does_not_look_like_more(machine, computer):
    made = _looker(machine, own=None)
    _look(made)
    computer(cores=3.0)
    assert _look(made, 1)["cpu"] == 0.05


@pytest.mark.parametrize("gone", ["proc/stat", "proc/diskstats", "net/eth0"])
def test_a_meter_that_cannot_be_read_is_none_and_not_zero(machine, computer, tmp_path, gone):
    path = tmp_path / gone
    path.rename(tmp_path / "gone")
    one = _look(_looker(machine, own=None))
    assert one["cpu"] is None


def test_after_a_pause_of_hours_a_sample_does_not_claim_them(machine, computer):
    made = _looker(machine, own=None)
    _look(made)
    assert _look(made, 9 * 3600)["s"] == 120


# -- GPU


@pytest.fixture
def smi(machine, monkeypatch, tmp_path):
    """A stand-in for nvidia-smi that prints and ends as it is told."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(sampler, "read_meters", lambda _: (0.0, {}, [], True))

    def says(script):
        (programs / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (programs / "nvidia-smi").chmod(0o755)
        made = _looker(machine, gpus=1)
        _look(made)
        return made

    return says


def test_a_machine_with_some_of_a_computers_gpus_asks_for_those_alone(smi, machine, tmp_path):
    made = smi(f"echo $* >{tmp_path}/words")
    _answered(made)
    made.settings["smi"] = ["-i", "GPU-2,GPU-6"]
    _look(made, 10)
    _answered(made)
    words = (tmp_path / "words").read_text().split()
    assert words == [*sampler.SMI_COMMAND[5:], "-i", "GPU-2,GPU-6"]


def _answered(made):
    wait_for(lambda: made.smi_process.poll() is not None)


def test_the_busiest_gpu_and_the_highest_reading_of_the_minute_count(smi, tmp_path):
    made = smi(f"cat {tmp_path}/told")
    readings = []
    for second, told in ((10, ((0, 0), (7, 2))), (20, ((41, 5), (3, 0))), (30, ((0, 0), (0, 0))), (40, ())):
        _answered(made)
        (tmp_path / "told").write_text(utilization(*told))
        readings.append(_look(made, second)["gpu"])
    assert readings == [None, 7, 41, 41]


def _told(smi, tmp_path, text):
    """Return the percentage that is read from what nvidia-smi prints."""
    (tmp_path / "told").write_text(text)
    made = smi(f"cat {tmp_path}/told")
    _answered(made)
    return _look(made, 10)["gpu"]


def test_a_burst_between_two_looks_shows_in_the_mean_of_the_last_seconds(smi, tmp_path):
    """A second of work each 20, on a real H200: at every look for 100 seconds 0%, and a mean of 6%."""
    assert _told(smi, tmp_path, utilization((0, 0), (0, 6))) == 6


def test_what_a_driver_shows_of_being_loaded_is_no_use(smi, tmp_path):
    assert _told(smi, tmp_path, utilization((0, 88), seconds="0.83 sec")) == 0


@pytest.mark.parametrize("text", [utilization((12, "N/A"), seconds="Not Found"), utilization((12, 3), name="Gpu")])
def test_a_driver_that_keeps_no_samples_or_is_old_tells_of_this_moment(smi, tmp_path, text):
    assert _told(smi, tmp_path, text) == 12


def test_a_gpu_of_several_that_cannot_be_read_is_not_known(smi, tmp_path):
    """One that is split by MIG says N/A."""
    assert _told(smi, tmp_path, utilization((5, 5), ("N/A", "N/A"))) is None


@pytest.mark.parametrize("script", ["exit 9", "echo 'No devices were found'; exit 6", "true", "echo 5", "cat; exit 1"])
def test_a_gpu_that_cannot_be_read_is_none_and_not_zero(smi, script, tmp_path):
    (tmp_path / "told").write_text(utilization((5, 5)))
    made = smi(script.replace("cat", f"cat {tmp_path}/told"))
    _answered(made)
    assert _look(made, 30)["gpu"] is None


def test_a_missing_nvidia_smi_where_a_gpu_was_bought_is_none(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(sampler, "SMI_COMMAND", [str(tmp_path / "no-such-program")])
    monkeypatch.setattr(sampler, "read_meters", lambda _: (0.0, {}, [], True))
    made = Agent(machine.settings(gpus=1).dir, MONO)
    made.settings = {**made.settings, "gpus": 1}
    _, judged = made.judge_activity(made.read_policy()[1]._replace(uptime=0.0), NOW, MONO)
    assert judged.activity == "UNKNOWN"


def test_one_that_hangs_is_waited_for_by_nobody_and_started_once(smi, tmp_path):
    made = smi(f"echo x >> {tmp_path}/started; exec sleep 60")
    first = made.smi_process
    began = time.monotonic()
    for second in (30, 60, 90):
        assert _look(made, second)["gpu"] is None
    assert time.monotonic() - began < 30
    assert made.smi_process is first
    wait_for((tmp_path / "started").exists)
    assert (tmp_path / "started").read_text() == "x\n"
    first.terminate()  # `timeout` passes it on
    first.wait()


def test_one_that_hangs_is_killed_and_asked_again(smi, monkeypatch):
    assert sampler.SMI_COMMAND[:4] == ["timeout", "-s", "KILL", "20"]
    monkeypatch.setattr(sampler, "SMI_COMMAND", [*sampler.SMI_COMMAND[:3], "0.1", *sampler.SMI_COMMAND[4:]])
    made = smi("exec sleep 60")
    first = made.smi_process
    _answered(made)
    assert _look(made, 30)["gpu"] is None
    assert made.smi_process is not first
    _answered(made)


# -- what a stop erases


def test_a_scratch_disk_with_files_is_named_with_its_size(computer, tmp_path):
    whole = tmp_path / "devices" / "nvme1n1"
    (whole / "device").mkdir(parents=True)
    (whole / "device" / "model").write_text("Amazon EC2 NVMe Instance Storage   \n")
    (whole / "nvme1n1p1").mkdir()
    (tmp_path / "block" / "nvme1n1p1").symlink_to(whole / "nvme1n1p1")
    (tmp_path / "block" / "dm-0" / "slaves").mkdir(parents=True)
    (tmp_path / "block" / "dm-0" / "slaves" / "nvme1n1").symlink_to(whole)
    (tmp_path / "block" / "nvme0n1" / "device" / "model").write_text("Amazon Elastic Block Store\n")
    kept, empty, mapped = (tmp_path / name for name in ("kept", "empty", "mapped"))
    for path in (kept, empty, mapped):
        path.mkdir()
    (empty / "lost+found").mkdir()
    (mapped / "checkpoint").write_text("weights")
    lines = [("nvme0n1", kept), ("nvme1n1p1", empty), ("dm-0", mapped)]
    mounts = "".join(f"/dev/{name} {path} ext4 rw 0 0\n" for name, path in lines)
    (tmp_path / "proc" / "mounts").write_text(f"proc /proc proc rw 0 0\n{mounts}")
    (kept / "file").write_text("on a disk that stays")
    ((path, used),) = meters.scratch_disks()
    assert (path, used > 0) == (str(mapped), True)


# -- a day of samples


def test_samples_survive_the_agent_and_are_at_most_a_day(machine, monkeypatch):
    monkeypatch.setattr(sampler, "MAX_SAMPLES", 5)
    made = Sampler(machine.dir)
    for minute in range(10):
        _look(made, 60 * minute)
    assert len(made.samples) == 5
    following = Sampler(machine.dir)
    assert [one["t"] for one in following.take_sample(NOW + 570, MONO + 570)[:-1]] == [
        MONO + 60 * minute for minute in (5, 6, 7, 8, 9)
    ]


def test_a_jump_of_the_clock_moves_no_sample(machine):
    made = Sampler(machine.dir)
    for minute in range(5):
        made.take_sample(NOW + 60 * minute + (3600 if minute > 2 else 0), MONO + 60 * minute)
    following = Sampler(machine.dir)
    ages = [MONO + 300 - one["t"] for one in following.take_sample(NOW + 3600 + 300, MONO + 300)]
    assert ages == [240, 180, 120, 60, 0]


def test_samples_of_an_earlier_boot_keep_their_age_and_those_of_the_future_go(machine):
    lines = [["another boot", NOW - 90, {"t": 5.0, "s": 60}], ["another boot", NOW + 90, {"t": 9.0, "s": 60}]]
    (machine.dir / "samples").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '["torn')
    made = Sampler(machine.dir)
    assert [one["t"] for one in made.load_samples(NOW, MONO)] == [MONO - 90]


@pytest.mark.soak
def test_the_file_of_samples_is_bounded(machine, monkeypatch):
    monkeypatch.setattr("cloudgpu.agent.files.LOG_SIZE", 2000)
    made = Sampler(machine.dir)
    for minute in range(60):
        _look(made, 60 * minute)
    sizes = [path.stat().st_size for path in machine.dir.glob("samples*")]
    assert len(sizes) == 2
    assert max(sizes) < 2300
