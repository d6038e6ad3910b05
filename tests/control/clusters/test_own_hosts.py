"""Two workstations of somebody's own as one cluster: each an SSH server with a home of its own, the real engine."""

from __future__ import annotations

import json

import pytest

from cloudgpu.control.clusters.engine import read_engine_state, set_up_engine
from cloudgpu.control.outage.opening import open_session
from tests.cli.program import Program
from tests.control.clusters.gang import needs_slurm
from tests.providers.ssh.hosts import OwnHost


@pytest.fixture
def hosts(tmp_path):
    """Two hosts in the settings of one home."""
    needs_slurm()
    made = [OwnHost(tmp_path / "hosts", name).start() for name in ("left", "right")]
    yield made
    left = [process for one in made for process in one.clean_up()]
    assert not left, f"still running: {left}"


@pytest.mark.soak
def test_two_workstations_have_one_queue_and_nothing_is_left_on_them(hosts, tmp_path):
    program = Program(tmp_path / "home")
    tables = [
        f"{{ {', '.join(f'{key} = {json.dumps(value)}' for key, value in one.options.items())} }}" for one in hosts
    ]
    program.config(f'[accounts.lab]\nprovider = "ssh"\nhosts = [{", ".join(tables)}]\n')
    up = program("up", "--nodes", "2", "--provider", "ssh", "--name", "lab", "--template", "bare", "--yes", timeout=110)
    assert up.code == 0, up.err
    session = open_session({"CLOUDGPU_HOME": str(program.home), "USER": "ada"}, tell=lambda _said: None)
    machines = [row for row in session.ledger.machines() if row.terminated_at is None]
    assert read_engine_state(session, machines).usable_nodes == 2
    set_up_engine(session, machines)
    conf = '"$HOME"/.cloudgpu/slurm/*/0/slurm.conf'
    job = f"SLURM_CONF=$(echo {conf}) srun -N2 --time=5 sh -c 'echo $SLURMD_NODENAME $HOME'"
    done = program("exec", "lab-0", "--", "sh", "-c", job)
    assert sorted(done.out.splitlines()) == [f"lab-{n} {host.home}" for n, host in enumerate(hosts)], done.err
    assert program("down", "lab", "--yes", timeout=110).code == 0
    assert not list(tmp_path.glob("hosts/*/.cloudgpu/slurm"))
    (record,) = [line.body for line in session.ledger.events() if line.kind == "slurm_job_recorded"]
    assert record["task"]["machines"] == [row.id for row in machines]
    session.ledger.close()
