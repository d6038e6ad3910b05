"""A job in Slurm is submitted once, also where Slurm's answer is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgpu.access.slurm import remote_submit

# Takes the job, and loses its answer. The text of the error is Slurm's own for a controller that does not answer.
SBATCH = """#!/bin/sh
case " $* " in *" --parsable --job-name=cg-one "*) ;; *) echo "unknown: $*" >&2; exit 2;; esac
echo "7|PENDING|" > {queue}
echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
exit 1
"""
SQUEUE = """#!/bin/sh
case " $* " in *" -t all --name cg-one "*) ;; *) echo "unknown: $*" >&2; exit 2;; esac
cat {queue}
"""


def test_a_job_whose_last_submission_lost_its_answer_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = tmp_path / "queue"
    queue.touch()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE)):
        (tmp_path / name).write_text(text.format(queue=queue))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    monkeypatch.setattr(remote_submit, "TRIES", 1)
    (tmp_path / remote_submit.RANK_FILE).touch()
    submission = remote_submit.Submission(tmp_path, {"slurm": {"name": "cg-one", "nodes": 1, "minutes": 10}})
    assert submission.submit() == "7"
