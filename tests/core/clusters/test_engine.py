"""The engine is asked beside the agent, in one command; what it does not say clearly is no queue."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgpu.core.clusters.engine import (
    QUEUE_HEADER,
    EngineStatus,
    queue_sentence,
    read_engine,
    split_answer,
    with_queue,
)
from cloudgpu.core.clusters.layout import engine_directory
from cloudgpu.core.clusters.queue import Queue, read_queue

JOB = "{id}|{state}|ann|all|2|{reason}|x"


def asked(home: Path, squeue: str, command: str = "echo beat") -> tuple[int, bytes, EngineStatus]:
    """Run the command as a shell would on node 0, with this script in the engine's place."""
    (home / "bin").mkdir()
    (home / "bin" / "squeue").write_text(f"#!/bin/sh\n{squeue}\n")
    (home / "bin" / "squeue").chmod(0o755)
    path = f"{home}/bin:/usr/bin:/bin"
    script = with_queue(command, "cg-1")
    done = subprocess.run(
        ["/bin/sh", "-c", script], env={"HOME": str(home), "PATH": path}, capture_output=True, check=False
    )
    said, engine = split_answer(done.stdout)
    return done.returncode, said, read_engine(engine)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / engine_directory("cg-1")
    directory.mkdir(parents=True)
    (directory / "slurm.conf").write_text("ClusterName=cg\n")
    return tmp_path


def test_one_command_brings_the_agents_answer_and_the_queue_of_its_cluster(home: Path) -> None:
    squeue = '[ -f "$SLURM_CONF" ] && echo "12|RUNNING|$#|all|2|None|x"; echo "squeue: a warning" >&2'
    status, said, engine = asked(home, squeue)
    assert (status, said.strip()) == (0, b"beat")
    assert engine.queue == read_queue("12|RUNNING|4|all|2|None|x")
    assert engine.ended_ago is None


def test_the_agents_end_is_the_commands_whatever_the_engine_says(home: Path) -> None:
    status, said, engine = asked(
        home, "echo slurm_load_jobs error: Unable to contact slurm controller; exit 1", "false"
    )
    assert (status, said) == (1, b"")
    expected = "the engine did not answer (slurm_load_jobs error: Unable to contact slurm controller)"
    assert engine == EngineStatus(None, expected)


def test_an_engine_that_was_never_set_up_did_not_answer(tmp_path: Path) -> None:
    assert asked(tmp_path, "exit 0")[2].queue is None


def test_the_records_say_when_the_last_job_ended(home: Path) -> None:
    (home / engine_directory("cg-1") / "jobcomp").write_text("JobId=1\n")
    engine = asked(home, ":")[2]
    assert engine.queue == Queue()
    assert engine.ended_ago is not None
    assert engine.ended_ago < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "the engine's answer is not whole"),
        ("12|RUNNING|ann|all|2|None|x\n", "the engine's answer is not whole"),
        ("# end 124 1\n", "the engine did not answer within 5 s"),
        ("# end 127 1\n", "the engine did not answer (status 127)"),
        ("what is this\n# end 0 1\n", "'what is this' is not a line of squeue"),
    ],
)
def test_what_cannot_be_read_is_no_queue_and_says_why(text: str, fault: str) -> None:
    assert read_engine(text) == EngineStatus(None, fault)


def test_an_answer_without_the_mark_is_all_the_agents() -> None:
    assert split_answer(b'{"now": 1}\n') == (b'{"now": 1}\n', "")
    assert split_answer(f"x\n\n{QUEUE_HEADER}\ny\n".encode()) == (b"x\n", "y\n")


def test_a_queue_is_said_in_words() -> None:
    def words(*jobs: tuple[str, str]) -> str:
        lines = [JOB.format(id=number, state=state, reason=reason) for number, (state, reason) in enumerate(jobs, 1)]
        return queue_sentence(read_queue("\n".join(lines)))

    assert words() == "no job runs or waits"
    assert words(("RUNNING", "None"), ("PENDING", "Priority")) == "job 1 runs, job 2 waits"
    assert words(*[("RUNNING", "None")] * 5) == "jobs 1, 2, 3 and 2 more run"
    assert words(("PENDING", "JobHeldUser")) == "no job runs or waits (job 1 is held: JobHeldUser)"
