"""A machine is judged by what its launch was under, whoever's pass judges it and whatever lies in that home."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.control.alerts.alerts import deliver
from cloudgpu.control.api.show import show_document
from cloudgpu.control.lifecycle.start import new_lease
from cloudgpu.control.policies.commands import explain_policy
from cloudgpu.control.policies.resolve import policy_of
from cloudgpu.control.team.published import publish, withdraw
from cloudgpu.core.alerts.alerts import alert_state as alerts
from cloudgpu.core.events.log import Draft
from cloudgpu.core.policies.policy import Rule
from cloudgpu.core.values.times import iso
from cloudgpu.views.history import history_lines
from tests.control.team.colleagues import team

__all__ = ["team"]
MIN = timedelta(minutes=1)
LONG = "lease: 20h\nrenew_until: 4d\nidle: {after: 9h}\n"
SHORT = "lease: 20h\nrenew_until: 4d\nidle: {after: 20m}\n"


def idle(person, name="work"):
    return policy_of(person.session, person.machine(name)).policy.idle.after


def kinds(person, name="work"):
    return [line.kind for line in person.session.ledger.events(person.machine(name).id)]


@pytest.mark.soak
@pytest.mark.parametrize("name", ["nights", "default"])
def test_a_colleagues_pass_judges_by_the_launchers_own_policy_file(team, name):
    """Also where it has the name of a shipped one, or of one in the colleague's home, and for payers too."""
    ada, bo, pia = team.values()
    ada.write(name, LONG)
    bo.write(name, SHORT)
    pia.write(name, SHORT)
    ada.up(name="work", policy=name)
    assert {idle(one) for one in team.values()} == {540 * MIN}
    for one in (bo, pia):
        assert one.pass_().faults == ()
    ada.later(hours=19, minutes=30)
    for one in (bo, pia, ada):
        one.pass_()
    assert ada.machine("work").state == "running"


def test_a_shipped_policy_stays_what_it_is_where_a_colleague_has_a_file_of_that_name(team):
    for one in (team["bo"], team["pia"]):
        one.write("default", SHORT)
        one.write("limits", "idle_after: 10m\n")
        assert idle(one, "adas") == 60 * MIN
    assert policy_of(team["bo"].session, team["bo"].machine("bos")).policy.idle.after == 10 * MIN


def test_a_shipped_schedule_goes_by_the_clock_of_the_home_that_launched(team):
    """A colleague's reaper ended a machine in Seoul at 19:00 of its own UTC, 04:00 at night there."""
    ada, bo, pia = team.values()

    def zones():
        return [policy_of(one.session, one.machine("work")).policy.schedules[0].tz for one in (ada, bo, pia)]

    ada.tz = "Asia/Seoul"
    ada.session = ada.opened()
    ada.up(name="work", policy="nightly")
    assert zones() == ["Asia/Seoul"] * 3
    ada.tz = "Asia/Tokyo"
    ada.session = ada.opened()
    ada.pass_()
    assert zones() == ["Asia/Tokyo"] * 3


def test_the_limits_of_the_launchers_home_hold_in_every_home(team):
    ada, bo, _ = team.values()
    ada.write("limits", "idle_after: 30m\n")
    ada.up(name="work")
    assert (idle(ada), idle(bo)) == (30 * MIN, 30 * MIN)


@pytest.mark.soak
def test_an_edit_counts_for_every_pass_once_the_home_where_it_lies_has_read_it(team):
    ada, bo, _ = team.values()
    file = ada.write("nights", LONG)
    ada.up(name="work", policy="nights")
    file.write_text(SHORT)
    ada.write("limits", "idle_after: 15m\n")
    assert (idle(ada), idle(bo)) == (15 * MIN, 540 * MIN)
    bo.pass_()
    ada.pass_(dry_run=True)
    assert "terms_set" not in kinds(ada)
    ada.pass_()
    assert (idle(ada), idle(bo)) == (15 * MIN, 15 * MIN)
    for one in (bo, ada, bo, ada):
        one.pass_()
    assert kinds(ada).count("terms_set") == 1
    lines = show_document(bo.session, "work", history=True)["history"]
    assert "the reaper has read its policy's file, or limits, again" in history_lines(lines)
    (ada.home / "policies" / "limits.yaml").unlink()
    ada.pass_()
    assert (idle(ada), idle(bo)) == (20 * MIN, 20 * MIN)


def test_a_file_that_is_gone_leaves_what_it_said(team):
    ada, bo, _ = team.values()
    file = ada.write("nights", LONG)
    ada.up(name="work", policy="nights")
    file.unlink()
    assert (idle(ada), idle(bo)) == (540 * MIN, 540 * MIN)
    assert ada.pass_().faults == ()
    value = explain_policy(bo.session, "work")
    assert (value["error"], value["source"]) == (None, "the ledger, as the home that launched it last read it")
    lease = new_lease(ada.session, ada.machine("work"), None)
    assert lease.expires - ada.clock() == timedelta(hours=20)


def test_what_is_published_wins_for_all_and_leaves_what_the_launch_was_under_when_withdrawn(team):
    ada, bo, pia = team.values()
    file = ada.write("nights", LONG)
    ada.up(name="work", policy="nights")
    publish(pia.session, str(pia.write("nights", SHORT)), ())
    bo.up(name="other", policy="nights")
    assert {idle(one, name) for one in team.values() for name in ("work", "other")} == {20 * MIN}
    withdraw(pia.session, "nights")
    file.unlink()
    assert {idle(one) for one in team.values()} == {540 * MIN}
    assert {idle(one, "other") for one in team.values()} == {20 * MIN}


def test_a_text_that_cannot_be_read_here_leaves_the_lease_and_ends_no_pass(team):
    """Another version's, say: it is no fault of this home."""
    ada, bo, _ = team.values()
    ada.up(name="work")
    policy = {"place": "/x", "text": "soon: 1\n", "tz": "UTC"}
    terms = {"home": "elsewhere", "policy": policy, "limits": [], "price_jump": "1.5"}
    ada.session.ledger.append([Draft("terms_set", ada.machine("work").id, {"terms": terms}, ada.clock(), "terms")])
    held = policy_of(bo.session, bo.machine("work"))
    assert (held.policy, held.read_error) == (None, None)
    found = bo.pass_()
    (fault,) = found.faults
    assert fault.endswith("only the lease counts for work")
    assert [one.rule for one in found.decisions if one.name == "work"] == [Rule.NONE]


def test_a_policy_that_is_named_for_all_is_the_reason_also_for_anothers_machine_of_an_unknown_launch(team):
    ada, bo, _ = team.values()
    ada.up(name="work")
    machine = ada.machine("work")._replace(policy="", policy_by=None, terms=None)
    held = policy_of(bo.session, machine, "nightly")
    assert (held.policy.name, held.why) == ("nightly", "--policy nightly")
    held = policy_of(bo.session, machine)
    assert held.policy.name == "default"
    assert held.why == "nobody knows what it was launched under, and it is somebody else's: default"


def moved(person, name, *prices):
    row = person.machine(name)
    for nanos in prices:
        person.later(minutes=1)
        price = row.price.record() | {"nanos_per_hour": nanos, "as_of": iso(person.clock())}
        body = {"price": price, "maybe_from": None, "on_demand": None}
        person.session.ledger.append([Draft("price_observed", row.id, body, person.clock(), f"price:{nanos}")])


@pytest.mark.soak
def test_an_alert_about_a_price_goes_by_one_factor_in_every_home(team):
    ada, bo, pia = team.values()
    for one, factor in ((ada, 3), (bo, 1.2)):
        one.settings_more = f"[alerts]\nprice_jump = {factor}\n"
        one.session = one.opened()
    ada.up(name="work", region="north")
    ada.later(minutes=5)
    ada.pass_()
    moved(ada, "work", 10**9, 2 * 10**9)

    def told():
        done = [deliver(one.session, ()) for one in (ada, bo, pia, ada, bo, pia)]
        return [(len(one.raised), len(one.cleared)) for one in done]

    assert told() == [(0, 0)] * 6, "twice as much is no news to who launched it"
    publish(pia.session, str(pia.write("limits", "price_jump: 1.5\n")), ())
    assert told() == [(1, 0), *[(0, 0)] * 5]
    withdraw(pia.session, "limits")
    assert told() == [(0, 1), *[(0, 0)] * 5]
    ada.settings_more = "[alerts]\nprice_jump = 1.1\n"
    ada.session = ada.opened()
    assert told() == [(0, 0)] * 6
    ada.pass_()
    assert told() == [(0, 0)] * 6, "the pass has raised it, by the home's new setting"
    assert [one.finding.topic for one in told_of(ada)] == ["price"]


def told_of(person):
    return [one for one in alerts(person.session.ledger.events("alerts")).alerts if one.cleared_at is None]
