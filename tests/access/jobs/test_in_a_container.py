"""Jobs on a machine that has a container: command and setup run in it, and are ended in it.

`tests/providers/machine/docker.py` stands in for Docker: what it starts is no child of ours, and hears no signal of us.
"""

from __future__ import annotations

import pytest

from cloudgpu.core.jobs.remote_state import Phase
from tests.access.jobs.conftest import ended, lives, output
from tests.access.sshserver import wait_for
from tests.providers.machine.container_host import Host

WAITS = "while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    made = Host(tmp_path_factory.mktemp("machine"))
    made.has_docker()
    made.boots()
    return made


@pytest.fixture
def bench(bench, host):
    host.enter(bench.home)
    return bench


@pytest.mark.soak
def test_command_and_setup_run_in_the_container_with_their_variables_and_the_status_comes_back(bench, host):
    bench.secrets["TOKEN"] = "nobody-else"
    before = len(host.calls("exec"))
    script = 'cat made; echo "$TOKEN $CLOUDGPU_JOB $PATH"; pwd >"$CLOUDGPU_RESULTS/where"; exit 3'
    job = bench.start(script, setup="echo set up >made")
    assert output(job, follow=True)[0].startswith(f"set up\nnobody-else {job.job} {host.root}/state/image:")
    seen = job.state()
    assert (seen.phase, seen.exit.status, seen.exit.reason) == (Phase.EXITED, 3, "exited")
    assert bench.file("work/results/where").read_text().strip() == str(bench.file("work"))
    assert len(host.calls("exec")) == before + 2
    assert "nobody-else" not in (host.root / "state" / "calls").read_text()


@pytest.mark.soak
def test_a_job_that_is_to_end_hears_it_once_in_the_container_and_has_its_grace(bench):
    script = f'n=0; trap "n=\\$((n+1)); echo heard \\$n; sleep 0.3; echo saved; exit 7" TERM; echo $$ >pid; {WAITS}'
    job = bench.start(script)
    wait_for(lambda: bench.file("work/pid").exists(), 60)
    job.cancel("cancelled", grace_s=30)
    seen = ended(job)
    assert output(job)[0] == "heard 1\nsaved\n"
    assert (seen.exit.status, seen.exit.reason) == (7, "cancelled")


def test_what_does_not_end_is_killed_in_the_container(bench):
    job = bench.start(f'trap "" TERM; echo $$ >pid; {WAITS}')
    wait_for(lambda: bench.file("work/pid").exists() and bench.file("work/pid").read_text().strip(), 60)
    pid = int(bench.file("work/pid").read_text())
    assert lives(pid)
    job.cancel("cancelled", grace_s=0.1)
    assert ended(job).exit.reason == "cancelled"
    wait_for(lambda: not lives(pid), 60)


def test_a_setup_whose_way_in_was_killed_does_not_go_on_in_the_container(bench):
    job = bench.start("true", setup=f"echo $$ >pid; {WAITS}")
    wait_for(lambda: bench.file("work/pid").exists() and bench.file("work/pid").read_text().strip(), 60)
    pid = int(bench.file("work/pid").read_text())
    job.cancel("cancelled")
    assert ended(job).exit.reason == "cancelled"
    wait_for(lambda: not lives(pid), 60)


def test_a_command_that_the_image_lacks_ends_as_it_does_in_a_shell(bench):
    bench.run(("nothing-of-the-sort",))
    assert ended(bench.job()).exit.status == 127
