"""Somebody else's Slurm: jobs that an own machine submits; and a job whose nodes do not see the submitter's files."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgpu.access.jobs.program import slurm_program
from cloudgpu.cli.jobs.text import spent_text
from cloudgpu.control.cost.cost import cost_document
from cloudgpu.control.cost.exports import ExportFormat, ExportPeriod, export
from cloudgpu.control.cost.report import report_document
from cloudgpu.control.cost.report_delivery import has_spending
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inputs.periods import parse_cost
from cloudgpu.control.jobs.listing import job_document
from cloudgpu.control.jobs.plan import plan_run
from cloudgpu.control.jobs.watch import reconcile_to_end
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.session.session import all_jobs
from cloudgpu.core.events.job_events import job_closed, job_ended, job_in_slurm, job_placed, job_requested
from cloudgpu.core.jobs.job import State
from cloudgpu.core.values.times import Period, iso
from cloudgpu.views.jobs import exit_code
from tests.access.slurm.loopback import Loopback
from tests.control.jobs.bench import Bench
from tests.providers.ssh.hosts import OwnHost


def can_hide():
    """Whether a process here may have files of its own where others see other ones."""
    return not subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(scope="module")
def slurm(homes):
    """Two nodes; the second has nothing of the homes that the first one has, where the system allows that."""
    hidden = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {homes} && mkdir {homes}/own && exec "$@"', "sh"]
    made = Loopback(2, prefix={1: hidden} if can_hide() else None)
    yield made
    made.end()


@pytest.fixture(scope="module")
def login(homes, slurm):
    """A home that knows the login node of that Slurm, whose login shells find it, and where it has a machine."""
    host = OwnHost(homes, "login", path=f"/usr/sbin:{os.environ['PATH']}").start()
    (host.home / ".profile").write_text(f"export SLURM_CONF={slurm.conf}\n")
    table = ", ".join(f"{key} = {json.dumps(value)}" for key, value in host.options.items())
    home = homes / "user" / "home"
    home.mkdir(parents=True)
    (home / "config.toml").write_text(f'provider = "ssh"\n[accounts.lab]\nprovider = "ssh"\nhosts = [{{{table}}}]\n')
    made = Bench(homes / "user")
    launch(made.session, prepare(made.session, parse_request(provider="ssh", name="login", template="bare")))
    yield made
    made.end()
    assert host.clean_up() == []


@pytest.mark.soak
def test_a_job_is_submitted_there_and_is_free(login, slurm):
    one = "echo in $SLURM_JOB_PARTITION; cp train.py $CLOUDGPU_RESULTS; exit 3"
    failing = login.begun("sh", "-c", one, on="login", timeout="5m", partition="all", name="failing")
    reconcile_to_end(login.session, [failing], login.environ)
    job = login.now(failing)
    assert (job.state, exit_code(job)) == (State.FAILED, 3), job.why
    assert (login.home / "jobs" / job.id / "out-1").read_text() == "in all\n"
    assert (login.work / "results" / "failing" / "train.py").exists()
    value = job_document(login.session, job)
    assert (value["slurm"]["id"], value["slurm"]["cluster"], spent_text(value)) == (job.slurm_id, None, "free")
    assert "Name=failing-" in (slurm.place / "jobcomp").read_text()


@pytest.mark.soak
def test_a_partition_that_there_is_not_is_told(login):
    job, _, err = login.run("true", on="login", timeout="5m", partition="nope", name="nowhere")
    assert (job.state, exit_code(job)) == (State.SETUP_FAILED, 2)
    assert b"invalid partition specified: nope" in err


def test_what_that_slurm_asks_is_in_costs_report_and_exports_as_the_jobs_own(login):
    session, machine = login.session, login.left()[0]
    now, asks = session.clock(), {"usd_per_gpu_hour": 250_000_001, "gpus_per_node": 4}
    planned = plan_run(session, login.request("true", on="login", timeout="5m", name="asked"), login.environ)
    job_spec = {**planned.spec, "slurm": {**planned.spec["slurm"], **asks}, "owner": "bob"}
    task = {"id": "77", "state": "COMPLETED", "machines": []}
    task |= {"begin": iso(now - timedelta(hours=3)), "end": iso(now - timedelta(hours=1))}
    session.ledger.append(
        [
            job_requested("job-77", "asked", None, "tower", job_spec, now - timedelta(hours=3)),
            job_placed("job-77", 1, now - timedelta(hours=3), key=None, machine=machine.id),
            *(job_in_slurm("job-77", 1, "77", [task], now + timedelta(seconds=late)) for late in range(3)),
            job_ended("job-77", 1, "succeeded", now, status=0),
            job_closed("job-77", "it is over", now),
        ]
    )
    price = "2.000000008"
    groups = {
        by: cost_document(session, parse_cost(session.settings, now, by=by)) for by in ("job", "owner", "resource")
    }
    rows = {(by, one["group"]): one["usd"] for by, found in groups.items() for one in found["groups"]}
    assert rows["job", "job-77"] == rows["owner", "bob"] == rows["resource", "slurm"] == price
    for found in groups.values():  # the login node's own hours cost a little, too
        assert sum(Decimal(one["usd"]) for one in found["groups"]) == Decimal(found["total_usd"]) > Decimal(price)
    value = job_document(session, all_jobs(session)["job-77"])
    assert value["spent_usd"] == value["slurm"]["tariff_usd"] == price
    only_the_job_ran = Period(now - timedelta(hours=3), now - timedelta(hours=2))
    assert has_spending(session, only_the_job_ran)  # so that the month's report is sent
    report = report_document(session)
    assert [one["usd"] for one in report["jobs"] if one["id"] == "job-77"] == [price]
    assert [one["usd"] for one in report["owners"] if one["name"] == "bob"] == [price]
    assert sum(Decimal(one["usd"]) for one in report["machines"]) == Decimal(report["total"]["usd"]) > Decimal(price)
    for form in ExportFormat:
        export(session, form, ExportPeriod(None, None, session.clock()), login.home / f"bill.{form}")
    charges = json.loads((login.home / "bill.json").read_text())["charges"]
    assert sum(Decimal(one["usd"]) for one in charges if one["job"] == "job-77") == Decimal(price)
    assert {(one["resource"], one["owner"]) for one in charges if one["job"] == "job-77"} == {("slurm", "bob")}
    assert "cloudgpu-job" in (login.home / "bill.focus").read_text()


def submitted(homes, slurm, number, script, more, secret):
    """What a job leaves in its directory, and how its program ended, whose nodes do not see the submitter's files."""
    place = homes / "own" / ".cloudgpu" / "jobs" / "job-1" / str(number)
    (place / "work" / "results").mkdir(parents=True)
    (place / "checkpoint").mkdir()
    (place / "work" / "in.txt").write_text("input\n")
    (place / "secrets").write_text(json.dumps(secret))
    for name, text in slurm_program().items():
        (place / name).write_text(text)
    asked = {"name": f"far-{number}", "nodes": 1, "minutes": 5, "whole": True, "conf": str(slurm.conf), "spread": True}
    asked |= {"own": slurm.nodes[0], "token": secrets.token_hex(8), **more}
    spec = {"argv": ["sh", "-c", script], "results": "results", "slurm": asked, "env": {}}
    (place / "spec.json").write_text(json.dumps(spec))
    environ = {"CLOUDGPU_ATTEMPT": place, "CLOUDGPU_RESULTS": place / "work" / "results"}
    environ |= {"CLOUDGPU_CHECKPOINT": place / "checkpoint", "PATH": slurm.environ["PATH"], "HOME": homes / "own"}
    words = [sys.executable, "-IS", str(place / "begin.py"), str(place)]
    return place, subprocess.run(words, env=environ, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.soak
def test_nodes_that_do_not_see_the_files_are_sent_them_and_their_results_come_back(homes, slurm):
    if not can_hide():
        pytest.skip("Processes here may not have mounts of their own.")
    script = 'cat in.txt; touch "$CLOUDGPU_CHECKPOINT/c"; echo $PIN > "$CLOUDGPU_RESULTS/$SLURMD_NODENAME"; exit 5'
    place, done = submitted(homes, slurm, 1, script, {"array": "0-1", "setup": "echo set up >&2"}, {"PIN": "4711"})
    assert done.returncode == 5, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] input", "[1] input"]
    found = {one.name: one.read_text() for one in (place / "work" / "results").iterdir()}
    assert found == dict.fromkeys(slurm.nodes, "4711\n")
    assert (place / "checkpoint" / "c").exists()
    assert list(homes.rglob("*secrets*")) == []


@pytest.mark.soak
def test_results_of_the_other_ranks_come_from_their_nodes_each_in_a_directory_of_its_own(homes, slurm):
    if not can_hide():
        pytest.skip("Processes here may not have mounts of their own.")
    later = "test $CLOUDGPU_NODE_RANK = 0 || { sleep 1; exit 5; }"  # a rank that fails has the others killed
    script = f'echo $PIN $CLOUDGPU_NODE_RANK > "$CLOUDGPU_RESULTS/rank"; {later}'
    place, done = submitted(homes, slurm, 2, script, {"nodes": 2}, {"PIN": "4711"})
    assert done.returncode == 5, done.stderr
    found = {one.relative_to(place): one.read_text() for one in (place / "work" / "results").rglob("rank")}
    assert found == {Path("work/results/rank"): "4711 0\n", Path("work/results/rank-1/rank"): "4711 1\n"}
    assert list(homes.rglob("*secrets*")) == []
