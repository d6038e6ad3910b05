"""A job on a whole machine of the local provider: its agent sees it, and a stop of the machine is no end of the job."""

from __future__ import annotations

import json
import shlex
from types import SimpleNamespace

import pytest

from cloudgpu.access.jobs.remote import RemoteJob, RemoteSpec
from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.connection import connect
from cloudgpu.access.ssh.target import Target
from cloudgpu.agent.program import source
from cloudgpu.core.jobs.remote_state import Phase
from cloudgpu.core.model.instances import State
from cloudgpu.testing.helpers import new_host_key
from tests.access.sshserver import wait_for
from tests.providers.local.cloud import PATIENCE_S, now
from tests.providers.local.conftest import cloud  # noqa: F401  (a fixture)

NOTHING = SimpleNamespace(files=[], links=[])


def connected(cloud, machine):  # noqa: F811
    key, known = cloud.client_files()
    return connect(Target(machine.id, "box", machine.address, key, known), timeout=10, wait=PATIENCE_S)


def begin(cloud):  # noqa: F811
    public, private = new_host_key()
    launched = cloud.provider.launch(cloud.attempt(host_key=(public, private), agent_source=source()), deadline=now())
    machine = cloud.wait(launched.id, State.RUNNING)
    client_files.pin(cloud.client_files()[1], machine.id, public)
    return machine


def start(connection, tmp_path):
    job = RemoteJob(connection, "job-0123456789", 1)
    script = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
    job.start(RemoteSpec(("sh", "-c", script), "fox"), NOTHING, tmp_path)
    wait_for(lambda: job.state().phase is Phase.RUNNING)
    return job


def samples(connection):
    said = connection.capture(shlex.join([".cloudgpu/agent", "status", "--since", "0"]), timeout=30)
    return json.loads(said.stdout)["samples"]


@pytest.mark.soak
def test_the_agent_sees_a_job_as_long_as_it_runs(cloud, tmp_path):  # noqa: F811
    with connected(cloud, begin(cloud)) as connection:
        job = start(connection, tmp_path)
        assert samples(connection)[-1]["job"] == [job.job]
        job.cancel("cancelled")
        wait_for(lambda: job.state().exit)


def test_a_stop_of_the_machine_loses_the_attempt_even_where_the_command_says_zero(cloud, tmp_path):  # noqa: F811
    machine = begin(cloud)
    with connected(cloud, machine) as connection:
        start(connection, tmp_path)
    cloud.provider.stop(machine.id)
    cloud.wait(machine.id, State.STOPPED)
    cloud.provider.start(machine.id)
    machine = cloud.wait(machine.id, State.RUNNING)
    with connected(cloud, machine) as connection:
        assert RemoteJob(connection, "job-0123456789", 1).state().phase is Phase.LOST
