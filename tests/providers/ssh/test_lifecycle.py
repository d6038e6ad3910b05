"""What happens on the user's machine: deaths, reboots, leases, full stops; what is the user's stays as it is."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import psutil
import pytest

from cloudgpu.agent.own import processes
from cloudgpu.agent.program import source
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.launch import BootPart
from cloudgpu.core.values.times import from_epoch
from cloudgpu.errors import CloudgpuError, InstanceNotFound, NoCapacity, ProviderUnavailable, WrongHostKey
from cloudgpu.providers.ssh.provider import make
from tests.access.sshserver import wait_for
from tests.providers.ssh.homes import everything, furnish
from tests.providers.ssh.hosts import Lab, now

MARKED = "CLOUDGPU_MACHINE"


@pytest.fixture
def host(lab):
    return lab.hosts[0]


def agent_of(host):
    return psutil.Process(int((host.place / "agent.alive").read_text()))


def by_the_user(host, *words, **environ):
    """Start a process there as the user does, beside cloudgpu."""
    return subprocess.Popen(words, cwd=host.home, env={"HOME": str(host.home), "PATH": host.path, **environ})


@pytest.mark.soak
def test_terminate_leaves_no_process_and_no_file_and_every_byte_of_the_users(lab, host):
    host.keys.write_bytes(b"# my keys\r\n" + host.keys.read_bytes() + b"\n \xff\xfe no newline at the end")
    host.keys.chmod(0o640)
    before = host.files()
    made = lab.launch(agent_source=source(), parts=[BootPart("on_start", "sleep 1000 & sleep 1000")])
    wait_for(lambda: len(host.processes()) >= 4)
    assert f"cloudgpu:{made.tags['cloudgpu-id']}".encode() in host.keys.read_bytes()
    lab.provider.terminate(made.id)
    assert host.processes() == []
    assert host.files() == before
    assert stat.S_IMODE(host.keys.stat().st_mode) == 0o640


@pytest.mark.soak
def test_a_host_that_reads_what_it_is_sent_itself_does_the_same(own, tmp_path):
    lab = Lab(tmp_path, own(compiles=True))  # the others run it compiled: tests/guard/compiled.py
    for name in ("json", "shutil", "signal", "site"):  # of Python's own modules, as a user may have called theirs
        (lab.hosts[0].home / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    before = lab.hosts[0].files()
    made = lab.launch(agent_source=source())
    assert [one.id for one in lab.provider.list().instances] == [made.id]
    lab.provider.terminate(made.id)
    assert lab.provider.list().instances == ()
    assert lab.hosts[0].files() == before


@pytest.mark.soak
def test_the_next_machine_of_a_host_is_another_one(lab):
    first = lab.launch("one")
    lab.provider.terminate(first.id)
    second = lab.launch("two")
    assert second.id != first.id
    with pytest.raises(InstanceNotFound):
        lab.provider.get(first.id)


@pytest.mark.soak
@pytest.mark.parametrize("hours", [1, -1])
def test_a_host_with_a_wrong_clock_dates_its_machine_by_the_callers(lab, hours):
    def clock():
        return now() + timedelta(hours=hours)

    begun = clock()
    provider = make(replace(lab.settings, clock=clock))
    made = provider.launch(lab.attempt(), deadline=clock() + timedelta(minutes=1))
    provider.stop(made.id)
    stopped = provider.get(made.id)
    provider.start(made.id)
    dates = [made.launched_at, stopped.since, provider.get(made.id).since]
    assert begun - timedelta(seconds=1) <= dates[0] < dates[1] < dates[2] <= clock()


@pytest.mark.soak
def test_a_process_of_the_users_own_is_never_ended(lab, host):
    made = lab.launch(agent_source=source())
    (mark,) = {agent_of(host).environ()[MARKED]}
    kept = [by_the_user(host, "sleep", "1000"), by_the_user(host, "sleep", "1001", **{MARKED: mark + "x"})]
    try:
        lab.provider.stop(made.id)
        lab.provider.terminate(made.id)
        assert [process.poll() for process in kept] == [None, None]
    finally:
        for process in kept:
            process.kill()
            process.wait()


@pytest.mark.soak
def test_the_users_own_logins_are_no_sign_of_the_machines_life(lab, host):
    """A tmux of last week has SSH_CONNECTION in its environment; as root one sees everybody's."""
    older = by_the_user(host, "sleep", "1000", SSH_CONNECTION="127.0.0.1 1 127.0.0.1 2")
    lab.launch(agent_source=source())
    own = json.loads((host.place / "agent.json").read_text())["own"]
    ours = by_the_user(host, "sleep", "1001", **{MARKED: agent_of(host).environ()[MARKED]})
    try:
        wait_for(lambda: ours.pid in processes(own))  # its environment can be read a moment after it was started
        assert older.pid not in processes(own)
    finally:
        for process in (older, ours):
            process.kill()
            process.wait()


@pytest.mark.soak
def test_authorized_keys_that_did_not_exist_goes_again(lab, host):
    """The user may log in by another way than that file; here the server has been told."""
    made = lab.launch()
    record = json.loads((host.place / "record.json").read_text())
    assert "made_keys" not in record
    host.keys.write_bytes(b"".join(line for line in host.keys.read_bytes().splitlines(True) if b"cloudgpu:" in line))
    (host.place / "record.json").write_text(json.dumps({**record, "made_keys": True, "made_ssh": True}))
    run_there(host, "terminate", {"id": made.id})
    assert not host.keys.parent.exists()
    host.keys.parent.mkdir()
    host.keys.write_text(lab.client.public_line)


def run_there(host, verb, body):
    """Run the host's program as it is run over SSH, without SSH."""
    from cloudgpu.providers.ssh.client import _request

    environ = {"HOME": str(host.home), "PATH": host.path}
    done = subprocess.run(
        [sys.executable, "-"], input=_request(verb, body), env=environ, capture_output=True, check=True
    )
    return json.loads(done.stdout.split(b"cloudgpu-answer: ")[1])


@pytest.mark.soak
def test_a_link_to_authorized_keys_stays_one(lab, host):
    real = host.home / "dotfiles"
    host.keys.rename(real)
    host.keys.symlink_to(real)
    before = real.read_bytes()
    made = lab.launch()
    assert real.read_bytes() != before
    lab.provider.terminate(made.id)
    assert host.keys.is_symlink()
    assert real.read_bytes() == before


def test_two_launches_at_once_make_one_machine_and_one_refusal(lab):
    attempts = [lab.attempt(key) for key in ("one", "two")]

    def sent(attempt):
        try:
            return lab.send(attempt).tags["cloudgpu-name"]
        except NoCapacity as fault:
            return fault.message

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(sent, attempts))
    made = next(word for word in said if word in ("one", "two"))
    assert [one.partition(", launched")[0] for one in said] == sorted([made, f"bigbox is in use by {made} (running"])


def test_an_agent_that_is_killed_is_started_again_at_the_next_look(lab, host):
    made = lab.launch(agent_source=source())
    killed = agent_of(host)
    killed.kill()
    wait_for(lambda: not killed.is_running() or killed.status() == psutil.STATUS_ZOMBIE)
    assert lab.provider.get(made.id).state is State.RUNNING
    assert agent_of(host).pid != killed.pid


@pytest.mark.soak
def test_an_agent_that_dies_again_and_again_is_given_up(lab, host):
    made = lab.launch(agent_source="raise SystemExit(1)")
    seen = wait_for(lambda: (look := lab.provider.get(made.id)).state is State.STOPPED and look)
    assert (seen.reason, seen.billed) == ("died", False)
    assert host.processes() == []


def test_a_host_that_was_rebooted_has_a_machine_that_died(lab, host):
    made = lab.launch(agent_source=source(), parts=[BootPart("on_start", "sleep 1000")])
    wait_for((host.place / "heartbeat.json").exists)
    record = json.loads((host.place / "record.json").read_text())
    (host.place / "record.json").write_text(json.dumps({**record, "boot": "the boot before"}))
    for process in host.processes():
        process.kill()
    wait_for(lambda: len(host.processes()) == 0)
    beat = (host.place / "heartbeat.json").stat().st_mtime
    seen = lab.provider.get(made.id)
    assert (seen.state, seen.reason, seen.billed) == (State.STOPPED, "died", False)
    assert abs(seen.since.timestamp() - beat) < 1
    lab.provider.start(made.id)
    assert lab.provider.get(made.id).state is State.RUNNING


@pytest.mark.soak
def test_the_agent_ends_its_own_processes_when_the_lease_is_over_and_nothing_more(lab, host):
    kept = by_the_user(host, "sleep", "1000")
    try:
        short = {"lease": timedelta(seconds=1), "renew": timedelta(seconds=2)}
        made = lab.launch(agent_source=source(), parts=[BootPart("on_start", "sleep 1000")], **short)
        seen = wait_for(lambda: (look := lab.provider.get(made.id)).state is State.STOPPED and look, 30)
        assert (seen.reason, seen.billed) == ("renew-until", False)
        wait_for(lambda: [process.pid for process in host.processes()] == [kept.pid])
        assert kept.poll() is None
    finally:
        kept.kill()
        kept.wait()


@pytest.mark.soak
def test_the_agent_hears_of_a_longer_lease(lab, host):
    made = lab.launch(agent_source=source())
    later = str(int(made.launched_at.timestamp()) + 5400)  # before renew-until, which no lease outlives
    lab.provider.tag(made.id, {"cloudgpu-expires": later})
    beat = host.place / "heartbeat.json"
    wait_for(lambda: beat.exists() and json.loads(beat.read_text())["expires"] == float(later), 20)
    assert lab.provider.get(made.id).tags["cloudgpu-expires"] == later
    assert from_epoch(later) > made.launched_at


@pytest.mark.soak
def test_what_on_start_fails_with_is_said(lab):
    made = lab.launch(parts=[BootPart("on_start", "exit 3")])
    seen = wait_for(lambda: (look := lab.provider.get(made.id)).reason and look)
    assert seen.reason.startswith("on_start failed with status 3")
    assert seen.state is State.RUNNING


@pytest.mark.soak
def test_an_on_start_that_runs_says_so_and_is_no_reason(lab, host):
    made = lab.launch(parts=[BootPart("on_start", "until [ -e go ]; do sleep 0.1; done")])
    status = host.place / "on_start.status"
    assert (status.read_text(), lab.provider.get(made.id).reason) == ("running\n", None)
    (host.place / "work" / "go").touch()
    wait_for(lambda: status.read_text() == "0\n")


@pytest.mark.soak
def test_a_foreign_directory_is_never_taken_or_removed(lab, host):
    host.place.mkdir()
    (host.place / "mine").write_text("keep")
    with pytest.raises(CloudgpuError, match="was not made by cloudgpu"):
        lab.launch()
    assert lab.provider.list().instances == ()
    assert (host.place / "mine").read_text() == "keep"


@pytest.mark.soak
def test_a_host_that_is_off_is_unanswered_and_nothing_is_known_of_its_machine(lab, host):
    made = lab.launch()
    attempt = lab.attempt()
    host.off()
    listing = lab.provider.list()
    assert listing.instances == ()
    assert [gap.scope for gap in listing.unanswered] == ["lab/bigbox"]
    for call in (lab.provider.get, lab.provider.stop, lab.provider.start, lab.provider.terminate):
        with pytest.raises(ProviderUnavailable, match="does not answer"):
            call(made.id)
    with pytest.raises(ProviderUnavailable):
        lab.send(attempt)
    host.start()
    assert lab.provider.get(made.id).state is State.RUNNING


@pytest.mark.soak
def test_a_changed_host_key_is_refused_by_every_call(lab, own, host):
    made = lab.launch()
    mended = host.host_key
    host.host_key = own("other").host_key
    provider = lab.provider
    for call in (provider.get, provider.stop, provider.start, provider.terminate):
        with pytest.raises(WrongHostKey):
            call(made.id)
    assert "another host key" in provider.list().unanswered[0].why
    host.host_key = mended


@pytest.mark.soak
def test_a_host_that_left_the_settings_is_not_taken_for_gone(lab, own, tmp_path):
    made = lab.launch()
    with pytest.raises(ProviderUnavailable, match="not in the settings"):
        Lab(tmp_path, own("other")).provider.get(made.id)


@pytest.mark.soak
def test_one_of_two_hosts_that_does_not_answer_is_left_out(own, tmp_path, lab):
    off = own("other")
    off.off()
    both = Lab(tmp_path, lab.hosts[0], off)
    from cloudgpu.core.model.offers import Requirements

    assert [item.zone for item in both.provider.available(Requirements()).items] == ["bigbox"]


@pytest.mark.soak
@pytest.mark.parametrize("cut", [0.05, 0.5, 0.9, 0.999])
def test_a_request_that_was_cut_short_does_nothing(lab, host, cut):
    from cloudgpu.providers.ssh.client import _request, launch_body

    before = host.files()
    whole = _request("launch", launch_body(next(iter(lab.provider._hosts.values())), lab.attempt()))
    environ = {"HOME": str(host.home), "PATH": host.path}
    part = whole[: int(len(whole) * cut)]
    subprocess.run([sys.executable, "-"], input=part, env=environ, capture_output=True, check=False)
    assert host.files() == before
    assert host.processes() == []


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_a_launch_killed_at_any_moment_is_completed_by_its_replay(lab, host, step):
    """The program on the host is killed at every `step`-th thing that it does to files and processes."""
    from cloudgpu.providers.ssh.client import _request, launch_body

    furnish(host.home)
    before = everything(host.home)
    attempt = lab.attempt(agent_source=source())
    request = _request("launch", launch_body(next(iter(lab.provider._hosts.values())), attempt))
    completed = 0
    for kill_at in range(step, 400, step):
        completed = killed_after(host, request, kill_at)
        seen = lab.send(attempt)
        assert seen.state is State.RUNNING, kill_at
        assert host.keys.read_bytes().count(b"cloudgpu:") == 1, kill_at
        lab.provider.terminate(seen.id)
        with pytest.raises(InstanceNotFound):
            lab.provider.get(seen.id)
        assert everything(host.home) == before, kill_at
        assert host.processes() == [], kill_at
        if completed:
            break
    assert completed


LONG = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("request_of", "step"),
    [
        ("terminate", 17),
        pytest.param("show", 6, marks=LONG),
        pytest.param("terminate", 4, marks=LONG),
        pytest.param("show", 2, marks=LONG),
    ],
)
def test_an_end_or_a_move_of_files_killed_at_any_moment_leaves_the_home_as_it_was(lab, host, step, request_of):
    """What the script made is moved before the owner's eyes, and taken away again: the next call finishes either."""
    from cloudgpu.providers.ssh.client import _request, program

    furnish(host.home)
    before = everything(host.home)
    for kill_at in range(step, 400, step):
        made = lab.launch(parts=[BootPart("on_start", "sleep 1000")])
        (host.place / "work" / "book").mkdir()
        (host.place / "work" / "book" / "one.ipynb").write_text("one")
        (host.place / "work" / "two.ipynb").write_text("two")
        show = f"{program()}\n\npublish_work()\n".encode()
        end = _request("terminate", {"id": made.id})
        if request_of == "terminate":
            killed_after(host, show, 400)
            assert (host.home / "cloudgpu-one-2" / "book" / "one.ipynb").read_text() == "one"
        completed = killed_after(host, show if request_of == "show" else end, kill_at)
        lab.provider.terminate(made.id)
        assert everything(host.home) == before, kill_at
        assert host.processes() == [], kill_at
        if completed:
            return
    pytest.fail("it never came to its end")


def killed_after(host, request, calls):
    """Run the program and kill it at its `calls`-th change of a file; return whether it came to its end."""
    counting = (
        "import os, signal, sys\n"
        "count = 0\n"
        "def watch(event, words):\n"
        "    global count\n"
        "    if event == 'open' and not words[2] & (os.O_WRONLY | os.O_RDWR):\n"
        "        return\n"
        "    if event == 'fcntl.flock' and not words[1] & fcntl.LOCK_EX:\n"
        "        return\n"
        "    if event in ('os.rename', 'os.mkdir', 'os.remove', 'os.chmod', 'subprocess.Popen', 'fcntl.flock',"
        " 'open', 'os.rmdir', 'shutil.rmtree'):\n"
        "        count += 1\n"
        f"        if count == {calls}:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "text = compile(sys.stdin.read(), 'host', 'exec')\n"
        "import contextlib, errno, fcntl, getpass, json, re, shutil, subprocess, time, pathlib, typing\n"
        "sys.addaudithook(watch)\n"
        "exec(text, {'__name__': 'program'})\n"
    )
    environ = {"HOME": str(host.home), "PATH": host.path}
    done = subprocess.run(
        [sys.executable, "-c", counting], input=request, env=environ, capture_output=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode == 0
