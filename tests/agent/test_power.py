"""The power of one's own GPUs, as stand-ins for nvidia-smi tell it: no machine of these tests has a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from cloudgpu.agent import own
from cloudgpu.agent.sampler import Sampler
from cloudgpu.core.activity.agent_status import parse_agent_status
from tests.agent.machine import MONO, NOW, wait_for


@pytest.fixture
def smi(monkeypatch, tmp_path):
    """Put a stand-in for nvidia-smi on the PATH that does what it is told."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def says(script):
        fresh = programs / "fresh"
        fresh.write_text(f"#!/bin/sh\n{script}\n")
        fresh.chmod(0o755)
        fresh.replace(programs / "nvidia-smi")

    return says


def step(energy, now, *, uses_gpus=True, marks=()):
    """Make a step, wait until its question is answered, and return the joules, "none" where no key is there."""
    found = energy.step(now, uses_gpus=uses_gpus, marks=list(marks)).get("power", "none")
    wait_for(lambda: energy.smi is None or energy.smi.poll() is not None)
    return found


def steps(energy, *times, uses=True):
    return [step(energy, now, uses_gpus=uses) for now in times]


def test_each_answer_stands_for_the_time_since_the_one_before(smi):
    smi("echo 300.0")
    energy = own.Energy()
    assert steps(energy, 100, 105, 110, 115) == ["none", "none", 3000, 3000]
    smi("echo 200.5")
    assert steps(energy, 120, 130, 140) == [6000, 6000, 6000 + 200.5 * 20]  # at 115 it was asked before


def test_all_gpus_of_the_computer_are_added(smi):
    smi("printf '250.25\\n49.75\\n'")
    assert steps(own.Energy(), 0, 10, 20) == ["none", "none", 300 * 20]


def test_gpus_at_work_are_counted_beside_their_power(smi):
    smi("printf '250, 97\\n50, 2\\n50, 3\\n'")
    energy, found = own.Energy(), []
    for now in (0, 10, 20, 30, 65, 70, 150):
        uses_gpus = now not in (65, 70)
        found.append(energy.step(now, uses_gpus=uses_gpus, marks=[]).get("gpus", "none"))
        wait_for(lambda: energy.smi is None or energy.smi.poll() is not None)
        if now == 30:
            smi("printf '250, [N/A]\\n50, 2\\n'")
    assert found == ["none", "none", 0.0, 20.0, 90.0, 90.0, 90.0]
    assert energy.step(185, uses_gpus=True, marks=[])["gpus"] is None  # it tells no more


@pytest.mark.parametrize(("its", "watts"), [("GPU-2,GPU-6", 100), ("0,1", 800), ("", 800)])
def test_the_power_of_a_machine_with_some_of_a_computers_gpus_is_theirs(smi, monkeypatch, its, watts):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", its)
    smi('case "$*" in *" -i GPU-2,GPU-6") echo 100;; *-i*) exit 6;; *) echo 800;; esac')
    assert steps(own.Energy(), 0, 10, 20) == ["none", "none", watts * 20]


def test_what_a_gpu_draws_while_the_machine_uses_none_is_not_its_work(smi):
    smi("echo 100")
    energy = own.Energy()
    assert steps(energy, 0, 5, 15) == ["none", "none", 1500]
    assert steps(energy, 20, 500, 1000, uses=False) == [1500, 1500, 1500]
    assert steps(energy, 2000, 2010, 2020) == [1500, 1500 + 1000, 1500 + 2000]


def test_a_machine_that_uses_no_gpu_is_asked_nothing(smi, tmp_path):
    smi(f"touch {tmp_path}/asked; echo 100")
    assert steps(own.Energy(), 0, 10, 20, 30, uses=False) == ["none"] * 4
    assert not (tmp_path / "asked").exists()


def test_who_looks_once_asks_nothing(smi):
    """`agent status` is a process of its own."""
    smi("echo 100")
    energy = own.Energy()
    assert step(energy, 0) == "none"
    assert energy.smi is None


def test_it_is_asked_every_ten_seconds_and_not_at_each_look(smi, tmp_path):
    smi(f"echo x >> {tmp_path}/asked; echo 100")
    steps(own.Energy(), *range(0, 46, 5))
    assert (tmp_path / "asked").read_text() == "x\n" * 5  # at 5, 15, 25, 35 and 45


@pytest.mark.parametrize(
    "script",
    [
        "echo '[N/A]'",
        "printf '250\\n[N/A]\\n'",
        "exit 9",
        "echo 250; exit 1",
        "true",
        "echo nan",
        "echo inf",
        "echo -5",
        "echo 1e9",
        "echo '250 3'",
    ],
)
def test_what_tells_no_power_is_no_key_and_not_zero(smi, script):
    smi(script)
    assert steps(own.Energy(), *range(0, 100, 10)) == ["none"] * 10


def test_a_computer_without_nvidia_smi_has_no_such_key(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))  # without `timeout`, too: a Mac has none
    assert steps(own.Energy(), *range(0, 100, 10)) == ["none"] * 10


def test_energy_that_was_not_told_is_missing_and_not_less(smi):
    """From half a minute without an answer on, and for the sample in which it is told again."""
    smi("echo 100")
    energy = own.Energy()
    assert steps(energy, 0, 10, 20) == ["none", "none", 2000]
    smi("exit 9")
    assert steps(energy, 30, 40, 50, 60, 70) == [3000, 3000, 3000, 3000, None]
    smi("echo 100")
    assert steps(energy, *range(80, 170, 10)) == [None] * 9
    assert steps(energy, 170) == [3000 + 100 * 80]  # it is told since 90


def test_one_that_hangs_is_waited_for_by_nobody_and_started_once(smi, tmp_path):
    smi(f"echo x >> {tmp_path}/asked; exec sleep 60")
    energy = own.Energy()
    began = time.monotonic()
    for now in range(0, 200, 5):
        assert energy.step(now, uses_gpus=True, marks=[]) == {}
    assert time.monotonic() - began < 30
    wait_for((tmp_path / "asked").exists)
    assert (tmp_path / "asked").read_text() == "x\n"
    energy.smi.terminate()  # `timeout` passes it on
    energy.smi.wait()
    energy.output.close()
    assert own.QUERY[:4] == ["timeout", "-s", "KILL", "20"]


def test_what_it_prints_without_end_blocks_nobody(smi):
    smi("yes 100 | head -c 5000000")
    assert steps(own.Energy(), 0, 10, 20) == ["none"] * 3


def test_asking_is_no_work_of_the_machine(smi, tmp_path):
    """A question carries none of the marks by which the machine's processes are known."""
    smi(f"env > {tmp_path}/environ; echo 100")
    marks = [f"HOME={os.environ['HOME']}", "SSH_CONNECTION="]
    energy = own.Energy()
    for now in (0, 10):
        step(energy, now, marks=marks)
    wait_for(lambda: energy.smi.poll() is not None)
    environ = (tmp_path / "environ").read_text()
    assert "PATH=" in environ
    assert not any(mark in environ for mark in marks)
    energy.output.close()


# -- with the agent that carries it


@pytest.fixture
def card(machine, monkeypatch, tmp_path):
    """A file that stands for /dev/nvidia0, and processes of the machine, or of others, that have it open."""
    device, started = tmp_path / "nvidia0", []
    device.touch()
    monkeypatch.setattr(own, "GPU_DEVICES", (str(device),))
    monkeypatch.setattr(own, "ENERGY", own.Energy())
    monkeypatch.setattr(own, "QUERY_EVERY", 0.0)

    def opened(home=machine.home, program=sys.executable, code="open(0); input()"):
        child = subprocess.Popen(
            [program, "-c", code], env={**machine.environ, "HOME": str(home)}, stdin=device.open("r+b"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        started.append(child)
        return child

    yield opened
    for child in started:
        child.kill()
        child.wait()


def looks(made, *seconds):
    found = []
    for second in seconds:
        wait_for(lambda: own.ENERGY.smi is None or own.ENERGY.smi.poll() is not None)
        found.append({**made.take_sample(NOW + second, MONO + second)[-1]})  # it is the same sample for a minute
    return found


WAIT = "import time; time.sleep(60)"


def test_a_sample_has_the_mean_power_from_the_first_whole_minute_on(machine, card, smi):
    smi("echo 250.0")
    child = card(code=WAIT)
    wait_for(lambda: own.processes([f"HOME={machine.home}"]).get(child.pid) and own._uses_gpu(child.pid))
    made = Sampler(machine.dir)
    found = looks(made, 0, 5, 10, 60, 65, 120)
    assert "power" not in found[0]
    assert found[3]["power"] is None
    spent = own.ENERGY.joules
    assert 0 < found[-1]["power"] * 60 <= spent
    child.kill()
    child.wait()
    after = looks(made, 125, 180, 240)
    assert after[-1]["power"] == 0.0
    said = {"samples": [{**one, "t": one["t"] - MONO + NOW} for one in found + after], "now": NOW + 300, "up_since": 0}
    kept = parse_agent_status(json.dumps(said).encode())
    assert not kept.fault
    assert [one.get("power", "none") for one in kept.samples if one["s"] >= 60] == [
        None,
        found[-1]["power"],
        0.0,
        0.0,
    ]


def test_a_minute_that_the_agents_end_cut_short_is_not_measured(machine, card, smi):
    """Its mean would be a part of what was drawn, and count as that."""
    smi("echo 250.0, 90")
    child = card(code=WAIT)
    wait_for(lambda: own.processes([f"HOME={machine.home}"]).get(child.pid) and own._uses_gpu(child.pid))
    found = [{**one, "t": one["t"] - MONO + NOW} for one in looks(Sampler(machine.dir), 0, 10, 60, 120, 150)]
    *_, whole, cut = parse_agent_status(
        json.dumps({"samples": found, "now": NOW + 300, "up_since": 0}).encode()
    ).samples
    assert (whole["s"], whole["power"] is None, cut["s"]) == (60, False, 30)
    assert (cut["power"], cut["gpus"]) == (None, None)


def test_a_computer_that_slept_has_not_measured_meanwhile(machine, card, smi, monkeypatch):
    smi("echo 250.0")
    child = card(code=WAIT)
    wait_for(lambda: own.processes([f"HOME={machine.home}"]).get(child.pid) and own._uses_gpu(child.pid))
    found = []
    for since_boot in (100, 110, 120, 30_000, 30_010):
        monkeypatch.setattr(time, "clock_gettime", lambda _clock, now=since_boot: now)
        found.append(own.read_own_meters([f"HOME={machine.home}"])[1].get("power"))
        wait_for(lambda: own.ENERGY.smi is None or own.ENERGY.smi.poll() is not None)
    assert found == [None, None, 5000.0, None, None]


def test_without_a_gpu_a_sample_has_no_power(machine, card, smi):
    smi("echo 250.0")
    card(home="/another", code=WAIT)
    found = looks(Sampler(machine.dir), 0, 5, 60, 120)
    assert all("power" not in one for one in found)


def test_who_only_looks_at_gpus_uses_none(machine, card, smi, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.symlink_to(sys.executable)
    child = card(program=str(program), code=WAIT)
    wait_for(lambda: child.pid in own.processes([f"HOME={machine.home}"]))
    wait_for(lambda: own._read(child.pid, "comm") == b"nvidia-smi\n")
    assert own._uses_gpu(child.pid) is False
