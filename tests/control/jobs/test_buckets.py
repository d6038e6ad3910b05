"""Jobs that read data from a bucket and send results there: real boto3, a server that checks what was signed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from cloudgpu.control.jobs.buckets import data as data_of_jobs, results as results_of_jobs
from cloudgpu.control.jobs.plan import plan_run
from cloudgpu.core.jobs import stored as lists
from cloudgpu.core.jobs.job import State
from cloudgpu.errors import InvalidRequest
from tests.clouds.aws.s3 import REGION, SECRET, s3, server
from tests.control.jobs import ssh_cloud
from tests.control.jobs.bench import EACH, STEPS, TRAIN, Bench, answer
from tests.control.jobs.clouds import Rented
from tests.control.jobs.ssh_cloud import processes

__all__ = ["s3", "server"]
TO = "s3://lab/runs"


@pytest.fixture
def world(s3, tmp_path, monkeypatch):
    made = Rented(tmp_path / "0", monkeypatch)
    yield made
    made.session.ledger.close()
    made.machines.end()


@pytest.fixture
def desk(s3, tmp_path):
    """A machine that is there, for jobs that leave it."""
    from cloudgpu.control.inputs.launch_request import parse_request
    from cloudgpu.control.launch.launch import launch
    from cloudgpu.control.launch.plan import prepare

    made = Bench(tmp_path / "desk")
    launch(made.session, prepare(made.session, parse_request(provider="local", name="desk", template="bare")))
    yield made
    made.end()


def put(s3, **objects):
    for key, text in objects.items():
        s3.put_object(Bucket="lab", Key=key, Body=text)


def prefix(job):
    return f"runs/{job.name}-{job.id.removeprefix('job-')}/"


def in_bucket(s3, job):
    """What lies at the job's place: keys below it, with their contents."""
    listed = s3.list_objects_v2(Bucket="lab", Prefix=prefix(job)).get("Contents", ())
    body = lambda key: s3.get_object(Bucket="lab", Key=key)["Body"].read()  # noqa: E731
    return {one["Key"].removeprefix(prefix(job)): body(one["Key"]) for one in listed}


def runs(found):
    return found.job.attempt is not None and found.job.attempt.began_at is not None


def until(holds, most_s=60):
    end = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


# -- data


@pytest.mark.soak
def test_data_of_a_bucket_is_found_at_its_place_and_fetched_once_for_all_jobs(desk, s3, server):
    big = os.urandom(3_000_000)
    s3.put_object(Bucket="lab", Key="set/a b/ü+1.bin", Body=big)
    put(s3, **{"set/rows.csv": "1,2\n", "set/": "", "settle": "not of it"})
    planned = plan_run(desk.session, desk.request("true", on="desk", data=["s3://lab/set:in"]), desk.environ)
    (listed,) = planned.data
    assert (listed.objects, listed.bytes, listed.region) == (2, 3_000_004, REGION)
    assert listed.traffic == ""  # less than a cent
    to_itself = data_of_jobs.traffic_text("aws", REGION, 10**10, ("aws", REGION))
    assert to_itself == ""
    assert "between eu-west-1 and us-east-1" in data_of_jobs.traffic_text("aws", REGION, 1, ("aws", "us-east-1"))
    away = data_of_jobs.traffic_text("aws", REGION, 10**10, ("local", "local"))
    assert away == "AWS charges at most $0.90 for what leaves it"
    says = "cat in/rows.csv; sha256sum < 'in/a b/ü+1.bin'; ls in; test ! -w in/rows.csv || test $(id -u) = 0"
    for _ in range(2):
        job, out, _ = desk.run("sh", "-c", says, on="desk", data=["s3://lab/set:in"])
        assert job.state is State.SUCCEEDED, job.why
        assert out.decode().splitlines()[:2] == ["1,2", f"{hashlib.sha256(big).hexdigest()}  -"]
        assert out.decode().splitlines()[2:] == ["a b", "rows.csv"]
    assert len(server.asked("GET")) == 2  # the second job found them there
    put(s3, **{"set/rows.csv": "3,4\n"})
    job, out, _ = desk.run("cat", "in/rows.csv", on="desk", data=["s3://lab/set/rows.csv:in/rows.csv"])
    assert out == b"3,4\n"


@pytest.mark.soak
def test_a_download_that_is_cut_goes_on_where_it_was(desk, s3, server):
    big = os.urandom(2_000_000)
    s3.put_object(Bucket="lab", Key="set/one", Body=big)
    cuts = iter(["cut", "cut"])
    server.hook = lambda method, key: next(cuts, None) if method == "GET" else None
    job, out, _ = desk.run("sha256sum", "in/one", on="desk", data=["s3://lab/set:in"])
    assert (job.state, out.split()[0].decode()) == (State.SUCCEEDED, hashlib.sha256(big).hexdigest())
    ranges = [one[3] for one in server.asked("GET")]
    assert ranges[0] == ""
    assert all(one.startswith("bytes=") and one != "bytes=0-" for one in ranges[1:]), ranges


@pytest.mark.soak
def test_addresses_that_have_expired_are_signed_anew(desk, s3, server, monkeypatch):
    monkeypatch.setattr(data_of_jobs, "PRESIGNED_URL_TTL_S", 0)
    put(s3, **{"set/one": "1\n"})
    server.hook = lambda method, key: setattr(data_of_jobs, "PRESIGNED_URL_TTL_S", 3600)  # from the next one on
    job, out, _ = desk.run("cat", "in/one", on="desk", data=["s3://lab/set:in"])
    assert (job.state, out) == (State.SUCCEEDED, b"1\n"), job.why
    assert [one[2] for one in server.asked("GET")] == [403, 200]
    assert [one.why for one in job.attempts] == ["the URLs of its data have expired", ""]


@pytest.mark.soak
def test_data_that_is_gone_or_was_changed_ends_the_job_with_the_reason(desk, s3, server):
    put(s3, **{"set/one": "1\n"})
    changed = iter([True])
    server.hook = lambda method, key: put(s3, **{key: "22\n"}) if method == "GET" and next(changed, False) else None
    job, _, _ = desk.run("cat", "in/one", on="desk", data=["s3://lab/set:in"])
    assert (job.state, job.why) == (State.SETUP_FAILED, "s3://lab/set/one was changed while it was downloaded")
    with pytest.raises(InvalidRequest, match="holds nothing"):
        desk.begun("true", on="desk", data=["s3://lab/nothing-here:in"])
    with pytest.raises(InvalidRequest, match=r"s3://no-such-bucket is not there\.$"):
        desk.begun("true", on="desk", data=["s3://no-such-bucket/x:in"])


# -- results


@pytest.mark.soak
def test_results_are_whole_in_the_bucket_and_the_machine_ends_without_a_fetch(world, s3):
    job = world.asked(results_to=TO, every="1s")
    world.child(job)
    job = world.now(job)
    assert (job.state, job.is_open) == (State.SUCCEEDED, False), job.why
    place = f"s3://lab/{prefix(job)}results"
    assert (job.fetched.whole, job.fetched.directory, job.fetched.host, job.fetched.files) == (True, place, "", 2)
    found = in_bucket(s3, job)
    listed = json.loads(found.pop("results.json"))
    assert set(found) == {"results/answer", "results/early", "output/1/out", "output/1/err"}
    assert found["results/answer"] == b"42\n" * 10_000
    said = {one["path"]: one["sha256"] for one in listed["files"]}
    assert said == {name: hashlib.sha256(found[f"results/{name}"]).hexdigest() for name in ("answer", "early")}
    assert not list(world.home.glob("jobs/*/results"))
    assert not (world.work / "results").exists()
    assert (world.home / "jobs" / job.id / "out-1").read_text() == "line one\nline two\n"
    world.nothing_left()


def uploaders(world):
    """The processes on machines of this world that upload: they hold the lock."""
    found = []
    for one in ssh_cloud.processes(world.machines.root):
        with suppress(OSError, psutil.Error):
            if any("store.lock" in str(path.resolve()) for path in Path(f"/proc/{one}/fd").iterdir()):
                found.append(one)
    return found


class Stalled:
    """Holds uploads of one key, and lets them go."""

    def __init__(self, server, part):
        self.there, self.go, self._part = threading.Event(), threading.Event(), part
        server.hook = self

    def __call__(self, method, key):
        if method == "POST" and self._part in key:
            self.there.set()
            self.go.wait(60)


def test_an_uploader_that_is_killed_leaves_nothing_that_is_taken_as_whole_and_another_goes_on(world, s3, server):
    stalled = Stalled(server, "results/answer")
    job = world.asked(results_to=TO)
    world.child(job, until=runs)
    until(stalled.there.is_set)
    for one in uploaders(world):
        os.kill(one, signal.SIGKILL)
    server.hook = None
    stalled.go.set()
    until(lambda: not uploaders(world))
    assert "results.json" not in in_bucket(s3, job)
    assert not world.now(job).fetched
    world.child(job)
    job = world.now(job)
    assert (job.state, job.fetched.whole) == (State.SUCCEEDED, True)
    assert in_bucket(s3, job)["results/answer"] == b"42\n" * 10_000
    assert world.events()["begin"] == 1
    world.nothing_left()


@pytest.mark.soak
def test_a_machine_that_disappears_in_the_middle_of_its_upload_is_followed_by_another(world, s3, server):
    stalled = Stalled(server, "results/answer")
    job = world.asked(results_to=TO)
    world.child(job, until=runs)
    until(stalled.there.is_set)
    machine = world.machine_of(job).provider_id
    world.takes(job)  # its command had ended, and nobody has seen that
    until(lambda: not processes(world.machines.root / machine))
    server.hook = None
    stalled.go.set()
    world.child(job)
    job = world.now(job)
    assert (job.state, job.fetched.whole, len(job.attempts)) == (State.SUCCEEDED, True, 2)
    assert json.loads(in_bucket(s3, job)["results.json"])["attempt"] == 2
    assert world.events()["begin"] == 2
    world.nothing_left()


@pytest.mark.soak
def test_a_job_that_ends_while_nobody_watches_is_known_from_its_bucket(world, s3):
    job = world.asked(results_to=TO, status=7)
    world.child(job, until=runs)
    until(lambda: "results.json" in in_bucket(s3, job))
    world.takes(job)
    world.child(job)
    job = world.now(job)
    assert (job.state, job.shell_status, len(job.attempts)) == (State.FAILED, 7, 1)
    assert job.fetched.whole
    assert world.events()["begin"] == 1
    assert (world.home / "jobs" / job.id / "out-1").read_text() == "line one\nline two\n"
    world.nothing_left()


@pytest.mark.soak
def test_a_bucket_that_does_not_answer_is_no_reason_to_run_a_command_again(world, s3, server):
    job = world.asked(results_to=TO)
    world.child(job, until=runs)
    until(lambda: "results.json" in in_bucket(s3, job))
    world.takes(job)
    server.is_silent = True
    world.child(job, until=lambda found: "Cannot read the job's results" in found.why, most_s=60)
    assert len(world.now(job).attempts) == 1
    server.is_silent = False
    world.child(job)
    assert (world.now(job).state, world.events()["begin"]) == (State.SUCCEEDED, 1)


def trained(world, **options):
    (world.work / "train.py").write_text(TRAIN)
    options = {"provider": "fake", "gpu": "v100", "name": "train", "policy": "default", **options}
    return world.begun(sys.executable, "train.py", results_to=TO, **options)


@pytest.mark.soak
def test_the_next_machine_takes_the_checkpoint_from_the_bucket(world, s3, monkeypatch):
    monkeypatch.setattr(lists, "PART_BYTES", 50_000)  # weights are made of several objects
    job = trained(world, every="1s", env={"PAUSE": "0.15"})
    world.child(job, until=runs)
    state = lambda: json.loads(in_bucket(s3, job).get("state/1.json", b"{}")).get("checkpoints", [])  # noqa: E731
    until(lambda: len(state()) == 2)
    Bench.takes(world, job)
    kept = int(state()[-1]["name"].removeprefix("step-"))
    world.child(job, most_s=60)
    job = world.now(job)
    assert (job.state, len(job.attempts)) == (State.SUCCEEDED, 2), job.why
    out = (world.home / "jobs" / job.id / "out-2").read_text()
    assert out.startswith(f"begins at {kept}, restart 1\n")
    assert 0 < kept < STEPS
    assert kept % EACH == 0
    assert in_bucket(s3, job)["results/answer.txt"].decode() == answer()
    assert not list(world.home.glob("jobs/*/checkpoints"))
    assert set(in_bucket(s3, job)) == {"results.json", "results/answer.txt", "output/2/out", "output/2/err"}
    world.nothing_left()


@pytest.mark.soak
@pytest.mark.parametrize("seed", [0, 1])
def test_watchers_that_are_killed_run_the_command_once_and_its_results_are_whole_in_the_bucket(world, s3, seed):
    chance, job = random.Random(seed), world.asked(results_to=TO, every="1s")
    for _ in range(6):
        world.child(job, chance.randrange(1, 9))
        world.at_most_one()
    world.child(job)
    job = world.now(job)
    assert (job.state, job.fetched.whole) == (State.SUCCEEDED, True)
    assert world.events()["begin"] == 1
    assert in_bucket(s3, job)["results/answer"] == b"42\n" * 10_000
    world.nothing_left()


@pytest.mark.soak
def test_a_watcher_may_be_killed_at_every_step_of_a_job_with_a_bucket(world, s3):
    job = world.asked(results_to=TO, every="1s")
    died = world.killed_at_every_step(job)
    assert len(died) > 10
    job = world.now(job)
    assert (job.state, job.fetched.whole) == (State.SUCCEEDED, True)
    assert world.events()["begin"] == 1
    world.nothing_left()


@pytest.fixture
def older(monkeypatch):
    """Let machines have Python 3.8, the oldest that the program runs with, where it is here; return its version."""
    found = sorted(Path.home().glob(".pyenv/versions/3.8*/bin"))
    if found:
        monkeypatch.setenv("PATH", f"{found[-1]}:{os.environ['PATH']}")
    return "Python 3.8" if found else "Python 3."


@pytest.mark.soak
def test_a_machine_with_python_3_8_fetches_and_uploads(older, world, s3):
    put(s3, **{"set/one": "1\n"})
    says = "python3 --version && cp in/one $CLOUDGPU_RESULTS"
    options = {"provider": "fake", "gpu": "v100", "name": "old", "policy": "default"}
    job = world.begun("sh", "-c", says, results_to=TO, data=["s3://lab/set:in"], **options)
    world.child(job)
    job = world.now(job)
    assert (job.state, job.fetched.whole) == (State.SUCCEEDED, True), job.why
    assert in_bucket(s3, job)["results/one"] == b"1\n"
    assert in_bucket(s3, job)["output/1/out"].startswith(older.encode())


@pytest.mark.soak
def test_a_form_that_expires_is_renewed_and_old_copies_are_removed(world, s3, server, monkeypatch):
    monkeypatch.setattr(results_of_jobs, "PRESIGNED_POST_TTL_S", 20)
    monkeypatch.setattr("cloudgpu.control.jobs.remote_results.MIN_VALIDITY_S", 18)
    job = trained(world, every="1s", env={"PAUSE": "0.2"})
    forms = set()

    def renewed(found):
        """Two forms were in use, and something was uploaded by the second one."""
        storing = None if found.remote is None else found.remote.uploads
        if storing is not None:
            forms.add(storing.until)
        return len(forms) > 1 and storing is not None and storing.at is not None and storing.at > min(forms)

    world.child(job, until=renewed)
    asked = server.asked("POST")
    assert {one[2] for one in asked} == {200}
    assert len({one[4] for one in asked}) > 1
    keys = [one for one in in_bucket(s3, job) if one.startswith("state/1-")]
    copies = {one.split("/")[1] for one in keys}
    assert len(copies) <= 6, copies
    world.child(job, most_s=60)
    assert world.now(job).fetched.whole


@pytest.mark.soak
def test_uploads_end_when_nobody_renews_their_form_and_go_on_when_somebody_does(world, s3, server):
    job = world.asked(results_to=TO, pause=4, every="1s")
    world.child(job, until=lambda found: found.remote is not None and found.remote.uploads is not None)
    server.ahead = 13 * 3600.0
    until(lambda: 403 in [one[2] for one in server.asked("POST")])
    until(lambda: not uploaders(world))
    refused = len(server.asked("POST"))
    server.ahead = 0.0
    until(lambda: world.events()["end"])
    assert len(server.asked("POST")) == refused
    world.child(job)
    assert (world.now(job).state, world.now(job).fetched.whole) == (State.SUCCEEDED, True)


def test_a_form_allows_objects_of_its_own_job_and_nothing_else(s3, server):
    import requests

    from cloudgpu.core.model.buckets import bucket_address
    from cloudgpu.providers.base import ProviderSettings
    from cloudgpu.providers.buckets import open_results_bucket

    address = bucket_address(TO)
    made = ProviderSettings("aws", {}, Path("/nowhere"), lambda: datetime.now(UTC))
    form = open_results_bucket(address, made).presigned_post("runs/mine/", 3600, 1000)

    def sent(key, size, **more):
        fields, files = {**form.fields, "key": key, **more}, {"file": b"x" * size}
        return requests.post(form.url, data=fields, files=files, timeout=5).status_code

    assert sent("runs/mine/a", 10) == 204
    assert sent("runs/other/a", 10) == 403
    assert sent("runs/mine/a", 2000) == 403
    assert sent("runs/mine/a", 10, acl="public-read") == 403
    assert SECRET not in repr(form)
    assert form.fields["policy"] not in repr(form)


@pytest.mark.soak
def test_no_address_form_or_key_is_in_a_file_a_command_line_an_environment_or_the_ledger(world, s3):
    put(s3, **{"set/one": "1\n"})
    job = world.asked(results_to=TO, data=["s3://lab/set:in"], pause=5, every="1s")
    world.child(job, until=lambda found: found.remote is not None and found.remote.uploads is not None)
    until(lambda: "state/1.json" in in_bucket(s3, job))
    planted = (SECRET.encode(), b"X-Amz-Signature", b"x-amz-signature", b"eyJleHBpcmF0aW9uI")
    for place in (world.home, world.machines.root, world.work):
        texts = {path: path.read_bytes() for path in place.rglob("*") if path.is_file() and not path.is_symlink()}
        assert texts
        assert [path for path, text in texts.items() if any(one in text for one in planted)] == []
    seen = []
    for one in ssh_cloud.processes(world.machines.root):
        for name in ("cmdline", "environ"):
            with suppress(OSError):
                seen.append(Path(f"/proc/{one}/{name}").read_bytes())
    assert seen
    assert not [text for text in seen if any(one in text for one in planted)]
    world.child(job)
    assert world.now(job).state is State.SUCCEEDED
    lines = json.dumps([line.body for line in world.session.ledger.events("jobs")]).encode()
    assert not any(one in lines for one in planted)
    assert not [one for one in world.said if any(word.decode() in one for word in planted)]
