"""Slurm's record of jobs that have ended, as jobcomp/filetxt of Slurm 22.05 writes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.core.clusters.queue import node_names, read_records, status_of

LINE = (
    "JobId=7 UserId=ann(1001) GroupId=ann(1001) Name=lr 3=x JobState=FAILED Partition=all TimeLimit=5 "
    "StartTime=2026-11-26T09:24:36 EndTime=2026-11-26T09:24:39 NodeList=train-[0-1,3] NodeCnt=3 ProcCnt=12 "
    "WorkDir=/home/ann ReservationName= Tres=cpu=12 Account= QOS= WcKey= Cluster=cg "
    "SubmitTime=2026-11-26T09:24:30 EligibleTime=2026-11-26T09:24:30 DerivedExitCode=0:0 ExitCode=7:0 \n"
)
NEVER = LINE.replace("NodeList=train-[0-1,3]", "NodeList=(null)").replace("FAILED", "CANCELLED")


def test_a_line_says_who_ran_what_where_and_when() -> None:
    (one,) = read_records(LINE, timedelta(hours=1))
    assert (one.id, one.user, one.name, one.state, one.status) == ("7", "ann", "lr 3=x", "FAILED", 7)
    assert one.nodes == ("train-0", "train-1", "train-3")
    assert one.begin == datetime(2026, 11, 26, 8, 24, 36, tzinfo=UTC)
    assert one.end - one.begin == timedelta(seconds=3)


def test_a_job_that_never_began_has_no_begin() -> None:
    assert [one.begin for one in read_records(NEVER, timedelta())] == [None]


@pytest.mark.parametrize("cut", [10, 60, 150, 200, len(LINE) - 20])
def test_a_line_that_was_cut_short_is_left_out(cut: int) -> None:
    assert [one.id for one in read_records(LINE[:cut] + "\n" + LINE, timedelta())] == ["7"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("train-0", ["train-0"]),
        ("train-[0-2]", ["train-0", "train-1", "train-2"]),
        ("gpu[008-010,12],head", ["gpu008", "gpu009", "gpu010", "gpu12", "head"]),
        ("(null)", []),
        ("", []),
    ],
)
def test_names_of_nodes_are_written_out(text: str, names: list[str]) -> None:
    assert list(node_names(text)) == names


def test_a_hostile_range_ends() -> None:
    assert len(list(node_names("x[0-99999999999]"))) <= 65_537


@pytest.mark.parametrize(("text", "status"), [("7:0", 7), ("0:15", 143), ("0:0", 0), ("", None), ("x:1", None)])
def test_an_exit_code_is_a_status_or_a_signal(text: str, status: int | None) -> None:
    assert status_of(text) == status
