"""The start script of a rented container: a real sshd that nobody's systemd starts, from the two parts that travel."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import paramiko
import pytest

from cloudgpu.access.jupyter import client as jupyter
from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.access.ssh.connection import connect
from cloudgpu.agent.program import source
from cloudgpu.core.model.launch import BootPart
from cloudgpu.errors import WrongHostKey
from cloudgpu.providers.machine.container_start import (
    ContainerSpec,
    container_start,
    host_keys_in,
    machine_dir,
    pack_start,
)
from tests.access.sshserver import wait_for
from tests.providers.machine.containers import ITEM, Container, make_attempt

WITHIN = 60
SECRET = "only-this-container-may-be-ended"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKy"


def up(container, attempt):
    container.start(attempt)
    wait_for(lambda: container.host_keys, WITHIN)
    wait_for(lambda: answers(container.port), WITHIN)
    return container


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def said(container, command, **more):
    with connect(container.target, timeout=20) as connection:
        done = connection.capture(command, timeout=20, **more)
    assert done.status == 0, done.stderr
    return done.stdout.decode().strip()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A container that runs, and the attempt that it was launched by."""
    image = {"CUDA_HOME": "/usr/local/cuda", "PLACE_API_KEY": SECRET, "A_PASSWORD": SECRET, "ODD": "two\nlines"}
    container = Container(tmp_path_factory.mktemp("container"), image)
    container.end = "exit 0"
    parts = [BootPart("on_start", "pwd; echo $HOME >made_by_on_start\n")]
    attempt = container.attempt(agent_source=source(), parts=parts, jupyter=("jupyter", "lab"))
    try:
        yield up(container, attempt).pin(), attempt
    finally:
        container.stop(attempt.machine)


def test_a_command_runs_there_under_the_pinned_key_in_the_images_environment(running):
    container, attempt = running
    words = said(container, 'echo "$HOME|$CUDA_HOME|$CLOUDGPU_MACHINE|$CLOUDGPU_ENVIRONMENTS"').split("|")
    base = machine_dir(attempt, container.place)
    assert words == [str(container.home), "/usr/local/cuda", attempt.machine, f"{base}/environments"]


def test_no_secret_of_the_container_is_in_the_environment_of_who_logs_in(running):
    container, _ = running
    assert SECRET not in said(container, "env")
    assert "CLOUDGPU_START_" not in said(container, "env")


def test_another_server_in_its_place_is_refused(running, tmp_path):
    container, _ = running
    other = tmp_path / "known_hosts"
    client_files.pin(other, "cg-rented", new_host_key().public_line)
    target = container.target
    with pytest.raises(WrongHostKey):
        connect(type(target)(target.id, target.name, target.address, target.key_file, other), timeout=20)


def test_nobody_gets_in_with_a_password(running):
    container, _ = running
    with socket.create_connection(("127.0.0.1", container.port)) as link:
        transport = paramiko.Transport(link)
        try:
            transport.start_client(timeout=20)
            with pytest.raises(paramiko.BadAuthenticationType) as refused:
                transport.auth_none(container.target.address.user)
        finally:
            transport.close()
    assert refused.value.allowed_types == ["publickey"]


@pytest.mark.soak
def test_the_agent_is_heard_and_counts_this_containers_processes_alone(running):
    container, attempt = running
    status = wait_for(lambda: heard(container), WITHIN)
    assert status["id"] == attempt.machine
    assert time.time() - status["heartbeat"] < WITHIN
    assert status["verdict"] == "keep"
    settings = json.loads(said(container, 'cat "$HOME"/.cloudgpu/agent.json'))
    assert settings["own"] == [f"CLOUDGPU_MACHINE={attempt.machine}"]
    assert 0 < status["up_since"] <= time.time()


def heard(container):
    status = json.loads(said(container, '"$HOME"/.cloudgpu/agent status'))
    return status if status["heartbeat"] else None


def test_on_start_runs_in_what_lasts_and_says_how_it_ended(running):
    container, _ = running
    wait_for(lambda: said(container, 'cat "$HOME"/.cloudgpu/on_start.status') == "0", WITHIN)
    assert said(container, 'cat "$HOME"/.cloudgpu/on_start.log') == str(container.root / "keep")
    assert (container.root / "keep" / "made_by_on_start").read_text().strip() == str(container.home)


@pytest.mark.soak
def test_jupyterlab_is_started_when_it_is_asked_for_and_shows_what_lasts(running):
    container, _ = running
    assert not wait_for(lambda: heard(container), WITHIN)["jupyter"]
    with connect(container.target, timeout=20) as connection:
        found = jupyter.ensure(connection, wait_s=WITHIN)
        assert (found.started, found.root) == (True, str(container.root / "keep"))
        assert jupyter.stop(connection)


@pytest.mark.soak
def test_a_dead_agent_is_started_again(running):
    container, attempt = running
    wait_for(lambda: heard(container), WITHIN)
    pid = heard(container)["pid"]
    assert pid in [one.pid for one in container.processes(attempt.machine)]
    os.kill(pid, 9)
    wait_for(lambda: heard(container)["pid"] != pid, WITHIN)


def test_a_restart_with_a_new_disk_keeps_the_host_key_the_pin_and_who_was_let_in(tmp_path):
    container = Container(tmp_path)
    attempt = container.attempt()
    friend, gone = f"{KEY}friend me", f"{KEY}gone me"
    try:
        up(container, attempt).pin()
        before = container.host_keys
        keys = Path(machine_dir(attempt, container.place)) / "authorized_keys"
        said(container, f"printf '%s\\n' '{friend}' '{gone}' >>{keys}; echo kept >{container.root}/keep/work")
        container.stop(attempt.machine)
        assert not answers(container.port)
        keys.write_text("".join(line for line in keys.read_text().splitlines(True) if line.strip() != gone))
        up(container, attempt)
        assert container.host_keys == before
        assert said(container, f"cat {container.root}/keep/work") == "kept"
        lines = said(container, 'cat "$HOME"/.ssh/authorized_keys').splitlines()
        assert friend in lines
        assert gone not in lines
        assert lines.count(container.client.public_line.strip()) == 1
    finally:
        container.stop(attempt.machine)


@pytest.mark.soak
def test_the_end_comes_without_an_agent_by_the_hook_again_and_again(tmp_path):
    """The agent is one that does nothing; nobody ends the machine but the script's own look at the clock."""
    container = Container(tmp_path, {"PLACE_API_KEY": SECRET})
    container.end = f'echo "$1 $PLACE_API_KEY" >>{tmp_path}/ended'
    began = datetime.now(UTC) - timedelta(hours=3)
    attempt = container.attempt(now=began, agent_source="import time\ntime.sleep(1000)\n")
    try:
        container.start(attempt)
        wait_for(lambda: (tmp_path / "ended").exists() and len(ended(tmp_path)) > 1, WITHIN)
        assert set(ended(tmp_path)) == {f"renew-until {SECRET}"}
    finally:
        container.stop(attempt.machine)
    assert SECRET not in container.log


@pytest.mark.soak
def test_one_that_is_started_again_after_its_lease_has_the_span_of_its_launch_anew(tmp_path):
    """Nobody can tell it its new lease where the tags are fixed at the launch, as on RunPod."""
    container = Container(tmp_path)
    container.end = f'echo "$1" >>{tmp_path}/ended'
    attempt = container.attempt(now=datetime.now(UTC) - timedelta(hours=3), agent_source=source())
    container.environ = {"CLOUDGPU_TAGS": json.dumps(dict(attempt.tags))}
    base = Path(machine_dir(attempt, container.place))
    base.mkdir(parents=True)
    (base / "launch").write_text(f"{attempt.token}\n")
    (base / "tags.json").write_text(json.dumps(dict(attempt.tags)))
    (base / "tags.given").write_text(f"{json.dumps(dict(attempt.tags))}\n")
    try:
        up(container, attempt)
        wait_for((base / "heartbeat.json").exists, WITHIN)
        now, spans = time.time(), {"expires": attempt.expires, "renew-until": attempt.renew_until}
        tags = json.loads((base / "tags.json").read_text())
        for name, end in spans.items():
            left = int(tags[f"cloudgpu-{name}"]) - now
            assert left == pytest.approx((end - attempt.made_at).total_seconds(), abs=60)
        assert tags["cloudgpu-id"] == attempt.machine
        assert json.loads((base / "heartbeat.json").read_text())["expires"] > now
        assert not (tmp_path / "ended").exists()
    finally:
        container.stop(attempt.machine)


def ended(root):
    return (root / "ended").read_text().splitlines()


@pytest.mark.parametrize(
    ("expires", "renew_until", "hold", "why"),
    [
        (-600, 600, 0, "lease"),
        (-600, 600, 300, ""),
        (600, 1200, 0, ""),
        (-600, -300, 0, "renew-until"),
        (-600, -300, 300, "renew-until"),
    ],
)
def test_the_lease_that_counts_is_the_one_that_the_place_tells_now(tmp_path, expires, renew_until, hold, why):
    now = int(time.time())
    tags = {"cloudgpu-expires": now + expires, "cloudgpu-renew-until": now + renew_until}
    text = json.dumps({**{key: str(value) for key, value in tags.items()}, "cloudgpu-hold-until": str(now + hold)})
    assert looked(tmp_path, ask=f"echo '{text}'") == why


def test_tags_given_beside_the_container_are_taken_once_and_nonsense_is_not(tmp_path):
    now = int(time.time())
    given = json.dumps({"cloudgpu-expires": str(now - 1), "cloudgpu-renew-until": str(now - 1)})
    assert looked(tmp_path / "one", CLOUDGPU_TAGS=given) == "renew-until"
    assert looked(tmp_path / "two", ask="echo '{\"error\": 1}'") == ""
    assert looked(tmp_path / "three", ask="exit 7") == ""


@pytest.mark.parametrize(
    ("manager", "words"),
    [
        ("apt-get", "-q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends openssh-server"),
        ("dnf", "-y install openssh-server"),
        ("microdnf", "-y install openssh-server"),
        ("apk", "add --no-cache openssh-server"),
        ("zypper", "-n install openssh-server"),
    ],
)
def test_a_missing_ssh_server_is_installed_by_the_package_manager_of_the_image(tmp_path, manager, words):
    done = without_a_server(tmp_path, manager)
    assert (tmp_path / "asked").read_text().splitlines()[-1] == words
    assert "cloudgpu-error: " not in done


def test_an_image_that_can_have_no_ssh_server_says_so_in_the_log(tmp_path):
    done = without_a_server(tmp_path, "")
    errors = [line for line in done.splitlines() if line.startswith("cloudgpu-error: ")]
    assert errors[-1] == "cloudgpu-error: no SSH server: this image has none, and none could be installed"
    assert host_keys_in(done) == ()


def without_a_server(root, manager):
    """Run `serve` where only this package manager is found, and installs one, which is not started. Return the log."""
    programs = root / "bin"
    programs.mkdir()
    for tool in ("sh", "mkdir", "chmod", "cat", "tail", "touch", "rm", "mv"):
        (programs / tool).symlink_to(shutil.which(tool))
    if manager:
        program = programs / manager
        program.write_text(f'#!/bin/sh\necho "$*" >>{root}/asked\ntouch {root}/installed {root}/bin/ssh-keygen\n')
        program.chmod(0o755)
    (root / "run").mkdir()
    head, _, _ = container_start(make_attempt(ITEM), ContainerSpec(persistent_dir=str(root))).partition(
        'mkdir -p "$CLOUDGPU_RUN"'
    )
    there = f"server() {{ [ -e {root}/installed ]; }}\nmake_host_key() {{ exit 0; }}\nserve\n"
    env = {"PATH": str(programs), "CLOUDGPU_LOG": "", "CLOUDGPU_RUN": str(root / "run")}
    command = ["/bin/sh", "-c", head + there]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=30).stdout


@pytest.mark.soak
def test_while_the_tags_cannot_be_read_only_renew_until_ends_the_machine_for_the_agent_too(tmp_path):
    """Its lease may have been extended, and nobody could tell it: then the reaper ends that, and renew-until always."""
    now = int(time.time())
    over, later = str(now - 5), str(now + 600)
    tags = {"cloudgpu-expires": over, "cloudgpu-renew-until": later, "cloudgpu-name": "fox"}
    given, told = json.dumps(tags), kept(tmp_path) / "tags.json"
    for broken in ("exit 7", "echo '{}'", ""):
        told.unlink(missing_ok=True)
        told.with_name("tags.given").unlink(missing_ok=True)
        assert looked(tmp_path, ask=broken, CLOUDGPU_TAGS=given) == ("" if broken else "lease")
        assert json.loads(told.read_text()) == {**tags, **({"cloudgpu-expires": later} if broken else {})}
    assert looked(tmp_path, ask=f"echo '{given}'") == "lease"  # it can be read again
    assert looked(tmp_path / "two", ask="exit 7", CLOUDGPU_TAGS=given.replace(later, over)) == "renew-until"
    assert looked(tmp_path / "three", ask="exit 7") == ""  # it was never told any
    tags = json.loads((kept(tmp_path / "three") / "tags.json").read_text())
    assert tags["cloudgpu-expires"] == tags["cloudgpu-renew-until"]


@pytest.mark.parametrize(
    ("ask", "made", "until", "renews"),
    [
        ("exit 7", "now", -5, True),
        ("exit 7", "now", 600, False),  # only its lease is over, which may have been extended
        ("told", "now", -5, False),  # it is told its new one
        ("", "now", 600, True),
        ("exit 7", "before", -5, False),  # another launch's files
    ],
)
def test_a_start_after_the_end_gives_it_the_span_of_its_launch_only_where_nobody_tells_it_another(
    tmp_path, ask, made, until, renews
):
    now = int(time.time())
    attempt = make_attempt(ITEM)
    over = json.dumps({"cloudgpu-expires": str(now - 5), "cloudgpu-renew-until": str(now + until)})
    base = kept(tmp_path)
    base.mkdir()
    (base / "tags.json").write_text(over)
    (base / "launch").write_text(attempt.token if made == "now" else "another")
    looked(tmp_path, ask=f"echo '{over}'" if ask == "told" else ask, once="restart_lease\n")
    tags = json.loads((base / "tags.json").read_text())
    new = int(tags["cloudgpu-renew-until"])
    assert (new != now + until) == renews
    if renews:
        assert new >= now + (attempt.renew_until - attempt.made_at).total_seconds()


def kept(root):
    return Path(machine_dir(make_attempt(ITEM), ContainerSpec(persistent_dir=str(root))))


LOOKS = 'take_given_tags\nif [ -n "$ask" ]; then ask_for_tags; fi\nend_reason\n'


def looked(root, ask="", once=LOOKS, **environ):
    """Run the script's own functions once, without starting anything, and return what they say of the end."""
    root.mkdir(exist_ok=True)
    place = ContainerSpec(tags_command=ask, persistent_dir=str(root))
    text = container_start(make_attempt(ITEM), place)
    head, mark, _ = text.partition('mkdir -p "$CLOUDGPU_RUN"')
    assert mark
    env = {"PATH": os.environ["PATH"], "CLOUDGPU_LOG": "", **environ}
    command = ["/bin/sh", "-c", head + once]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_both_parts_fit_where_vast_and_runpod_take_them():
    """vast.ai: 4096 characters of onstart and args, 32,768 of environment [O]; RunPod names no limit."""
    made = pack_start(make_attempt(ITEM, agent_source=source(), parts=[BootPart("on_start", "true\n" * 300)]))
    assert len(made.command) < 1000
    assert sum(len(name) + len(text) + 1 for name, text in made.env.items()) < 24_000


def test_nothing_private_travels_in_the_environment():
    attempt = make_attempt(ITEM, host_key=("ssh-ed25519 PUBLIC", "PRIVATE-KEY-OF-THE-LAUNCH"))
    assert "PRIVATE-KEY-OF-THE-LAUNCH" not in container_start(attempt)
    assert container_start(attempt) == container_start(attempt)
    assert pack_start(attempt) == pack_start(attempt)


def test_the_host_key_is_read_from_a_log_among_other_lines_and_the_last_one_counts():
    log = f"starting\ncloudgpu-host-key: {KEY}a\nnoise cloudgpu-host-key: {KEY}x\ncloudgpu-host-key: {KEY}b\r\nmore\n"
    assert host_keys_in(log) == (f"{KEY}b",)
    assert host_keys_in("cloudgpu-host-key: ssh-rsa AAAA\nnothing\n") == ()
