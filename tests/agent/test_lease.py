"""The lease against every clock: Agent.lease with time as its argument."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.agent.agent import HOUR, Agent, with_defaults
from cloudgpu.agent.lease import LEASE_TAGS, decide, lease_of, update_marks
from cloudgpu.core.activity.idle import ACTIVE, IDLE, UNKNOWN
from tests.agent.machine import MONO, NOW
from tests.examples import some

PAUSE = 30  # seconds between two passes, here
GRACE = 60


@pytest.fixture(scope="module")
def directory():
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def _agent(directory, expires, renew_until, hold=0):
    made = Agent(directory, MONO)
    tags = dict(
        zip(LEASE_TAGS, (str(int(NOW + end)) if end else "0" for end in (expires, renew_until, hold)), strict=True)
    )
    made.state = with_defaults({})
    made.settings = {"lease": tags, "grace": GRACE}
    return made


def _ends(made, activity=lambda _: IDLE, drift=lambda _: 0, last=20 * HOUR):
    """Return (seconds, reason) of the first pass that ends the machine; `drift` is the wall clock's error."""
    for second in range(0, int(last), PAUSE):
        verdict, reason = made.apply_lease(activity(second), NOW + second + drift(second), MONO + second)
        lease = made.state["marks"]
        assert lease["expires"][0] <= lease["renew_until"][0]
        if verdict == "end":
            return second, reason
    return None


def _first_pass(second):
    return -(-second // PAUSE) * PAUSE


spans = st.integers(PAUSE, int(9 * HOUR))


def falling(steps):
    """A clock that is set back, again and again: (when, by how much)."""
    return lambda second: -sum(by for when, by in steps if second >= when > 0)


def jumping(steps):
    """A clock that is set to anything, at any time but the first look."""
    return lambda second: sum(by for when, by in steps if second >= when > 0)


set_back = st.lists(st.tuples(spans, st.integers(1, 40 * 86400)), max_size=4).map(falling)
set_anyhow = st.lists(st.tuples(spans, st.integers(-40 * 86400, 40 * 86400)), max_size=4).map(jumping)
activities = st.lists(st.sampled_from([ACTIVE, IDLE, UNKNOWN]), min_size=1, max_size=50).map(
    lambda kinds: lambda second: kinds[second // 600 % len(kinds)]
)


@settings(max_examples=some(60), deadline=None)
@given(expires=spans, more=spans, drift=set_back)
def test_a_clock_that_is_set_back_prolongs_no_lease_and_shortens_none(directory, expires, more, drift):
    assert _ends(_agent(directory, expires, expires + more), drift=drift) == (_first_pass(expires), "lease")


@settings(max_examples=some(60), deadline=None)
@given(expires=spans, more=spans, hold=spans, drift=set_anyhow, activity=activities)
def test_no_clock_activity_or_hold_carries_a_machine_past_renew_until(directory, expires, more, hold, drift, activity):
    second, _ = _ends(_agent(directory, expires, expires + more, hold), activity, drift)
    assert second <= _first_pass(expires + more)


@settings(max_examples=some(40), deadline=None)
@given(expires=spans, more=spans, activity=st.sampled_from([ACTIVE, UNKNOWN]), drift=set_back)
def test_a_machine_in_use_or_unknown_lives_to_renew_until(directory, expires, more, activity, drift):
    made = _agent(directory, expires, expires + more)
    renewals = set()

    def noted(_):
        renewals.add(made.state["own"] or None)
        return activity

    assert _ends(made, noted, drift) == (_first_pass(expires + more), "renew-until")
    assert len(renewals - {None}) <= -(-more // HOUR)
    assert all(end > NOW + expires for end in renewals - {None})


@settings(max_examples=some(40), deadline=None)
@given(expires=spans, more=spans, hold=spans)
def test_a_hold_keeps_an_idle_machine_until_its_end_and_never_past_renew_until(directory, expires, more, hold):
    second, reason = _ends(_agent(directory, expires, expires + more, hold))
    assert second == _first_pass(min(max(expires, hold), expires + more))
    assert reason in ("lease", "renew-until")


@settings(max_examples=some(40), deadline=None)
@given(expires=spans, more=spans, at=spans, ahead=st.integers(1, 40 * 86400))
def test_a_glance_into_the_future_ends_nothing(directory, expires, more, at, ahead):
    made = _agent(directory, expires, expires + more)
    drift = lambda second: ahead if at <= second < at + GRACE - PAUSE else 0  # noqa: E731
    assert _ends(made, drift=drift) == (_first_pass(expires), "lease")


@settings(max_examples=some(40), deadline=None)
@given(expires=spans, later=spans, at=spans, drift=set_back)
def test_an_extension_counts_from_the_lease_and_not_from_a_clock_that_is_wrong(directory, expires, later, at, drift):
    made = _agent(directory, expires, expires + later)

    def extended(second):
        if second >= at:
            made.state["tags"][LEASE_TAGS[0]] = str(int(NOW + expires + later))
        return IDLE

    second, _ = _ends(made, extended, drift)
    assert second == _first_pass(expires if at > _first_pass(expires) else expires + later)


def test_after_a_night_of_sleep_the_wall_clock_alone_ends_the_lease(directory):
    made = _agent(directory, 2 * HOUR, 4 * HOUR)
    assert made.apply_lease(IDLE, NOW, MONO) == ("keep", "leased")
    assert made.apply_lease(IDLE, NOW + 3 * HOUR, MONO + PAUSE) == ("keep", "leased")
    assert made.apply_lease(IDLE, NOW + 3 * HOUR + GRACE, MONO + PAUSE + GRACE) == ("end", "lease")


def test_a_renewal_after_a_night_of_sleep_counts_from_now(directory):
    made = _agent(directory, 2 * HOUR, 40 * HOUR)
    made.apply_lease(ACTIVE, NOW, MONO)
    made.apply_lease(ACTIVE, NOW + 9 * HOUR, MONO + PAUSE)
    assert made.apply_lease(ACTIVE, NOW + 9 * HOUR + GRACE, MONO + PAUSE + GRACE) == ("renew", ACTIVE)
    assert made.state["own"] == NOW + 10 * HOUR + GRACE


def test_a_clock_that_boots_ahead_and_is_put_right_ends_nothing(directory):
    made = _agent(directory, 2 * HOUR, 4 * HOUR)
    assert _ends(made, drift=lambda second: 9 * 86400 if second < PAUSE else 0) == (2 * HOUR, "lease")


def test_a_clock_that_boots_in_1970_counts_from_the_launch(directory):
    made = _agent(directory, 2 * HOUR, 4 * HOUR)
    made.settings["made"] = NOW
    assert _ends(made, drift=lambda _: -NOW) == (2 * HOUR, "lease")


def test_without_a_tag_for_renew_until_nothing_is_renewed(directory):
    assert _ends(_agent(directory, HOUR, 0), lambda _: ACTIVE) == (HOUR, "renew-until")


def test_without_any_lease_the_machine_is_kept_and_that_is_said():
    assert decide(update_marks({}, lease_of({}, 0), NOW, MONO, 0), IDLE, MONO, GRACE) == ("keep", "no lease is known")


def test_our_own_renewal_never_reaches_over_renew_until():
    tags = {LEASE_TAGS[0]: "100", LEASE_TAGS[1]: "200"}
    assert lease_of(tags, 150)["expires"] == 150
    assert lease_of(tags, 900)["expires"] == 200
    assert lease_of({LEASE_TAGS[1]: "200"}, 0) == {"expires": 200, "renew_until": 200, "hold_until": 0}


def test_a_released_hold_holds_nothing(directory):
    made = _agent(directory, HOUR, 9 * HOUR, hold=5 * HOUR)
    made.apply_lease(IDLE, NOW, MONO)
    assert made.apply_lease(IDLE, NOW + HOUR, MONO + HOUR) == ("keep", "held")
    made.state["tags"][LEASE_TAGS[2]] = "0"
    assert made.apply_lease(IDLE, NOW + HOUR + 1, MONO + HOUR + 1) == ("end", "lease")
