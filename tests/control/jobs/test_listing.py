"""Jobs found by name, key and id; attached to; listed with what they have cost; what they wrote, from the copies."""

from __future__ import annotations

import socket
from datetime import timedelta
from io import BytesIO

import pytest

from cloudgpu.cli.jobs.jobs import LAST_SEEN_NOTE, table_text
from cloudgpu.control.jobs.cancel import cancel
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.listing import find, find_same_living_job, is_known, job_document, job_names, list_jobs
from cloudgpu.control.jobs.logs import logs
from cloudgpu.control.jobs.store import directory_of, log_file
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.core.events import job_events as lines
from cloudgpu.core.values.money import usd
from cloudgpu.errors import InstanceNotFound, InvalidRequest, RoleNeeded
from tests.cli.documents import faults_under
from tests.control.conftest import Lab
from tests.control.team.colleagues import team
from tests.core.jobs.worlds import spec

__all__ = ["team"]


class Jobs(Lab):
    """A lab with jobs in its ledger."""

    def asked(self, id_, name, key=None, host="", **more):
        host = host or socket.gethostname()
        self.write(lines.job_requested(id_, name, key, host, spec(**more), self.clock()))

    def write(self, *drafts):
        self.session.ledger.append(list(drafts))

    def begun(self, id_, machine, number=1, key=None):
        self.write(
            lines.job_placed(id_, number, self.clock(), key=key, machine=machine),
            lines.job_began(id_, number, None, self.clock()),
        )

    def over(self, id_, outcome="succeeded", status=0, number=1):
        self.write(
            lines.job_ended(id_, number, outcome, self.clock(), status=status),
            lines.job_closed(id_, "", self.clock()),
        )


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Jobs(tmp_path, monkeypatch)


def test_a_name_means_the_job_that_lives_else_the_latest(lab):
    for id_ in ("job-1", "job-2", "job-3"):
        lab.asked(id_, "fox", key=f"key-{id_}")
        lab.over(id_) if id_ != "job-2" else None
    assert find(lab.session, "fox").id == "job-2"
    lab.over("job-2")
    assert find(lab.session, "fox").id == "job-3"
    assert find(lab.session, "job:fox").id == "job-3"
    assert [find(lab.session, one).id for one in ("job-1", "key-job-2")] == ["job-1", "job-2"]
    assert is_known(lab.session, "fox")
    assert not is_known(lab.session, "wolf")


def test_an_unknown_job_is_named_with_the_one_that_is_meant(lab):
    with pytest.raises(InstanceNotFound) as none:
        find(lab.session, "train")
    assert none.value.next.startswith("Run one: cloudgpu run")
    lab.asked("job-1", "train-7")
    with pytest.raises(InstanceNotFound, match=r"No job is called 'trian-7'; did you mean 'train-7'\?"):
        find(lab.session, "trian-7")


def request(tmp_path, *argv, **more):
    return parse_run(workdir=tmp_path, argv=list(argv or ("true",)), **more)


def test_the_same_name_or_key_attaches_to_the_job_that_lives(lab, tmp_path):
    lab.asked("job-1", "fox", key="seed")
    assert find_same_living_job(lab.session, request(tmp_path, name="fox")).id == "job-1"
    assert find_same_living_job(lab.session, request(tmp_path, key="seed")).id == "job-1"
    assert find_same_living_job(lab.session, request(tmp_path, name="wolf")) is None
    assert find_same_living_job(lab.session, request(tmp_path)) is None
    lab.over("job-1")
    assert find_same_living_job(lab.session, request(tmp_path, name="fox")) is None


def test_a_name_that_was_made_up_attaches_to_nothing(lab, tmp_path):
    asked = request(tmp_path)
    lab.asked("job-1", asked.name)
    assert find_same_living_job(lab.session, asked) is None


def test_another_command_under_a_living_name_is_refused(lab, tmp_path):
    lab.asked("job-1", "fox", key="seed")
    for words, field in ({"name": "fox"}, "NAME"), ({"key": "seed"}, "--key"):
        with pytest.raises(InvalidRequest, match="The job fox is pending with another command") as refused:
            find_same_living_job(lab.session, request(tmp_path, "false", **words))
        assert refused.value.field == field
    with pytest.raises(InvalidRequest, match="--key seed is that of the job fox, not of wolf"):
        find_same_living_job(lab.session, request(tmp_path, name="wolf", key="seed"))


def test_living_jobs_are_listed_and_with_ended_all_of_them(lab):
    lab.asked("job-1", "fox")
    lab.asked("job-2", "wolf", owner="bo")
    lab.asked("job-3", "hare")
    lab.over("job-3")
    assert [one["name"] for one in list_jobs(lab.session)["jobs"]] == ["fox", "wolf"]
    assert [one["name"] for one in list_jobs(lab.session, ended=True)["jobs"]] == ["fox", "wolf", "hare"]
    assert [one["name"] for one in list_jobs(lab.session, mine=True)["jobs"]] == ["fox"]
    assert job_names(lab.session) == ["hare", "wolf", "fox"]
    assert job_names(lab.session, living=True) == ["wolf", "fox"]
    assert not faults_under("jobs", list_jobs(lab.session, ended=True))


def test_a_job_has_cost_what_its_own_machines_have_cost(lab):
    machine = lab.up(name="fox").machine
    lab.later(minutes=30)
    lab.asked("job-1", "fox")
    lab.begun("job-1", machine.id, key="job-1-1")
    lab.later(hours=1)
    value = job_document(lab.session, find(lab.session, "fox"))
    row = lab.session.ledger.machine(machine.id)
    assert value["spent_usd"] == usd(spent_until_now(row, lab.clock()))
    assert (value["machine"]["name"], value["machine"]["own"], value["state"]) == ("fox", True, "running")


def test_on_a_machine_that_was_there_only_the_time_of_the_command_counts(lab):
    machine = lab.up(name="desk").machine
    lab.later(hours=3)
    lab.asked("job-1", "fox", machine=machine.id)
    assert job_document(lab.session, find(lab.session, "fox"))["spent_usd"] == "0"
    lab.begun("job-1", machine.id)
    lab.later(hours=1)
    whole = spent_until_now(lab.session.ledger.machine(machine.id), lab.clock())
    value = job_document(lab.session, find(lab.session, "fox"))
    assert float(value["spent_usd"]) == pytest.approx(whole.nanos / 4e9, rel=0.02)
    lab.over("job-1")
    lab.later(hours=5)
    assert job_document(lab.session, find(lab.session, "fox"))["spent_usd"] == value["spent_usd"]
    assert not value["machine"]["own"]


def test_a_job_that_is_over_is_not_cancelled_and_that_is_no_error(lab):
    lab.asked("job-1", "fox")
    lab.over("job-1")
    before = lab.session.ledger.head()
    found = cancel(lab.session, "fox", {})
    assert (found["was_over"], found["waits"], found["job"]["state"]) == (True, None, "succeeded")
    assert lab.session.ledger.head() == before
    assert not faults_under("cancel", found)


def test_the_machine_of_a_job_that_is_over_is_ended_where_whoever_should_have_done_that_was_killed(lab):
    lab.asked("job-1", "fox")
    machine = lab.up(name="fox", key="job-1-1").machine
    lab.write(
        lines.job_placed("job-1", 1, lab.clock(), key="job-1-1", machine=None),
        lines.job_machine("job-1", 1, machine.id, lab.clock()),
        lines.job_ended("job-1", 1, "lost", lab.clock()),
    )
    found = cancel(lab.session, "fox", {})
    assert (found["was_over"], found["waits"], found["job"]["state"]) == (True, None, "lost")
    assert lab.machines() == []


def test_a_job_without_a_machine_is_cancelled_at_once(lab):
    lab.asked("job-1", "fox")
    found = cancel(lab.session, "fox", {})
    assert (found["was_over"], found["waits"], found["job"]["state"]) == (False, None, "cancelled")
    assert found["job"]["why"] == "cancelled by ada"
    assert lab.machines() == []


def printed(lab, name, **more):
    out, err = BytesIO(), BytesIO()
    logs(lab.session, find(lab.session, name), out, err, **more)
    return out.getvalue().decode(), err.getvalue().decode()


def copy(lab, name, number, out, err):
    directory = directory_of(lab.session, find(lab.session, name))
    directory.mkdir(parents=True, exist_ok=True)
    log_file(directory, number, "out").write_text(out)
    log_file(directory, number, "err").write_text(err)


def test_what_a_job_wrote_is_printed_after_its_end_attempt_after_attempt(lab):
    lab.asked("job-1", "fox")
    lab.begun("job-1", None)
    lab.write(lines.job_try_ended("job-1", 1, lab.clock(), interrupted=True, status=None, why="gone"))
    lab.begun("job-1", None, 2)
    copy(lab, "fox", 1, "one\n", "")
    copy(lab, "fox", 2, "two\n", "oh\n")
    lab.over("job-1", "failed", 1, number=2)
    assert printed(lab, "fox") == ("one\ntwo\n", "oh\n")
    assert printed(lab, "fox", follow=True) == ("one\ntwo\n", "oh\n")


def test_since_leaves_out_attempts_that_were_over_and_says_what_a_copy_lacks(lab):
    lab.asked("job-1", "fox")
    lab.begun("job-1", None)
    lab.write(lines.job_try_ended("job-1", 1, lab.clock(), interrupted=True, status=None, why="gone"))
    copy(lab, "fox", 1, "one\n", "")
    lab.later(hours=2)
    lab.begun("job-1", None, 2)
    copy(lab, "fox", 2, "two\n", "")
    lab.over("job-1", number=2)
    assert printed(lab, "fox", since=lab.clock() - timedelta(hours=1)) == ("two\n", "")
    assert any("does not say when each line was written" in one for one in lab.said)


def test_since_goes_by_the_index_that_was_copied_with_the_output(lab):
    lab.asked("job-1", "fox")
    lab.begun("job-1", None)
    copy(lab, "fox", 1, "old\nnew\n", "bad\nworse\n")
    now = lab.clock().timestamp()
    index = f"{now - 60:.3f} 4 0\n{now - 40:.3f} 4 4\n{now - 20:.3f} 8 10\n"
    (lab.home / "jobs" / "job-1" / "times-1").write_text(index)
    lab.over("job-1")
    ago = {seconds: printed(lab, "fox", since=lab.clock() - timedelta(seconds=seconds)) for seconds in (90, 50, 30, 10)}
    assert ago == {
        90: ("old\nnew\n", "bad\nworse\n"),
        50: ("new\n", "bad\nworse\n"),
        30: ("new\n", "worse\n"),
        10: ("", ""),
    }
    assert lab.said == []


def test_a_job_that_has_not_begun_has_nothing_to_print(lab):
    lab.asked("job-1", "fox")
    with pytest.raises(InstanceNotFound, match="fox has not begun: it is pending"):
        printed(lab, "fox")


def test_output_that_is_on_another_computer_is_looked_for_there(lab):
    lab.asked("job-1", "fox", host="elsewhere")
    lab.begun("job-1", None)
    lab.over("job-1")
    with pytest.raises(InstanceNotFound, match="has no output of fox") as missing:
        printed(lab, "fox")
    assert missing.value.next == "It was run on elsewhere: look there."


def test_a_colleagues_job_is_cancelled_by_its_owner_or_a_payer_alone(team):
    spec_ = spec(owner="ada@lab.org")
    for id_, name in (("job-1", "fox"), ("job-2", "wolf")):
        line = lines.job_requested(id_, name, None, "here", spec_, team["ada"].clock())
        team["ada"].session.ledger.append([line])
    with pytest.raises(RoleNeeded, match=r"The job fox is ada@lab.org's \(ada\).*may cancel it") as refused:
        cancel(team["bo"].session, "fox", {})
    assert refused.value.next == "Ask its owner, or a payer: pia."
    assert find(team["bo"].session, "fox").cancel is None
    assert cancel(team["ada"].session, "fox", {})["job"]["state"] == "cancelled"
    assert cancel(team["pia"].session, "wolf", {})["job"]["state"] == "cancelled"


@pytest.mark.parametrize(("columns", "command"), [(80, "python train.py --epochs 90 -.."), (62, "python trai..")])
def test_a_command_takes_the_room_that_its_row_has_left(lab, monkeypatch, columns, command):
    monkeypatch.setenv("COLUMNS", str(columns))
    lab.asked("job-1", "a-name-of-twenty-two-c")
    value = list_jobs(lab.session, ended=True)
    value["jobs"][0]["command"] = "python train.py --epochs 90 --lr 0.1 --batch 64".split()
    heading, row, *_ = table_text(value, lab.clock(), ended=True).splitlines()
    assert heading.split() == ["NAME", "STATE", "ON", "SPENT", "END", "COMMAND"]  # no job says what is done
    assert row.endswith(command)
    assert len(row) <= columns


def test_a_list_with_a_job_that_lives_says_that_it_may_be_over_by_now(lab):
    lab.asked("job-1", "fox")
    lab.over("job-1")
    over = table_text(list_jobs(lab.session, ended=True), lab.clock(), ended=True)
    lab.asked("job-2", "owl")
    living = table_text(list_jobs(lab.session, ended=True), lab.clock(), ended=True)
    assert (living.endswith(f"\n{LAST_SEEN_NOTE}"), LAST_SEEN_NOTE in over) == (True, False)
