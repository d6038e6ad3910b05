"""JupyterLab on a machine: a real one, over real SSH."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import pytest

from cloudgpu.access.jupyter import client as jupyter, remote_lab as lab
from cloudgpu.access.jupyter.notebook import run_cell
from cloudgpu.access.ssh.connection import connect
from cloudgpu.agent.agent import ACTIVITY_WINDOW
from cloudgpu.agent.files import monotonic
from cloudgpu.agent.jupyter import is_running
from cloudgpu.agent.sampler import Sampler
from cloudgpu.core.activity.idle import Thresholds, judge
from cloudgpu.errors import Unreachable
from tests.access.sshserver import Server
from tests.agent.machine import LAB, Machine, running, wait_for


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """A machine with an SSH server and a JupyterLab that was started over it: (machine, connection, JupyterLab)."""
    root = tmp_path_factory.mktemp("box")
    server = Server(root)
    (root / "connections").touch()
    server.start().pin()
    machine = Machine(server.home).build(jupyter=LAB)
    try:
        with connect(server.target, timeout=10) as connection:
            yield machine, connection, jupyter.ensure(connection)
    finally:
        machine.end()
        server.kill()


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path / "home").build(jupyter=LAB)
    yield made
    made.end()


SEEN = Thresholds(after=ACTIVITY_WINDOW, share=0.0, uptime=0.0)  # by what was seen, however long nobody looked


def _activity(machine, later=0.0, looker=None):
    """Return what the agent sees, and why, `later` seconds after it first looked."""
    looker = looker or Sampler(machine.dir)
    looker.take_sample(time.time(), monotonic())
    samples = looker.take_sample(time.time() + later, monotonic() + later)
    judged = judge(samples, SEEN, monotonic() + later, 0.0)
    return judged.activity, judged.why


def _end_kernels(machine, port):
    for kernel in machine.ask("GET", "/api/kernels", port):
        machine.ask("DELETE", f"/api/kernels/{kernel['id']}", port)


def _processes(name):
    for path in Path("/proc").glob(f"[0-9]*/{name}"):
        try:
            yield path, path.read_bytes()
        except OSError:
            continue


# -- over SSH


@pytest.mark.soak
def test_it_is_started_once_and_found_again(box):
    machine, connection, first = box
    assert first.started
    again = jupyter.ensure(connection)
    assert (again.port, again.token, again.started) == (first.port, first.token, False)
    assert first.root == str(machine.home)
    assert machine.ask("GET", "/api/status", first.port)["kernels"] >= 0


def test_its_token_is_in_no_argument_list_environment_or_log(box):
    machine, _, server = box
    run_cell(server.port, server.token, "1")
    for path in ("/lab", "/nowhere", "/api/contents/none"):
        link = HTTPConnection("127.0.0.1", server.port, timeout=20)
        address = f"{path}?token={server.token}"
        link.request("GET", address, headers={"Referer": f"http://127.0.0.1:{server.port}{address}"})
        link.getresponse().read()
        link.close()
    secret = server.token.encode()
    seen = [path for name in ("cmdline", "environ") for path, text in _processes(name) if secret in text]
    assert seen == []
    holders = {path for path in machine.home.rglob("*") if path.is_file() and secret in path.read_bytes()}
    base = machine.dir / "jupyter"
    assert {path.relative_to(base).parts[0] for path in holders} == {"token", "runtime"}
    assert b"404 GET /nowhere" in (base / "log").read_bytes()
    assert (base / "token").stat().st_mode & 0o777 == 0o600
    assert base.stat().st_mode & 0o777 == 0o700
    assert server.token not in repr(server)


def test_kernels_know_the_file_and_not_the_token(box):
    _, _, server = box
    said = run_cell(server.port, server.token, "import os; print(sorted(k for k in os.environ if 'TOKEN' in k))").text
    assert said == "['JUPYTER_TOKEN_FILE']\n"


def test_it_listens_on_loopback_only(box):
    _, _, server = box
    listening = [
        line.split()[1].rpartition(":")[0]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].rpartition(":")[2], 16) == server.port
    ]
    assert listening == ["0100007F"]


def test_who_comes_by_another_name_is_refused(box):
    machine, _, server = box
    link = HTTPConnection("127.0.0.1", server.port, timeout=20)
    link.request("GET", "/api/status", headers={"Authorization": f"token {machine.token}", "Host": "evil.example"})
    assert link.getresponse().status == 403
    link.close()


def test_it_asks_nobody_for_news_updates_or_extensions(box):
    machine, _, server = box
    link = HTTPConnection("127.0.0.1", server.port, timeout=20)
    link.request("GET", "/lab", headers={"Authorization": f"token {machine.token}"})
    page = link.getresponse().read().decode()
    link.close()
    config = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert config["news"] == {"disabled": True}
    assert "@jupyterlab/apputils-extension:announcements" in str(config["disabledExtensions"])
    assert "Extension Manager is 'readonly'" in (machine.dir / "jupyter" / "log").read_text()


def test_the_users_own_jupyter_is_left_alone(box):
    machine, _, _ = box
    assert not (machine.home / ".jupyter").exists()
    assert not (machine.home / ".local" / "share" / "jupyter").exists()


def test_a_busy_kernel_is_seen_and_a_quiet_one_ages(box):
    machine, _, server = box
    _end_kernels(machine, server.port)
    cell = threading.Thread(target=run_cell, args=(server.port, server.token, "import time; time.sleep(2)"))
    cell.start()
    wait_for(lambda: _activity(machine, 9 * 3600.0)[1].startswith("busy kernel"))
    cell.join()
    looker = Sampler(machine.dir)
    assert _activity(machine, looker=looker)[0] == "ACTIVE"
    assert _activity(machine, ACTIVITY_WINDOW + 1, looker)[0] == "IDLE"


def test_our_own_looks_are_no_activity(box):
    machine, _, server = box
    _end_kernels(machine, server.port)
    run_cell(server.port, server.token, "1")
    before = machine.ask("GET", "/api/kernels", server.port)[0]["last_activity"]
    for _ in range(5):
        _activity(machine)
    assert machine.ask("GET", "/api/kernels", server.port)[0]["last_activity"] == before


def test_a_kernel_that_nobody_connects_to_ages_out(box):
    machine, _, server = box
    _end_kernels(machine, server.port)
    machine.ask("POST", "/api/kernels", server.port, {})
    wait_for(lambda: machine.ask("GET", "/api/kernels", server.port)[0]["execution_state"] == "starting")
    looker = Sampler(machine.dir)
    assert _activity(machine, looker=looker)[0] == "ACTIVE"
    assert _activity(machine, ACTIVITY_WINDOW + 1, looker)[0] == "IDLE"


def test_a_terminal_of_jupyter_is_one_of_the_machines(box):
    machine, _, server = box
    _end_kernels(machine, server.port)
    looker = Sampler(machine.dir)
    name = machine.ask("POST", "/api/terminals", server.port, {})["name"]
    wait_for(lambda: looker.take_sample(time.time(), monotonic())[-1]["in"] is not None)
    assert _activity(machine, looker=looker)[1].startswith("terminal ")
    machine.ask("DELETE", f"/api/terminals/{name}", server.port)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("change", "said", "way_out"),
    [
        ({"jupyter": []}, "There is no JupyterLab on box: this machine was launched without", "--template jupyter"),
        ({"jupyter": ["no-such-jupyter"]}, "There is no JupyterLab on box: ", "cloudgpu installs JupyterLab there"),
        (
            {"jupyter": [sys.executable, "-m", "no_such_lab"]},
            "No module named no_such_lab.",
            "cloudgpu installs JupyterLab there",
        ),
        (
            {"jupyter": [sys.executable, "-c", "exit('No module named x: launched without it')"]},
            "launched without it.",
            "cloudgpu installs JupyterLab there",
        ),
        ({"jupyter": [sys.executable, "-c", "exit('boom')"]}, "JupyterLab on box did not start: boom.", "jupyter/log"),
    ],
)
def test_what_cannot_start_says_why_and_what_to_do(server, connection, change, said, way_out):
    machine = Machine(server.home).build(**change)
    with pytest.raises(Unreachable) as caught:
        jupyter.ensure(connection)
    assert said in caught.value.message
    assert way_out in caught.value.next
    assert (caught.value.field, caught.value.value) == ("name", "box")
    assert not is_running(machine.dir / "jupyter")


def test_a_module_runs_as_by_itself_but_for_the_package_that_is_slow_to_load(tmp_path):
    packages, notebooks = tmp_path / "packages", tmp_path / "notebooks"
    packages.mkdir()
    notebooks.mkdir()
    (packages / "rfc3987_syntax.py").write_text("raise SystemExit('loaded')")
    look = "import sys, queue\n"
    look += "try:\n    import rfc3987_syntax\nexcept ImportError:\n    print(__name__, sys.argv[1:])\n"
    (packages / "looks.py").write_text(look)
    (notebooks / "queue.py").write_text("raise SystemExit('a file of the user')")
    command, environ = (
        lab.faster_command([sys.executable, "-m", "looks", "--port=1", "-y"]),
        {"PYTHONPATH": str(packages)},
    )
    done = subprocess.run(command, cwd=notebooks, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "__main__ ['--port=1', '-y']\n"
    for other in ([], ["/usr/local/lib/cloudgpu/jupyter", "jupyterlab"], [sys.executable, "-m"]):
        assert lab.faster_command(other) == other


def test_a_machine_that_is_not_set_up_yet_says_so(connection):
    with pytest.raises(Unreachable, match="box has no cloudgpu agent, or not yet"):
        jupyter.ensure(connection)


@pytest.mark.soak
def test_a_machine_that_is_still_being_set_up_is_waited_for_and_jupyter_started_once(server, connection, tmp_path):
    ready = tmp_path / "ready"
    installs = f'until [ -e {ready} ]; do sleep 0.05; done; exec {sys.executable} -m jupyterlab "$@"'
    waited: list[str] = []

    def go_on(fault):
        if not waited:
            Machine(server.home).build(jupyter=["/bin/sh", "-c", installs, "jupyter"])
        else:
            ready.touch()
        waited.append(fault.message)
        return True

    assert jupyter.ensure(connection, wait_s=1, retry=go_on).started
    assert waited[:2] == [
        "box has no cloudgpu agent, or not yet.",
        "JupyterLab on box did not start: JupyterLab runs but does not answer.",
    ]
    log = (server.home / ".cloudgpu" / "jupyter" / "log").read_text()
    assert log.count("Serving notebooks from") == 1
    jupyter.stop(connection)


def test_what_starts_while_it_is_waited_for_was_started_by_that(server, connection):
    machine = Machine(server.home).build()
    starts, runs = (
        {"error": "it runs but does not answer", "starting": True},
        {"port": 7, "root": "/", "started": False},
    )
    answers = f"[ -e asked ] && echo '{json.dumps(runs)}' || echo '{json.dumps(starts)}'"
    (machine.dir / "agent").write_text(f"#!/bin/sh\ncd; cat >/dev/null; {answers}; touch asked\n")
    (machine.dir / "jupyter").mkdir(exist_ok=True)
    (machine.dir / "jupyter" / "token").write_text("0" * 64)
    waited = []
    found = jupyter.ensure(connection, retry=lambda fault: waited.append(fault.message) or True)
    assert (found.port, found.started) == (7, True)
    assert waited == ["JupyterLab on box did not start: it runs but does not answer."]


def test_an_agent_that_talks_nonsense_is_named(server, connection):
    machine = Machine(server.home).build()
    (machine.dir / "agent").write_text("#!/bin/sh\necho hello\necho out of memory >&2\nexit 3\n")
    with pytest.raises(Unreachable, match="could not be started on box: out of memory"):
        jupyter.ensure(connection)


# -- on the machine itself, by the same program


def test_several_at_once_start_one(machine):
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: machine.lab("ensure"), range(4)))
    assert sorted(answer["started"] for answer in answers) == [False, False, False, True]
    assert len({(answer["pid"], answer["port"]) for answer in answers}) == 1


@pytest.mark.soak  # many seconds
def test_it_dies_is_missed_and_started_again_and_stopped(machine):
    first = machine.lab("ensure")
    token = machine.token
    os.kill(first["pid"], signal.SIGKILL)
    wait_for(lambda: not running(first["pid"]) and not is_running(machine.dir / "jupyter"))
    assert _activity(machine) == ("UNKNOWN", "JupyterLab: it died: 0 of 10 min are known")
    second = machine.lab("ensure")
    assert second["started"]
    assert second["pid"] != first["pid"]
    assert (second["port"], machine.token) == (first["port"], token)
    assert machine.lab("stop") == {"stopped": True}
    assert not running(second["pid"])
    assert list((machine.dir / "jupyter" / "runtime").glob("jpserver-*")) == []
    assert _activity(machine) == ("IDLE", "nothing runs")
    assert machine.lab("stop") == {"stopped": False}


@pytest.mark.soak  # many seconds
def test_one_that_is_frozen_is_unknown_and_not_started_twice(machine):
    server = machine.lab("ensure")
    os.kill(server["pid"], signal.SIGSTOP)
    try:
        assert _activity(machine)[0] == "UNKNOWN"
        assert machine.lab("ensure", "--wait", "1")["error"] == "JupyterLab runs but does not answer"
    finally:
        os.kill(server["pid"], signal.SIGCONT)
    assert machine.lab("ensure")["pid"] == server["pid"]
    os.kill(server["pid"], signal.SIGSTOP)
    assert machine.lab("stop") == {"stopped": True}


@pytest.mark.soak
def test_one_that_died_with_an_earlier_boot_is_not_missed(machine):
    server = machine.lab("ensure")
    os.kill(server["pid"], signal.SIGKILL)
    wait_for(lambda: not running(server["pid"]))
    process = machine.run()
    try:
        beat = wait_for(lambda: (machine.dir / "heartbeat.json").exists() and machine.heartbeat())
        # A meter that a busy computer did not let be read is another matter than a JupyterLab that is missed.
        assert "JupyterLab" not in beat["why"], beat["why"]
        assert beat["activity"] == "IDLE" or "known" in beat["why"], beat["why"]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 6))])
def test_a_start_that_is_killed_leaves_one_that_is_found(machine, seed):
    command = [str(machine.dir / "agent"), "python", "-", "ensure"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=machine.environ)
    process.stdin.write(jupyter.program())
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(random.Random(seed).uniform(0.05, 0.4))
    process.kill()
    process.wait()
    answer = machine.lab("ensure")
    log = (machine.dir / "jupyter" / "log").read_text()
    assert log.count("Serving notebooks from local directory") == 1
    assert running(answer["pid"])
    assert machine.ask("GET", "/api/status", answer["port"])["started"]


@pytest.mark.soak  # many seconds
def test_a_start_killed_before_its_record_is_written_is_stopped_too(machine):
    server = machine.lab("ensure")
    (machine.dir / "jupyter" / "server.json").unlink()
    assert machine.lab("ensure")["pid"] == server["pid"]
    (machine.dir / "jupyter" / "server.json").unlink()
    assert machine.lab("stop") == {"stopped": True}
    assert not running(server["pid"])


class KilledStart(lab.Lab):
    """A start that is killed once the server's process runs, before its record is written."""

    def start_process(self, *given):
        super().start_process(*given)
        raise SystemExit


@pytest.mark.soak  # many seconds
def test_a_start_killed_before_its_record_is_written_leaves_none_of_an_earlier_server(machine, monkeypatch):
    first = machine.lab("ensure")
    os.kill(first["pid"], signal.SIGKILL)
    wait_for(lambda: not running(first["pid"]) and not is_running(machine.dir / "jupyter"))
    monkeypatch.setenv("HOME", str(machine.home))
    with pytest.raises(SystemExit):
        KilledStart(machine.dir).ensure(30.0)
    second = machine.lab("ensure")
    assert (second["started"], second["port"]) == (False, first["port"])
    assert running(second["pid"])
    assert machine.lab("stop") == {"stopped": True}


def _configured(machine, settings):
    config = machine.dir / "jupyter" / "config"
    config.mkdir(parents=True)
    (config / "jupyter_server_config.json").write_text(json.dumps(settings))


@pytest.mark.soak  # many seconds
def test_a_token_of_jupyters_own_configuration_does_not_win(machine):
    _configured(machine, {"IdentityProvider": {"token": "another"}})
    server = machine.lab("ensure")
    assert machine.ask("GET", "/api/status", server["port"])["started"]
    machine.lab("stop")


@pytest.mark.soak  # many seconds
def test_a_token_that_jupyters_own_configuration_sets_past_ours_is_named(machine):
    _configured(machine, {"PasswordIdentityProvider": {"token": "another"}})
    try:
        assert "Jupyter's own configuration" in machine.lab("ensure")["error"]
    finally:
        machine.lab("stop")


@pytest.mark.soak
def test_a_token_in_the_environment_does_not_win(machine, monkeypatch):
    monkeypatch.setenv("JUPYTER_TOKEN", "mine")
    server = machine.lab("ensure")
    assert machine.ask("GET", "/api/status", server["port"])["started"]
