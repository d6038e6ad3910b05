"""The batch script of a job: how long it holds its nodes for the process that collects its results."""

from __future__ import annotations

import ast
import os
import threading
import time
from pathlib import Path

import pytest

from cloudgpu.access.jobs.program import slurm_program
from cloudgpu.access.slurm import node, remote_rank


@pytest.mark.parametrize("hours", [-1, 1])
def test_nodes_are_not_held_for_a_collector_that_is_gone_whatever_the_clock_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    monkeypatch.setattr(remote_rank, "COLLECT_TIMEOUT_S", 0.3)
    collecting = tmp_path / "slurm-7.collecting"
    collecting.touch()
    os.utime(collecting, (time.time() + 3600 * hours,) * 2)
    waiting = threading.Thread(target=remote_rank.wait_for_collector, args=(tmp_path, "7"), daemon=True)
    waiting.start()
    waiting.join(5)
    is_held = waiting.is_alive()
    (tmp_path / "slurm-7.collected").touch()
    assert not is_held


def test_the_programs_for_slurm_are_python_3_8() -> None:
    modules = (Path(node.__file__).with_name(f"{name}.py").read_text() for name in node.MODULES)
    for text in (*slurm_program().values(), *modules):
        ast.parse(text, feature_version=(3, 8))
