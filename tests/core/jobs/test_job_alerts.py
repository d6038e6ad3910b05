"""What people hear of jobs: each end once, and what a running one waits for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.core.alerts.alerts import RaisedAlert
from cloudgpu.core.jobs.alerts import (
    ended_finding,
    ended_key,
    is_stalled,
    job_alert_key,
    job_findings,
    secret_finding,
    stalled_finding,
    stalled_since,
)
from cloudgpu.core.jobs.job import FetchedResults, State
from cloudgpu.core.values.money import Money
from tests.core.costing import NOW, START
from tests.core.jobs.writing import attempt, job, spec, succeeded

COST = Money(4_200_000_000)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
END = START + HOUR
DONE = succeeded(1, attempt("cg-1", 0, 3600), name="train")


def found(*jobs, lasting=None, now=END):
    return list(job_findings(jobs, lasting or {}, now, lambda _: COST))


def failed(outcome, **facts):
    return job(2, attempt("cg-1", 0, 3600), name="sweep", outcome=outcome, **facts)


def test_a_job_that_is_done_is_told_with_its_cost_and_the_way_to_its_output():
    (one,) = found(DONE)
    assert (one.key, one.kind, one.title) == (f"job:{DONE.id}:succeeded", "job done", "Job train is done")
    assert one.facts["cost"] == "$4.20"
    assert not one.urgent
    assert "cloudgpu logs train" in one.text


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (State.FAILED, "job failed"),
        (State.SETUP_FAILED, "job failed"),
        (State.TIMED_OUT, "job out of time"),
        (State.OVER_COST, "job over its cost"),
        (State.LOST, "job lost"),
        (State.NOT_LAUNCHED, "job not launched"),
    ],
)
def test_what_went_wrong_is_told_at_once_and_is_urgent(outcome, kind):
    (one,) = found(failed(outcome))
    assert (one.kind, one.urgent) == (kind, True)


def test_nobody_is_told_of_what_somebody_cancelled():
    assert found(failed(State.CANCELLED)) == []


def test_a_job_that_runs_is_no_news():
    assert found(job(1, attempt("cg-1", 0, None))) == []


def test_a_success_is_told_when_all_is_done_or_a_quarter_of_an_hour_later():
    waiting = succeeded(1, attempt("cg-1", 0, 3600), closed_at=None)
    assert found(waiting, now=END + 15 * MINUTE) == []
    (one,) = found(waiting, now=END + 16 * MINUTE)
    assert "until a watcher fetches them" in one.text
    assert one.key == ended_key(DONE)


def test_an_end_is_found_for_three_days_after_nothing_was_left_to_do():
    late = succeeded(1, attempt("cg-1", 0, 3600), closed_at=NOW)
    for now, number in ((NOW, 1), (NOW + 72 * HOUR, 1), (NOW + 73 * HOUR, 0)):
        assert len(found(late, now=now)) == number, now


def test_what_lasts_keeps_its_words_and_its_cost_is_not_counted_again():
    def never(_):
        raise AssertionError

    first = ended_finding(DONE, COST)
    lasting = {first.key: RaisedAlert(first, 1, END, frozenset())}
    assert list(job_findings([DONE], lasting, END, never)) == [first]


def test_where_the_results_are_is_said():
    whole = FetchedResults(3, 1000, "/home/ada/results/train", "tower", whole=True, why="", at=END)
    (one,) = found(succeeded(1, attempt("cg-1", 0, 3600), fetched=whole))
    assert "/home/ada/results/train on tower" in one.text
    (other,) = found(DONE)
    assert "not fetched whole" in other.text


def test_the_exit_status_of_a_signal_is_that_of_a_shell():
    (one,) = found(failed(State.FAILED, signal=9))
    assert "exit status is 137" in one.text


def test_a_job_is_stalled_when_neither_output_nor_progress_came_for_so_long():
    silent = job(1, attempt("cg-1", 0, None), spec=spec(stall_s=1800))
    assert not is_stalled(silent, None, START + 29 * MINUTE)
    assert is_stalled(silent, None, START + 30 * MINUTE)
    assert not is_stalled(silent, START + 10 * MINUTE, START + 39 * MINUTE)
    spoke = job(1, attempt("cg-1", 0, None), spec=spec(stall_s=1800), progress=(1, 10, START + 20 * MINUTE))
    assert not is_stalled(spoke, START + 10 * MINUTE, START + 49 * MINUTE)
    assert is_stalled(spoke, START + 10 * MINUTE, START + 50 * MINUTE)


def test_a_job_without_a_limit_or_without_a_running_command_is_never_stalled():
    assert not is_stalled(job(1, attempt("cg-1", 0, None)), None, NOW)
    assert not is_stalled(job(1, spec=spec(stall_s=60)), None, NOW)
    over = succeeded(1, attempt("cg-1", 0, 3600), spec=spec(stall_s=60))
    assert not is_stalled(over, None, NOW)
    assert stalled_since(over, None) is None


def test_what_a_running_job_waits_for_lasts_until_the_job_is_over():
    running = job(1, attempt("cg-1", 0, None), spec=spec(stall_s=60))
    one = stalled_finding(running, START, START + HOUR)
    two = secret_finding(running, ["HF_TOKEN"])
    lasting = {each.key: RaisedAlert(each, 1, END, frozenset()) for each in (one, two)}
    assert [one.key, two.key] == [job_alert_key(running, "stalled"), job_alert_key(running, "secret")]
    assert found(running, lasting=lasting) == [one, two]
    over = succeeded(1, attempt("cg-1", 0, 3600))
    assert [each.key for each in found(over, lasting=lasting)] == [ended_key(over)]
    assert "HF_TOKEN" in two.title
    assert "1h" in one.title
