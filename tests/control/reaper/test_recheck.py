"""What does not answer a pass is asked once more in the same pass: the next one is ten minutes of bill away."""

from __future__ import annotations

from collections import Counter

import pytest

from cloudgpu.errors import InstanceNotFound, ProviderUnavailable, RateLimited
from tests.soak.idleness import TEN, World


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "home", accounts=("red",))
    yield found
    found.session.ledger.close()


@pytest.fixture
def box(world):
    """A machine that was warned ten minutes ago: the next pass ends it."""
    found = world.launch("fox", "red")
    world.now += 6 * TEN
    told = world.reap()
    assert [(one.name, one.rule) for one in told.warned] == [("fox", "idle")]
    world.now += TEN
    return found


@pytest.mark.parametrize("method", ["list", "get_many", "stop_many"])
@pytest.mark.parametrize("fault", [RateLimited, ProviderUnavailable])
def test_one_failing_call_puts_no_end_off(world, box, method, fault):
    world.clouds["red"].fail_next(method, fault("not now", next="wait"))
    done = world.reap()
    assert ([one.name for one in done.ended], done.exit_code) == (["fox"], 0)
    assert not world.runs(box)


def test_a_stop_that_did_not_find_its_machine_is_asked_again_where_a_look_does(world, box):
    world.clouds["red"].fail_next("stop_many", InstanceNotFound("A read that is behind."))
    done = world.reap()
    assert ([one.name for one in done.ended], done.exit_code) == (["fox"], 0)
    assert not world.runs(box)


@pytest.mark.parametrize("method", ["get", "terminate_keeping_disk"])
def test_one_failing_call_puts_no_parking_off(world, method):
    box = world.launch("newt", "red", spot=True)
    world.now += 6 * TEN
    world.reap()
    world.now += TEN
    world.clouds["red"].fail_next(method, ProviderUnavailable("not now"))
    done = world.reap()
    assert [(one.name, str(one.do)) for one in done.ended] == [("newt", "park")]
    assert (done.exit_code, world.runs(box)) == (0, False)


@pytest.mark.parametrize("method", ["list", "get_many"])
def test_what_goes_on_failing_is_named_and_left_alone(world, box, method):
    world.clouds["red"].fail_next(method, ProviderUnavailable("not now"), times=2)
    done = world.reap()
    assert (done.ended, done.exit_code) == ((), 8)
    assert world.runs(box)


def test_only_an_agent_whose_machine_was_warned_is_asked_twice(world, box, monkeypatch):
    other = world.launch("owl", "red")
    other.up -= 7 * TEN  # as if it had run for long
    asked = Counter()

    def deaf(_session, rows, **_options):
        asked.update(row.name for row in rows)
        world.unheard = {box.id, other.id}
        return World.probe(world, _session, rows)

    monkeypatch.setattr(world, "probe", deaf)
    world.now += 7 * TEN
    done = world.reap()
    assert asked == {"fox": 2, "owl": 1}
    assert (done.ended, done.decided) == ((), {"keep": 2})


def test_an_agent_that_answers_the_second_time_is_believed(world, box, monkeypatch):
    heard = iter([{box.id}, set(), set()])

    def at_second(_session, rows, **_options):
        world.unheard = next(heard)
        return World.probe(world, _session, rows)

    monkeypatch.setattr(world, "probe", at_second)
    assert [one.name for one in world.reap().ended] == ["fox"]
