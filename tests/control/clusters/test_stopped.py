"""A cluster of this computer that is stopped and started again: the same queue."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.program import Program
from tests.control.clusters.gang import needs_slurm

CONF = "SLURM_CONF=$(echo ~/.cloudgpu/slurm/*/0/slurm.conf)"


@pytest.mark.soak
def test_what_waited_before_a_stop_still_waits_after_the_start(tmp_path):
    needs_slurm()
    program = Program(tmp_path / "home")
    up = program(
        "up", "--nodes", "2", "--provider", "local", "--name", "fox", "--template", "bare", "--yes", timeout=100
    )
    assert up.code == 0, up.err
    try:

        def sh(command):
            return program("exec", "fox-0", "--", "sh", "-c", f"export {CONF}; {command}")

        submitted = sh("cd; sbatch --hold --time=5 -N2 -o out --wrap 'srun sh -c \"echo \\$SLURMD_NODENAME\"'")
        assert submitted.out == "Submitted batch job 1\n", submitted.err
        assert program("stop", "fox", "--yes", timeout=100).code == 0
        started = program("start", "fox", "--yes", timeout=100)
        assert started.code == 0, started.err
        assert sh("squeue -h -o '%i %T %r'").out == "1 PENDING JobHeldUser\n"
        done = sh(
            'cd; scontrol release 1; for i in $(seq 300); do [ -z "$(squeue -h)" ] && break; sleep .1; done; sort out'
        )
        assert done.out == "fox-0\nfox-1\n", done.err
    finally:
        assert program("down", "fox", "--yes", timeout=100).code == 0
        shutil.rmtree(tmp_path / "home", ignore_errors=True)
