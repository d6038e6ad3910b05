"""What is said is true when it is said: a repeated request, a budget set too low, a rehearsal, a look by parts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.cli.app import run
from cloudgpu.control.api.client import Cloudgpu
from cloudgpu.control.inventory.listing import list_machines
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.outage import opening as sessions
from cloudgpu.core.model.launch import Setup
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import LaunchUncertain
from tests.control.launch.test_any_provider import Labs


@pytest.fixture
def here(lab):
    return Cloudgpu({"CLOUDGPU_HOME": str(lab.home), "USER": "ada"}, lab.said.append, lab.clock)


@pytest.fixture
def line(lab, capsys, monkeypatch):
    """Run a command on the lab's clock; return its exit code and what it said on stdout and stderr."""
    monkeypatch.setattr(sessions, "open_session", lambda *_, **more: _telling(lab.opened(), more))

    def said(*words):
        capsys.readouterr()
        return run(list(words)), *capsys.readouterr()

    return said


def _telling(session, more):
    session.report = more.get("tell", session.report)
    return session


UP = {"gpu": "v100", "name": "fox", "wait": False}


def test_the_same_request_with_other_terms_says_what_differs_and_how_to_change_it(here):
    first = here.machines.up(**UP, lease="4h", renew_until="24h", max_price="9")
    assert (first["found"], first["differences"]) == (False, [])
    assert here.machines.up(**UP, lease="4h", renew_until="24h", max_price="9")["differences"] == []
    again = here.machines.up(**UP, lease="6h", renew_until="30h", max_price="8", policy="notebook")
    assert again["found"]
    said = {one["option"]: one for one in again["differences"]}
    assert set(said) == {"--lease", "--renew-until", "--max-price", "--policy"}
    assert (said["--lease"]["requested"], said["--lease"]["next"]) == ("6h", "cloudgpu extend fox 2h")
    assert said["--max-price"]["requested"] == "$8.0000 an hour"
    assert "$9.0000 an hour, and costs $" in said["--max-price"]["current"]
    assert "--new" in said["--max-price"]["next"]
    assert here.machines.plan(
        **{key: UP[key] for key in ("gpu", "name")}, lease="6h", renew_until="24h", max_price="9"
    )["differences"] == [said["--lease"]]


def test_an_extended_lease_is_no_difference(here):
    here.machines.up(**UP, lease="4h")
    here.machines.extend("fox", "3h")
    assert here.machines.up(**UP, lease="4h")["differences"] == []


def lease_end(here):
    return from_iso(here.machines.show("fox")["expires"])


def test_the_extension_that_a_repeated_up_names_makes_the_lease_as_long_as_requested(lab, here):
    launched_at = lab.clock()
    here.machines.up(**UP, lease="4h", renew_until="48h")
    here.machines.extend("fox", "2h")
    (difference,) = here.machines.up(**UP, lease="8h", renew_until="48h")["differences"]
    assert (difference["current"], difference["next"]) == ("a lease of 6h", "cloudgpu extend fox 2h")
    here.machines.extend("fox", difference["next"].split()[-1])
    assert lease_end(here) == launched_at + timedelta(hours=8)
    assert here.machines.up(**UP, lease="8h", renew_until="48h")["differences"] == []
    (difference,) = here.machines.up(**UP, lease="6h", renew_until="48h")["differences"]
    assert difference["current"] == "a lease of 8h"
    assert "never made shorter" in difference["next"]


def test_a_lease_that_is_over_is_extended_from_now_to_what_is_requested(lab, here):
    launched_at = lab.clock()
    here.machines.up(**UP, lease="4h", renew_until="48h")
    lab.later(hours=5)
    (difference,) = here.machines.up(**UP, lease="8h", renew_until="48h")["differences"]
    assert difference["next"] == "cloudgpu extend fox 3h"
    here.machines.extend("fox", "3h")
    assert lease_end(here) == launched_at + timedelta(hours=8)
    lab.later(hours=5)
    (difference,) = here.machines.up(**UP, lease="9h", renew_until="48h")["differences"]
    assert difference["next"] == "launch another with --new"


def test_a_lease_counts_from_the_last_start(lab, here):
    here.machines.up(**UP, lease="4h", renew_until="48h")
    here.machines.stop("fox")
    lab.later(hours=20)
    here.machines.start("fox", lease="4h", wait=False)
    (difference,) = here.machines.up(**UP, lease="6h", renew_until="48h")["differences"]
    assert (difference["current"], difference["next"]) == ("a lease of 4h", "cloudgpu extend fox 2h")


def test_the_remedy_for_a_later_renew_until_is_a_command_that_sets_it(lab, here, line):
    launched_at = lab.clock()
    here.machines.up(**UP, lease="4h", renew_until="24h")
    differences = here.machines.up(**UP, lease="6h", renew_until="30h")["differences"]
    for difference in differences:
        assert line(*difference["next"].partition(" (")[0].split()[1:], "--yes")[0] == 0
    assert from_iso(here.machines.show("fox")["renew_until"]) == launched_at + timedelta(hours=30)
    (difference,) = here.machines.up(**UP, lease="6h", renew_until="30h")["differences"]
    assert (difference["option"], difference["current"]) == ("--lease", "a lease of 1d 6h")  # as the remedy said


def test_a_repeated_up_is_one_line_and_promises_no_end_to_a_machine_that_is_off(here, line):
    here.machines.up(**UP, lease="4h")
    again = ("up", "--gpu", "v100", "--name", "fox", "--lease", "4h", "--no-wait", "--yes")
    (said,) = line(*again)[2].splitlines()
    assert said.strip().startswith("fox: 1x v100, fake north-a, $3.0000/h, lease until 2026-11-20 15:00 UTC (already")
    here.machines.stop("fox")
    (said,) = line(*again)[2].splitlines()
    assert "$3.0000/h, stopped (already launched" in said


def test_up_says_on_stderr_what_it_did_not_change(here, line):
    here.machines.up(**UP, lease="4h")
    code, _, err = line("up", "--gpu", "v100", "--name", "fox", "--lease", "2h", "--no-wait", "--yes")
    assert code == 0
    assert "--lease 2h was ignored: the machine has a lease of 4h" in err


def test_a_budget_below_what_is_committed_says_the_sums_and_what_follows(lab, here, line):
    here.machines.up(**UP, lease="4h", renew_until="24h")
    lab.later(hours=2)
    sync_all(lab.session)
    fits = here.money.set_budget("wide", "100000", "month")
    assert fits["warning"] is None
    code, _, err = line("budget", "set", "tight", "--amount", "0.01", "--period", "month", "--action", "stop")
    assert code == 0
    said = " ".join(err.split())
    assert "tight is below what is committed: $" in said
    assert "of $0.01. At the next run fox would be stopped" in said
    assert "No launch is admitted under it meanwhile." in said  # a budget that stops refuses, too
    later = here.money.set_budget("later", "20", "month", action="refuse")["warning"]
    assert "It is not exceeded yet" in later
    assert "No launch is admitted under it meanwhile." in later


def test_a_rehearsed_interruption_is_shown_until_it_has_happened(lab, here, line):
    here.machines.up(**UP, spot=True)
    lab.later(minutes=5)
    taken = here.machines.rehearse("fox")["taken_at"]
    assert [one["taken_at"] for one in here.machines.ls(refresh=True)["machines"]] == [taken]
    assert here.machines.show("fox")["taken_at"] == taken
    assert "fox: a spot interruption is rehearsed; it is taken" in line("ls")[1]
    assert "rehearsal: it is taken" in line("show", "fox")[1]
    lab.later(minutes=5)
    here.machines.ls(refresh=True)
    after = here.machines.show("fox")
    assert after["terminated_at"] is not None
    assert after["taken_at"] is None


def test_a_look_that_another_region_did_not_answer_has_reached_the_machine(lab, here):
    row = lab.up(name="fox").machine
    lab.later(minutes=5)
    sync_all(lab.session)
    lab.later(minutes=5)
    other = next(region for region in ("north", "south") if region != row.region)
    lab.cloud.hide(other)
    found = list_machines(lab.session, refresh=True)
    assert [gap["scope"] for gap in found["unanswered"]] == [other]
    assert found["view_as_of"] == iso(lab.clock())
    lab.later(minutes=5)
    lab.cloud.hide(row.region)
    assert list_machines(lab.session, refresh=True)["view_as_of"] < iso(lab.clock() - timedelta(minutes=4))


def test_the_request_of_a_spot_machine_that_a_listing_lacks_and_that_has_ended_is_cancelled(make_lab):
    lab = make_lab("lag_s = 3600")
    row = lab.up(spot=True, setup=Setup(persistent=True)).machine
    lab.cloud.terminate(row.provider_id)  # others, in a cloud's console: its persistent request would launch the next
    lab.later(minutes=5)
    asked = lab.cloud.calls["terminate"]
    result = sync_all(lab.session)
    assert lab.cloud.calls["terminate"] == asked + 1
    assert [one for one in result.sentences if "its request, which would launch the next, is cancelled" in one]
    assert lab.session.ledger.machine(row.id).terminated_at is not None


def test_a_saved_call_that_cannot_be_read_keeps_no_sync_from_settling_it(make_lab):
    lab = make_lab("lag_s = 300")
    lab.up(name="fox", key="fox")
    lab.cloud.lose_reply("launch")
    with pytest.raises(LaunchUncertain):
        lab.up(name="owl", key="owl")
    (owl,) = [row for row in lab.rows() if row.launch_status == "open"]
    (file,) = lab.session.home.attempts.glob(f"{owl.token}.*")
    file.write_text("{}")
    lab.later(seconds=1)
    result = sync_all(lab.session)
    assert [one for one in result.sentences if one.startswith("owl: the outcome of an interrupted launch is not known")]
    lab.later(seconds=301)
    sync_all(lab.session)
    assert lab.session.ledger.machine(owl.id).launch_status == "made"


def test_a_defect_of_one_provider_hides_no_machine_of_another(tmp_path, monkeypatch):
    labs = Labs(tmp_path, monkeypatch, options="lag_s = 3600")
    cheap, dear = (
        launch(labs.session, labs.prepare(account=name, name=name), wait=False).machine for name in ("cheap", "dear")
    )
    labs.later(minutes=5)
    labs.dear.die(dear.provider_id)

    def defect():
        raise KeyError("zone")

    labs.cheap.fail_next("get", defect)
    result = sync_all(labs.session)
    assert [gap.why for gap in result.unanswered if gap.scope == "cheap"] == ["it could not be read (KeyError: 'zone')"]
    assert cheap.id not in result.answered
    assert labs.session.ledger.machine(dear.id).state == "stopped"
