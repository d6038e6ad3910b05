"""The library's jobs: real processes on a machine of this computer; the fake cloud where no command has to run."""

from __future__ import annotations

import json
import os
from io import BytesIO
from pathlib import Path
from threading import Thread

import pytest

import cloudgpu
from cloudgpu.testing import FAKE, write_plugin
from tests.cli.many import QuickProgram, shared

ROOT = Path(__file__).parents[3]


class Desk:
    """A home with a machine that is there, a working directory, and the library on both."""

    def __init__(self, root):
        self.home, self.work, self.told = root / "home", root / "work", []
        self.work.mkdir()
        self.environ = {**os.environ, "CLOUDGPU_HOME": str(self.home), "ONLY_GIVEN": "x7Kd"}
        self.gpu = self.connected()

    def connected(self):
        return cloudgpu.connect(environ=self.environ, tell=self.told.append)

    def run(self, *argv, **options):
        return self.gpu.jobs.run(argv, **{"workdir": self.work, "on": "desk", **options})

    def submit(self, *argv, **options):
        return self.gpu.jobs.submit(argv, **{"workdir": self.work, "on": "desk", **options})


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    made = Desk(tmp_path_factory.mktemp("desk"))
    with made.gpu as gpu:
        gpu.machines.up(provider="local", name="desk", template="bare")
        yield made
        gpu.machines.down(all=True)


@pytest.fixture
def program(desk):
    """The command line on the same home."""
    return QuickProgram(desk.home, {"PYTHONPATH": str(ROOT)}, shared())


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """The library with an account at the fake cloud, and a directory for jobs; `lab` is that cloud."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    state = json.dumps(str(tmp_path / "cloud.json"))
    (home / "config.toml").write_text(f'[accounts.lab]\nprovider = "fake"\nstate_file = {state}\n')
    monkeypatch.syspath_prepend(str(write_plugin(tmp_path / "plugin", {"fake": FAKE})))
    monkeypatch.chdir(work)
    with cloudgpu.connect(home=home) as gpu:
        gpu.lab = gpu._session.provider("lab")
        yield gpu


WISH = {"provider": "fake", "gpu": "v100"}


def refused(call, kind=cloudgpu.InvalidRequest):
    with pytest.raises(kind) as raised:
        call()
    assert type(raised.value) is kind
    return raised.value


def test_run_returns_the_job_once_its_results_are_here_and_streams_to_files(desk):
    out, err = BytesIO(), BytesIO()
    says = "echo said; echo bad >&2; mkdir -p results; echo 7 > results/answer"
    job = desk.run("sh", "-c", says, name="first", stdout=out, stderr=err)
    assert (job["state"], job["living"], job["exit"]["code"]) == ("succeeded", False, 0)
    assert (out.getvalue(), err.getvalue()) == (b"said\n", b"bad\n")
    assert job["results"]["directory"] == str(desk.work / "results" / "first")
    assert (desk.work / "results" / "first" / "answer").read_text() == "7\n"
    assert job == desk.gpu.jobs.show("first")
    assert [machine["name"] for machine in desk.gpu.machines.ls()["machines"]] == ["desk"]


def test_a_command_that_fails_raises_nothing_and_prints_nothing(desk, capfdbinary):
    job = desk.run("sh", "-c", "echo said; exit 7", name="fails")
    assert (job["state"], job["exit"]["status"], job["exit"]["by"]) == ("failed", 7, "command")
    assert capfdbinary.readouterr() == (b"", b"")
    assert desk.gpu.jobs.logs("fails").stdout == b"said\n"


def test_a_job_that_was_left_is_found_again_by_name_and_waited_for(desk, tmp_path):
    says = f"echo begun; until test -e {tmp_path}/go; do sleep 0.1; done; echo over"
    job = desk.run("sh", "-c", says, name="left", detach=True)
    assert (job["state"], job["living"]) == ("running", True)
    assert [one["name"] for one in desk.gpu.jobs.list()["jobs"]] == ["left"]
    assert desk.submit(*job["command"], name="left")["id"] == job["id"], "the same request is the same job"
    (same,) = desk.gpu.jobs.wait("left", timeout="1s")
    assert (same["id"], same["living"]) == (job["id"], True)
    assert desk.gpu.jobs.logs("left", since="10m").stdout == b"begun\n"
    (tmp_path / "go").touch()
    assert [one["state"] for one in desk.gpu.jobs.wait()] == ["succeeded"], "without names, all that live"
    out = BytesIO()
    assert desk.gpu.jobs.logs(job["id"], stdout=out).stdout == b"", "it went to the file"
    assert out.getvalue() == b"begun\nover\n"


def test_a_second_thread_follows_what_the_first_carries_on(desk):
    job = desk.submit("sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.2; done", name="followed")
    assert (job["state"], job["attempts"]) == ("pending", [])

    def carries():
        with desk.connected() as gpu:
            gpu.jobs.wait("followed")

    thread = Thread(target=carries)
    thread.start()
    found = desk.gpu.jobs.logs("followed", follow=True)
    thread.join()
    assert (found.stdout, found.stderr) == (b"1\n2\n3\n", b"")
    assert desk.gpu.jobs.show("followed")["state"] == "succeeded"


@pytest.mark.soak
def test_jobs_that_are_waited_for_run_side_by_side(desk, tmp_path):
    """Each ends only once the other has begun."""
    jobs = []
    for own, other in (("a", "b"), ("b", "a")):
        says = f"touch {tmp_path}/{own}; until test -e {tmp_path}/{other}; do sleep 0.1; done; echo {own}"
        more = {"on": None, "provider": "local", "template": "bare", "timeout": "2m"}
        jobs.append(desk.submit("sh", "-c", says, name=f"meets-{own}", **more)["id"])
    found = desk.gpu.jobs.wait(*reversed(jobs))
    assert [(one["name"], one["state"]) for one in found] == [("meets-b", "succeeded"), ("meets-a", "succeeded")]
    assert [desk.gpu.jobs.logs(one).stdout for one in jobs] == [b"a\n", b"b\n"]
    assert [machine["name"] for machine in desk.gpu.machines.ls()["machines"]] == ["desk"]
    assert "job meets-a: running" in desk.told


def test_a_busy_machine_is_refused_and_a_cancelled_job_frees_it(desk):
    job = desk.run("sleep", "60", name="long", detach=True)
    fault = refused(lambda: desk.submit("true"))
    assert (fault.field, "long" in fault.message) == ("--on", True)
    done = desk.gpu.jobs.cancel("long")
    assert (done["job"]["id"], done["job"]["state"], done["waits"]) == (job["id"], "cancelled", None)
    assert desk.gpu.jobs.cancel("long")["was_over"]
    assert desk.run("true")["state"] == "succeeded"


def test_the_environment_that_was_given_has_the_secrets(desk):
    assert "ONLY_GIVEN" not in os.environ
    job = desk.run("sh", "-c", 'test "$ONLY_GIVEN" = x7Kd', secret=["ONLY_GIVEN"])
    assert job["state"] == "succeeded"
    assert refused(lambda: desk.run("true", secret=["NOWHERE_SET"])).field == "--secret"


def test_a_plan_says_what_would_happen_and_begins_nothing(desk):
    (desk.work / "rows.csv").write_text("1,2\n")
    (desk.work / ".env").write_text("KEY=1")
    before = desk.gpu.jobs.list(ended=True)
    planned = desk.gpu.jobs.plan(["cat", "rows.csv"], workdir=desk.work, on="desk", name="planned", max_cost=3)
    plan = planned["plan"]
    assert (planned["existing"], plan["name"], plan["machine"], plan["launch"]) == (None, "planned", "desk", None)
    assert (plan["files"], plan["bytes"], plan["secrets"], plan["planned_max_usd"]) == (1, 4, [".env"], "3")
    assert plan["results"] == str(desk.work / "results" / "planned")
    assert desk.gpu.jobs.list(ended=True) == before


@pytest.mark.soak
def test_the_documents_and_errors_are_those_of_the_command_line(desk, program):
    desk.run("true", name="shown")
    assert program("jobs", "--all", "-o", "json").json == desk.gpu.jobs.list(ended=True, mine=True)
    assert program("show", "job:shown", "-o", "json").json == desk.gpu.jobs.show("shown")
    for call, words in (
        (lambda: desk.gpu.jobs.logs("nobody"), "logs nobody"),
        (lambda: desk.gpu.jobs.cancel("nobody"), "cancel nobody --yes"),
    ):
        fault = refused(call, cloudgpu.InstanceNotFound)
        said = program(*words.split())
        assert (said.code, fault.message in " ".join(said.err.split())) == (fault.exit_code, True), said.err


def test_what_cannot_be_meant_is_refused_before_anything_is_written(cloud):
    jobs = cloud.jobs
    assert refused(lambda: jobs.run("python train.py", **WISH)).field == "CMD"
    assert refused(lambda: jobs.submit(["true"], timeout="soon", **WISH)).field == "--timeout"
    assert refused(lambda: jobs.plan(["true"], workdir="nowhere", **WISH)).field == "--workdir"
    assert refused(lambda: jobs.logs("x"), cloudgpu.InstanceNotFound).field == "NAME"
    assert refused(lambda: jobs.wait("x", timeout="1h"), cloudgpu.InstanceNotFound).field == "NAME"
    assert refused(lambda: jobs.wait(timeout="soon")).field == "timeout"
    with pytest.raises(TypeError, match="'gpus'"):
        jobs.run(["true"], gpus="v100")
    assert jobs.list(ended=True) == {"jobs": []}
    assert jobs.wait() == []


def test_a_time_that_is_none_is_refused(cloud):
    job = cloud.jobs.submit(["true"], **WISH)
    assert refused(lambda: cloud.jobs.logs(job["name"], since="soon")).field == "--since"


def test_a_launch_is_planned_and_the_living_job_of_that_name_is_named_instead(cloud):
    options = {**WISH, "name": "owl", "timeout": "1h"}
    plan = cloud.jobs.plan(["true"], **options)["plan"]
    assert (plan["machine"], plan["launch"]["provider"], float(plan["planned_max_usd"]) > 0) == (None, "fake", True)
    job = cloud.jobs.submit(["true"], **options)
    assert cloud.jobs.plan(["true"], **options) == {"plan": None, "existing": job}
    assert refused(lambda: cloud.jobs.plan(["false"], **options)).field == "NAME"


def test_a_launch_that_is_refused_raises_and_leaves_the_name_free(cloud):
    for _ in range(9):
        cloud.lab.fail_next("launch", cloudgpu.QuotaExceeded("there is none"))
    refused(lambda: cloud.jobs.run(["true"], name="owl", **WISH), cloudgpu.QuotaExceeded)
    (job,) = cloud.jobs.list(ended=True)["jobs"]
    assert (job["state"], job["living"], job["exit"]["by"]) == ("not_launched", False, "cloudgpu")
    assert cloud.jobs.submit(["true"], name="owl", **WISH)["id"] != job["id"]


def test_a_launch_that_is_refused_while_it_is_waited_for_is_the_jobs_state(cloud):
    for _ in range(9):
        cloud.lab.fail_next("launch", cloudgpu.QuotaExceeded("there is none"))
    cloud.jobs.submit(["true"], name="owl", **WISH)
    (job,) = cloud.jobs.wait("owl")
    assert (job["state"], job["living"]) == ("not_launched", False)
    assert "there is none" in job["why"]


def test_a_budget_that_does_not_carry_a_job_refuses_it_before_it_is_written(cloud):
    cloud.money.set_budget("small", "0.01", "total")
    for begins in (cloud.jobs.run, cloud.jobs.submit):
        refused(lambda begins=begins: begins(["true"], **WISH), cloudgpu.BudgetRefused)
    (fit,) = cloud.jobs.plan(["true"], **WISH)["plan"]["launch"]["budgets"]
    assert (fit["name"], fit["fits"]) == ("small", False)
    assert cloud.jobs.list(ended=True) == {"jobs": []}
