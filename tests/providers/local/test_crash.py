"""A call that is killed anywhere is finished by the next one: never two machines, never a half one."""

from __future__ import annotations

import signal

import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.errors import InstanceNotFound
from tests.forked import Begun
from tests.providers.local import crash
from tests.providers.local.cloud import now, processes_under, words_of

STRIDE = 24  # every so many points here; the soak run takes them all


def killed_at(cloud, call, point, argument) -> bool:
    """Make the call in a process of its own that dies at this point; return False when it ended before."""
    process = Begun(crash.main, str(cloud.home), call, point, argument, errors=cloud.home.parent / "errors")
    process.communicate()
    status = process.wait(60)
    assert status in (0, -signal.SIGKILL), (cloud.home.parent / "errors").read_text()
    return status != 0


def points(stride):
    """Yield the points to die at, until the caller says `close`."""
    yield from range(1, 100_000, stride)


def crash_launch(cloud, stride) -> int:
    for point in points(stride):
        attempt = cloud.attempt(f"launch-{point}", script="touch begun")
        died = killed_at(cloud, "launch", point, attempt)
        assert len(cloud.provider.list().instances) in ((0, 1) if died else (1,))
        again = cloud.provider.launch(attempt, deadline=now())
        only = cloud.wait(again.id, State.RUNNING)
        assert [one.id for one in cloud.provider.list().instances] == [only.id]
        assert len([one for one in processes_under(cloud.home) if "--alive" in words_of(one)]) == 1
        cloud.provider.terminate(only.id)
        assert processes_under(cloud.home) == []
        assert cloud.empty
        if not died:
            return point
    return 0


def crash_stop(cloud, stride) -> int:
    machine = cloud.running()
    for point in points(stride):
        died = killed_at(cloud, "stop", point, machine.id)
        ended = cloud.wait(machine.id, State.STOPPED, *((State.RUNNING,) if died else ()))
        if ended.state is State.STOPPED:
            assert processes_under(cloud.home) == []
            cloud.provider.start(machine.id)
            cloud.wait(machine.id, State.RUNNING)
        if not died:
            return point
    return 0


def crash_start(cloud, stride) -> int:
    machine = cloud.running()
    for point in points(stride):
        cloud.provider.stop(machine.id)
        died = killed_at(cloud, "start", point, machine.id)
        cloud.provider.start(machine.id)
        cloud.wait(machine.id, State.RUNNING)
        assert len([one for one in processes_under(cloud.home) if "--alive" in words_of(one)]) == 1
        if not died:
            return point
    return 0


def crash_terminate(cloud, stride) -> int:
    for point in points(stride):
        machine = cloud.running(f"end-{point}")
        died = killed_at(cloud, "terminate", point, machine.id)
        if not died:
            with pytest.raises(InstanceNotFound):
                cloud.provider.get(machine.id)
        cloud.provider.terminate(machine.id)
        cloud.provider.terminate(machine.id)
        assert processes_under(cloud.home) == []
        cloud.provider.list()  # removes the lock that a killed call left behind
        assert cloud.empty
        if not died:
            return point
    return 0


CRASHES = {"launch": crash_launch, "stop": crash_stop, "start": crash_start, "terminate": crash_terminate}


@pytest.mark.parametrize(
    "call", ["launch", *(pytest.param(call, marks=pytest.mark.soak) for call in ("terminate", "stop", "start"))]
)
def test_a_killed_call_is_finished_by_the_next(cloud, call):
    assert CRASHES[call](cloud, STRIDE) > STRIDE


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("call", CRASHES)
def test_a_call_killed_at_every_point_is_finished_by_the_next(cloud, call):
    assert CRASHES[call](cloud, 1) > 10
