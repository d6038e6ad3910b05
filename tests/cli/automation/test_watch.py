"""watch as a process: what is overdue is done at once, one pass at a time, and no fault ends it."""

# ruff: noqa: S310  (the URL is one that we have just served)

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.scheduler.watch import Watch
from cloudgpu.control.session.last_run import read_last_run
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.values.times import from_iso
from cloudgpu.testing import FAKE, ManualClock, write_plugin
from tests.cli.many import QuickProgram, shared
from tests.cli.program import until

SECOND = timedelta(seconds=1)
LONG = 60  # seconds: many times what it takes, for a machine that is busy with other tests


class Home:
    """A home on a made-up cloud, whose machines may have been launched long ago."""

    def __init__(self, tmp_path, monkeypatch):
        plugin = write_plugin(tmp_path / "plugin", {"fake": FAKE})
        monkeypatch.syspath_prepend(plugin)
        path = f"{plugin}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self.cloudgpu = QuickProgram(tmp_path / "home", {"PYTHONPATH": path}, shared())
        state = f'state_file = "{tmp_path / "cloud.json"}"'
        self.config = f'provider = "fake"\n[accounts.lab]\nprovider = "fake"\n{state}\n'
        self.cloudgpu.config(self.config)
        self.started: list[subprocess.Popen[bytes]] = []

    def policy(self, text):
        file = self.cloudgpu.home / "policies" / "short.yaml"
        file.parent.mkdir()
        file.write_text(text)
        self.cloudgpu.config(f'policy = "short"\n{self.config}')

    @property
    def environ(self):
        return {"CLOUDGPU_HOME": str(self.cloudgpu.home), "USER": "ada"} | {
            name: text for name, text in self.cloudgpu.environ.items() if name == "CLOUDGPU_LEDGER"
        }

    def opened(self, clock=None):
        return open_session(self.environ) if clock is None else open_session(self.environ, clock=clock)

    def launched(self, *, ago, name=None):
        """A machine that was launched so long ago, and that nobody has looked at since."""
        clock = ManualClock(datetime.now(UTC) - ago)
        session = self.opened(clock)
        session.pause = clock.advance
        launch(session, prepare(session, UpRequest(Requirements(gpu="v100"), name=name)), wait=False)
        session.ledger.close()

    def watch(self, *words):
        self.started.append(self.cloudgpu.start("watch", "--prices", "never", *words))
        return self.started[-1]

    def passes(self):
        """When each pass ended, oldest first."""
        session = self.opened()
        try:
            return [from_iso(line.occurred_at) for line in session.ledger.events("reaper")]
        finally:
            session.ledger.close()

    def rows(self):
        session = self.opened()
        try:
            return session.ledger.machines()
        finally:
            session.ledger.close()


@pytest.fixture
def home(tmp_path, monkeypatch):
    home = Home(tmp_path, monkeypatch)
    yield home
    for process in home.started:
        process.kill()
        process.communicate()


def said_of(process):
    """End a watch and return its exit status and its log."""
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=LONG)
    return process.returncode, log.decode()


def test_an_overdue_stop_is_made_at_once_after_a_crash_or_a_night_of_sleep(home):
    home.policy("lease: 1h\nrenew_until: 24h\nunknown: end\n")
    home.launched(ago=timedelta(hours=3))  # its lease was over two hours ago, and its agent is silent
    home.launched(ago=timedelta(minutes=1), name="young")
    watch = home.watch("--every", "10m", "--metrics", "0")
    assert until(lambda: [row.name for row in home.rows() if row.billed] == ["young"], within_s=LONG)
    assert until(home.passes, within_s=LONG)
    status = home.cloudgpu("watch", "--status", "-o", "json").json
    (one,) = status["watching"]
    assert (one["pid"], one["every_s"], status["last_run"]["ok"]) == (watch.pid, 600, True)
    assert from_iso(status["next_at"]) > datetime.now(UTC)
    check_metrics(one["metrics"])
    code, log = said_of(watch)
    assert code == 0, log
    assert re.search(r"a run over 2 machines took .* s; \S+: stop \(", log)
    assert log.rstrip().endswith("ended")
    assert home.cloudgpu("watch", "--status", "-o", "json").json["watching"] == []


def check_metrics(url):
    with urllib.request.urlopen(url, timeout=LONG) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        families = {one.name: one for one in text_string_to_metric_families(answer.read().decode())}
    assert families["cloudgpu_pass_ok"].samples[0].value == 1
    assert families["cloudgpu_pass_duration_seconds"].samples[0].value >= 0
    states = {one.labels["state"]: one.value for one in families["cloudgpu_machines"].samples}
    assert states == {"running": 1, "stopped": 1}
    assert {one.labels["job"] for one in families["cloudgpu_watch_jobs"].samples} == {"alerts", "budgets", "pass"}
    by_name = urllib.request.Request(url, headers={"Host": "LocalHost:9464"})  # names of hosts have no case
    with urllib.request.urlopen(by_name, timeout=LONG) as answer:
        assert answer.status == 200
    asked = urllib.request.Request(url, headers={"Host": "metrics.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=LONG)
    assert refused.value.code == 403


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def test_the_second_watch_goes_on_where_the_first_was_killed_and_no_pass_is_made_twice(home, kind, request):
    if kind == "postgresql":
        home.cloudgpu.environ["CLOUDGPU_LEDGER"] = request.getfixturevalue("postgres").schema()
    every = 1 * SECOND
    first = home.watch("--every", "1s")
    assert until(home.passes, within_s=LONG)
    second = home.watch("--every", "1s")
    there = home.passes()
    assert until(lambda: len(find_watch_processes(home)) == 2, within_s=LONG)
    assert until(lambda: len(home.passes()) >= len(there) + 2, within_s=LONG)
    first.kill()
    first.communicate()
    killed = datetime.now(UTC)
    assert until(lambda: max(home.passes()) > killed, within_s=LONG), "nobody took over"
    assert find_watch_processes(home) == [second.pid]
    code, log = said_of(second)
    assert code == 0
    assert "failed" not in log
    found = home.passes()
    gaps = [later - sooner for sooner, later in pairwise(found)]
    assert min(gaps) >= every, "two watches made the same pass"


def find_watch_processes(home):
    from cloudgpu.control.scheduler.watch import find_watch_processes

    return [one.pid for one in find_watch_processes(home.opened())]


@pytest.mark.soak
def test_a_process_that_was_stopped_and_goes_on_makes_the_pass_that_it_missed(home):
    watch = home.watch("--every", "1s")
    assert until(home.passes, within_s=LONG)
    watch.send_signal(signal.SIGSTOP)
    there = len(home.passes())
    assert until(lambda: datetime.now(UTC) - home.passes()[-1] > 2 * SECOND, within_s=LONG)
    watch.send_signal(signal.SIGCONT)
    assert until(lambda: len(home.passes()) > there, within_s=LONG)
    assert said_of(watch)[0] == 0


@pytest.fixture
def inside(home):
    """A watch in a thread of this process, with all that it says."""
    said: list[str] = []
    watch = Watch(home.environ, every=0.3 * SECOND, price_interval=None, tell=said.append)
    thread = threading.Thread(target=watch.run)
    thread.start()
    yield home, watch, said
    watch.end()
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_fault_in_one_job_ends_no_other_and_is_over_when_it_is_mended(inside):
    home, watch, said = inside
    assert until(home.passes, within_s=LONG)
    file = home.cloudgpu.home / "policies" / "budgets" / "lab.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("amount: much\nperiod: day\n")
    assert until(lambda: {"pass", "budgets"} <= watch.fault_counts.keys(), within_s=LONG)
    assert any(re.search(r"^budgets failed and is tried again: .*lab\.yaml", one) for one in said)
    alerts = watch.run_counts["alerts"]
    assert until(lambda: watch.run_counts["alerts"] > alerts, within_s=LONG), "the others have ended"
    file.unlink()
    assert until(lambda: read_last_run(home.opened().ledger).ok, within_s=LONG)
    assert "alerts" not in watch.fault_counts


def test_settings_that_change_hold_from_the_next_pass_on(inside):
    home, watch, said = inside
    assert until(home.passes, within_s=LONG)
    home.cloudgpu.config("lease = 8\n")
    assert until(lambda: watch.fault_counts.get("pass", 0) > 1, within_s=LONG)
    assert len([one for one in said if one.startswith("pass failed")]) == 1, "what stays wrong is said once"
    home.cloudgpu.config(home.config)
    there = len(home.passes())
    assert until(lambda: len(home.passes()) > there, within_s=LONG)


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "192.0.2.7:9464", "metrics.example:9464", "99999", "web"])
def test_metrics_are_served_to_this_computer_alone(address):
    from cloudgpu.control.scheduler.metrics_server import parse_address
    from cloudgpu.errors import InvalidRequest

    with pytest.raises(InvalidRequest) as fault:
        parse_address(address)
    assert fault.value.field == "--metrics"


@pytest.mark.parametrize(
    ("text", "address"),
    [("9464", ("127.0.0.1", 9464)), ("localhost:0", ("127.0.0.1", 0)), ("[::1]:9464", ("::1", 9464)),
     ("127.0.0.2:80", ("127.0.0.2", 80))],
)  # fmt: skip
def test_an_address_of_loopback_is_taken(text, address):
    from cloudgpu.control.scheduler.metrics_server import parse_address

    assert parse_address(text) == address


def test_a_port_that_is_taken_is_said_and_one_that_is_free_is_proposed(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = home.cloudgpu("watch", "--metrics", str(port), "-o", "text")
        assert done.code == 2
        assert "cannot be served" in done.err
        proposed = int(re.search(r"watch --metrics (\d+)", done.err)[1])
        assert proposed != port
        if proposed:  # 0: any that is free
            socket.create_server(("127.0.0.1", proposed)).close()


def test_bad_words_are_refused_before_anything_begins(home):
    done = home.cloudgpu("watch", "--every", "0.1s", "-o", "json")
    assert done.code == 2
    assert json.loads(done.out)["error"]["field"] in ("--every", "--output")
