"""Launch, look, tag, stop, start, terminate, as on a cloud."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudgpu.agent.program import own_meter_source, source
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.errors import InstanceNotFound, InvalidRequest, NoCapacity
from cloudgpu.providers.local.processes import marker, wait_for
from cloudgpu.providers.local.provider import make
from tests.providers.local.cloud import PATIENCE_S, Cloud, processes_under, words_of


def test_a_launched_machine_runs_on_loopback_with_its_tags(cloud):
    attempt = cloud.attempt(tags={"cloudgpu-owner": "ada"})
    launched = cloud.provider.launch(attempt, deadline=datetime.now(UTC))
    assert launched.state in (State.PENDING, State.RUNNING)
    assert launched.billed
    running = cloud.wait(launched.id, State.RUNNING)
    assert running.address.host == "127.0.0.1"
    assert running.tags == dict(attempt.tags)
    assert (running.region, running.zone, running.instance_type) == ("here", "here", "local")
    assert running.launched_at <= running.since
    assert cloud.provider.list().instances == (running,)
    with socket.create_connection(("127.0.0.1", running.address.port), timeout=10) as connection:
        assert connection.recv(8) == b"SSH-2.0-"


def test_the_same_token_is_the_same_machine_from_two_providers_at_once(cloud):
    attempt = cloud.attempt()
    others = [make(cloud.settings) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda one: one.launch(attempt, deadline=datetime.now(UTC)).id, others))
    assert len(set(made)) == 1
    assert len(cloud.provider.list().instances) == 1
    cloud.wait(made[0], State.RUNNING)
    assert len([one for one in processes_under(cloud.home) if "--alive" in words_of(one)]) == 1


@pytest.mark.soak
def test_two_machines_live_side_by_side(cloud):
    one, two = cloud.running("one"), cloud.running("two")
    assert one.id != two.id
    assert one.address.port != two.address.port
    cloud.provider.terminate(one.id)
    assert cloud.provider.get(two.id).state is State.RUNNING


@pytest.mark.soak
def test_a_stopped_machine_has_no_process_and_keeps_its_files_and_port(cloud):
    before = cloud.running(script="echo kept > file.txt; setsid sleep 1000 >/dev/null 2>&1 &")
    kept = cloud.layout(before.id).home / "file.txt"
    assert wait_for(kept.exists, PATIENCE_S)
    cloud.provider.stop(before.id)
    stopped = cloud.provider.get(before.id)
    assert (stopped.state, stopped.billed, stopped.reason) == (State.STOPPED, False, "asked")
    assert before.since <= stopped.since <= datetime.now(UTC)
    assert stopped.address is None
    assert processes_under(cloud.home) == []
    cloud.provider.stop(before.id)  # twice is fine
    cloud.provider.start(before.id)
    after = cloud.wait(before.id, State.RUNNING)
    assert (after.id, after.tags, after.address) == (before.id, before.tags, before.address)
    assert after.reason is None
    assert kept.read_text() == "kept\n"
    cloud.provider.start(before.id)  # twice is fine


@pytest.mark.soak
def test_a_port_taken_meanwhile_is_replaced(cloud):
    before = cloud.running()
    cloud.provider.stop(before.id)
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", before.address.port))
        squatter.listen()
        cloud.provider.start(before.id)
        after = cloud.wait(before.id, State.RUNNING)
    assert after.address.port != before.address.port


def test_terminate_leaves_no_process_and_no_file(cloud):
    machine = cloud.running(script="mkdir -p deep/er; touch deep/er/x; chmod 500 deep; setsid sleep 1000 &")
    cloud.provider.terminate(machine.id)
    with pytest.raises(InstanceNotFound):
        cloud.provider.get(machine.id)
    assert processes_under(cloud.home) == []
    assert cloud.empty
    cloud.provider.terminate(machine.id)  # an unknown id is no error


def test_a_stopped_machine_is_terminated_too(cloud):
    machine = cloud.running()
    cloud.provider.stop(machine.id)
    cloud.provider.terminate(machine.id)
    assert cloud.empty


@pytest.mark.soak
def test_a_process_that_ignores_sigterm_or_cleans_its_environment_is_ended_too(cloud):
    stubborn = "trap '' TERM; env -i setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & touch begun; sleep 1000"
    machine = cloud.running(script=stubborn)
    assert wait_for((cloud.layout(machine.id).home / "begun").exists, PATIENCE_S)
    cloud.provider.stop(machine.id)
    assert cloud.provider.get(machine.id).state is State.STOPPED
    assert processes_under(cloud.home) == []


@pytest.mark.soak
def test_a_frozen_machine_process_is_ended_too(cloud):
    machine = cloud.running()
    number = int(cloud.layout(machine.id).lifetime_lock.read_text())
    os.kill(number, signal.SIGSTOP)
    cloud.provider.stop(machine.id)
    assert cloud.provider.get(machine.id).state is State.STOPPED
    assert processes_under(cloud.home) == []


@pytest.mark.soak
def test_a_process_of_another_machine_or_of_nobody_is_left_alone(cloud):
    one, two = cloud.running("one"), cloud.running("two")
    cloud.provider.terminate(one.id)
    assert os.kill(int(cloud.layout(two.id).lifetime_lock.read_text()), 0) is None
    assert cloud.provider.get(two.id).since == two.since


def test_tags_are_merged_and_the_machine_reads_them(cloud):
    machine = cloud.running()
    cloud.provider.tag(machine.id, {"cloudgpu-hold-until": "1800000000", "cloudgpu-new": "x"})
    now = cloud.provider.get(machine.id).tags
    assert now == {**machine.tags, "cloudgpu-hold-until": "1800000000", "cloudgpu-new": "x"}
    assert json.loads(cloud.layout(machine.id).tags.read_text()) == now


def test_what_the_agent_wrote_is_reported(cloud):
    machine = cloud.running()
    agent = cloud.layout(machine.id).agent
    (agent / "last-active").write_text("1790000000\n")
    (agent / "expires").write_text(str(int(machine.tags["cloudgpu-expires"]) + 3600))
    seen = cloud.provider.get(machine.id)
    assert seen.last_active == datetime.fromtimestamp(1790000000, UTC)
    assert int(seen.tags["cloudgpu-expires"]) == int(machine.tags["cloudgpu-expires"]) + 3600
    (agent / "expires").write_text("5")  # a renewal never shortens
    assert cloud.provider.get(machine.id).tags == machine.tags


def test_a_stopped_machine_has_the_samples_that_its_agent_took(cloud):
    machine = cloud.running(agent_source=source())
    boot, now = Path("/proc/sys/kernel/random/boot_id").read_text().strip(), datetime.now(UTC).timestamp()
    taken = [boot, now, {"t": time.clock_gettime(time.CLOCK_BOOTTIME), "s": 60.0, "cpu": 0.5, "power": 80.0}]
    (cloud.layout(machine.id).agent / "samples").write_text(json.dumps(taken) + "\n")
    cloud.provider.stop(machine.id)
    samples = json.loads(cloud.provider.agent_status(machine.id, now - 60))["samples"]
    assert (samples[0]["power"], samples[0]["t"]) == (80.0, pytest.approx(now, abs=1))
    assert all(one["t"] > now for one in json.loads(cloud.provider.agent_status(machine.id, now + 1))["samples"])


def test_the_agent_finds_its_settings(cloud):
    program = "import json, pathlib, sys\nhere = pathlib.Path(__file__).parent\n"
    program += "(here / 'seen').write_text(json.dumps([sys.argv[1:], json.loads((here / 'agent.json').read_text())]))\n"
    machine = cloud.running(agent_source=program, jupyter=("jupyter", "lab", "--no-browser"), policy={"after": 3600.0})
    layout = cloud.layout(machine.id)
    assert wait_for((layout.agent / "seen").exists, PATIENCE_S)
    words, settings = json.loads((layout.agent / "seen").read_text())
    assert words == ["run"]
    assert settings["root"] == str(layout.home)
    assert settings["metadata"] == {"kind": "file", "path": str(layout.tags)}
    assert settings["notice"] == {"kind": "file", "path": str(layout.spot)}
    assert settings["jupyter"][1:] == ["-m", "jupyterlab", "--no-browser"]
    assert settings["own"] == [f"CLOUDGPU_MACHINE={marker(layout.root)}"]
    assert (settings["policy"], settings["gpus"]) == ({"after": 3600.0}, 0)
    assert (layout.agent / "own.py").read_text() == own_meter_source()
    assert stat.S_IMODE((layout.agent / "agent").stat().st_mode) == 0o700


def test_a_failed_first_start_is_said_and_the_machine_runs_on(cloud):
    machine = cloud.running(script="echo out of paper\nfalse\ntouch never")

    def said():
        return cloud.provider.get(machine.id).reason is not None

    assert wait_for(said, PATIENCE_S)
    seen = cloud.provider.get(machine.id)
    log = cloud.layout(machine.id).logs / "on_start.log"
    assert seen.state is State.RUNNING
    assert seen.reason == f"on_start failed with status 1: see {log}"
    assert log.read_text() == "out of paper\n"
    assert not (cloud.layout(machine.id).home / "never").exists()


@pytest.mark.soak
def test_on_start_is_run_at_every_start(cloud):
    machine = cloud.running(script="echo again >> count")
    run = cloud.layout(machine.id).run
    assert wait_for(lambda: json.loads(run.read_text())["on_start"] == {"status": 0}, PATIENCE_S)
    cloud.provider.stop(machine.id)
    cloud.provider.start(machine.id)
    cloud.wait(machine.id, State.RUNNING)
    assert wait_for(lambda: json.loads(run.read_text())["on_start"] == {"status": 0}, PATIENCE_S)
    assert (cloud.layout(machine.id).home / "count").read_text() == "again\nagain\n"


def test_keys_and_directories_are_private(cloud):
    layout = cloud.layout(cloud.running().id)
    assert stat.S_IMODE(layout.host_key.stat().st_mode) == 0o600
    assert stat.S_IMODE(layout.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(cloud.home.stat().st_mode) == 0o700


def test_the_machine_does_not_inherit_the_callers_secrets(cloud, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
    cloud.running(script="sleep 1000")
    environments = [one.environ() for one in processes_under(cloud.home)]
    assert environments
    assert all("hunter2hunter2" not in values.values() for values in environments)


def test_an_unknown_machine_is_not_found(cloud):
    for call in (cloud.provider.get, cloud.provider.stop, cloud.provider.start, cloud.provider.timer):
        for name in ("i-0123456789abcdef", "../../etc", "i-../x", ""):
            with pytest.raises(InstanceNotFound):
                call(name)
    assert cloud.provider.list().instances == ()


@pytest.mark.soak
def test_a_broken_record_is_named_and_hides_no_other(cloud):
    broken, whole = cloud.running("one"), cloud.running("two")
    record = cloud.layout(broken.id).record
    good = record.read_text()
    record.write_text("{")
    listing = cloud.provider.list()
    record.write_text(good)
    assert [one.id for one in listing.instances] == [whole.id]
    assert [one.scope for one in listing.unanswered] == [f"mine/{broken.id}"]


def test_this_computer_is_offered_in_both_markets_and_nothing_it_does_not_have(cloud, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")  # no nvidia-smi
    both = [item for market in Market for item in cloud.provider.available(Requirements(market=market)).items]
    assert [item.market for item in both] == [Market.ON_DEMAND, Market.SPOT]
    assert both[0].accelerators == ()
    assert both[0].vcpus >= 1
    assert cloud.provider.available(Requirements(gpu="v100")).items == ()
    assert cloud.provider.available(Requirements(region="us-east-1")).items == ()


def test_looking_makes_nothing(tmp_path):
    fresh = Cloud(tmp_path / "none")
    assert fresh.provider.list().instances == ()
    with pytest.raises(InstanceNotFound):
        fresh.provider.get("i-0123456789abcdef")
    fresh.provider.terminate("i-0123456789abcdef")
    assert not (tmp_path / "none").exists()


def test_a_machine_that_was_interrupted_cannot_be_started(cloud):
    cloud.with_options(interruption_notice="1s")
    machine = cloud.running()
    cloud.provider.interrupt(machine.id)
    cloud.wait(machine.id, State.TERMINATED)
    with pytest.raises(InvalidRequest, match="was interrupted and is gone"):
        cloud.provider.start(machine.id)


def test_a_gpu_that_a_machine_was_launched_for_is_refused_to_another_one_until_it_is_stopped(cloud, nvidia_smi):
    nvidia_smi("Tesla T4, 15360\\n", "70.00\\n")
    gpu = Requirements(gpu="t4")

    def launch(key, want=gpu):
        attempt = cloud.attempt(key, tags={"cloudgpu-name": key})
        attempt = replace(attempt, request=replace(attempt.request, requirements=want))
        return cloud.provider.launch(attempt, deadline=datetime.now(UTC))

    fox = launch("fox").id
    assert launch("fox").id == fox
    assert "fox has the GPU of this computer" in cloud.provider.available(gpu).items[0].after[0]
    with pytest.raises(NoCapacity, match="fox has the GPU of this computer"):
        launch("elk")
    assert cloud.provider.available(Requirements()).items[0].after == ()
    assert launch("owl", Requirements()).accelerators
    cloud.provider.stop(fox)
    launch("elk")
    with pytest.raises(NoCapacity, match="elk has the GPU of this computer"):
        cloud.provider.start(fox)
