"""What a policy means for `up`, `start` and `stop`, on the fake cloud."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease
from cloudgpu.control.setup.doctor import examine
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import InvalidRequest

H = timedelta(hours=1)
OWN = "lease: 6h\nrenew_until: 10h\nspot:\n  unpausable: warn\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A project of the test's own, so that none of whoever runs it counts."""
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def write(directory, name, text):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.yaml").write_text(text)


def settings(lab, text):
    """Put lines at the top of config.toml and read it again."""
    file = lab.home / "config.toml"
    file.write_text(f"{text}\n{file.read_text()}")
    lab.session = lab.opened()


def spans(lab, **wish):
    request = lab.prepare(**wish).plan.request
    return request.policy, request.lease_s / 3600, request.renew_s / 3600


def refused(lab, **wish):
    with pytest.raises(InvalidRequest) as caught:
        lab.prepare(**wish)
    return caught.value


def lease_of(lab, row, span=None):
    lease = new_lease(lab.session, row, span)
    now = lab.clock().replace(microsecond=0)
    return (lease.expires - now) / H, (lease.renew_until - now) / H


TABLE = [
    # config.toml, what is typed, policy, lease and renew-until in hours
    ("", {}, ("default", 8, 72)),
    ("", {"policy": "throwaway"}, ("throwaway", 4, 12)),
    ('policy = "throwaway"', {}, ("throwaway", 4, 12)),
    ('policy = "throwaway"', {"policy": "default"}, ("default", 8, 72)),
    ('lease = "2h"', {}, ("default", 2, 72)),
    ('lease = "2h"\nrenew_until = "5h"', {}, ("default", 2, 5)),
    ('lease = "2h"\nrenew_until = "5h"', {"lease": 3 * H}, ("default", 3, 5)),
    ('lease = "2h"\nrenew_until = "5h"', {"lease": 9 * H}, ("default", 9, 9)),
    ('lease = "2h"\nrenew_until = "5h"', {"policy": "default"}, ("default", 2, 5)),
    ('lease = "2h"\nrenew_until = "5h"', {"policy": "throwaway"}, ("throwaway", 4, 12)),
    ('policy = "throwaway"\nlease = "2h"', {}, ("throwaway", 2, 12)),
    ("", {"policy": "throwaway", "lease": 1 * H, "renew_until": 2 * H}, ("throwaway", 1, 2)),
]


@pytest.mark.parametrize(("text", "typed", "expected"), TABLE, ids=[f"{row[0]!r} {row[1]}" for row in TABLE])
def test_the_nearest_word_says_how_long(lab, text, typed, expected):
    settings(lab, text)
    assert spans(lab, **typed) == expected


@pytest.mark.parametrize(
    ("text", "typed", "field", "value"),
    [
        ("", {"renew_until": 2 * H}, "--renew-until", "2h"),
        ("", {"lease": 4 * H, "renew_until": 2 * H}, "--renew-until", "2h"),
        ('lease = "100h"', {}, "config.toml: lease", "4d 4h"),
        ('renew_until = "1h"', {}, "config.toml: renew_until", "1h"),
        ("", {"policy": ""}, "--policy", ""),
        ("", {"policy": "thrwaway"}, "policy", "thrwaway"),
        ('policy = "nosuch"', {}, "policy", "nosuch"),
    ],
)
def test_what_contradicts_or_is_unknown_is_refused(lab, text, typed, field, value):
    settings(lab, text)
    error = refused(lab, **typed)
    assert (error.exit_code, error.field, error.value) == (2, field, value)
    assert error.next


def test_an_own_policy_wins_over_a_shipped_one_and_a_projects_over_that_and_it_is_said(lab, elsewhere):
    write(lab.session.home.policies, "default", OWN)
    assert spans(lab) == ("default", 6, 10)
    write(elsewhere / ".cloudgpu" / "policies", "default", "lease: 1h\nrenew_until: 2h\n")
    assert spans(lab) == ("default", 1, 2)
    assert f"the policy default is from {elsewhere / '.cloudgpu' / 'policies' / 'default.yaml'}" in lab.said


def test_the_policy_stands_in_the_row_and_in_the_tag(lab):
    row = lab.up(policy="throwaway").machine
    assert row.policy == "throwaway"
    assert lab.cloud.list().instances[0].tags["cloudgpu-policy"] == "throwaway"
    assert (from_iso(row.renew_until) - from_iso(row.expires)) == 8 * H


def test_a_start_follows_the_policy_of_the_launch(lab):
    row = lab.up(policy="throwaway").machine
    settings(lab, 'lease = "2h"')
    assert lease_of(lab, row) == (4, 12)
    assert lease_of(lab, row, 7 * H) == (7, 12)
    assert lease_of(lab, row, 20 * H) == (20, 20)


def test_a_start_of_the_usual_policy_follows_config_toml(lab):
    row = lab.up().machine
    settings(lab, 'lease = "2h"')
    assert lease_of(lab, row) == (2, 72)


def test_a_start_without_a_typed_lease_gives_no_longer_life_than_was_agreed(lab):
    row = lab.up(lease=1 * H, renew_until=2 * H).machine
    assert lease_of(lab, row) == (2, 2)


def test_a_start_whose_policy_is_gone_says_what_to_type(lab):
    write(lab.session.home.policies, "own", OWN)
    row = lab.up(policy="own").machine._replace(terms=None)  # taken up by its tags
    (lab.session.home.policies / "own.yaml").unlink()
    with pytest.raises(InvalidRequest, match="No policy is called 'own'") as caught:
        new_lease(lab.session, row, None)
    assert f"cloudgpu start {row.name} --lease 8h" in caught.value.next
    assert lease_of(lab, row, 3 * H) == (3, 10)


def test_a_machine_taken_up_without_its_launch_starts_by_its_tag(lab):
    row = lab.up(policy="throwaway").machine._replace(renew_s=None)
    assert lease_of(lab, row) == (4, 12)
    assert lease_of(lab, row._replace(policy=""), 100 * H) == (100, 100)


def test_stop_is_refused_where_the_policy_terminates_and_nothing_happens(lab):
    row = lab.up(policy="throwaway", spot=True).machine
    with pytest.raises(InvalidRequest, match="policy throwaway terminates what cannot be stopped") as caught:
        stop(lab.session, row, why="test")
    assert caught.value.exit_code == 2
    assert f"cloudgpu down {row.name}" in caught.value.next
    assert len(lab.machines()) == 1
    assert lab.session.ledger.machine(row.id).pending_action is None


@pytest.mark.parametrize(("policy", "left"), [("throwaway", []), ("default", [Kind.DISK]), ("own", [Kind.DISK])])
def test_what_stays_of_a_spot_machine_that_ended_by_itself_is_as_its_policy_says(lab, policy, left):
    write(lab.session.home.policies, "own", OWN)
    row = lab.up(policy=policy, spot=True).machine
    lab.cloud.interrupt(row.provider_id)
    lab.later(minutes=5)
    assert [thing.kind for thing in lab.cloud.resources().items] == left


def test_on_demand_a_policy_that_terminates_changes_nothing(lab):
    assert stop(lab.session, lab.up(policy="throwaway").machine, why="test").state == "stopped"


def test_the_plan_says_that_nothing_stays(lab):
    plan = lab.prepare(policy="throwaway", spot=True).plan
    assert "policy throwaway keeps nothing" in plan.stop_effect
    assert not plan.request.setup.keep_disk
    assert lab.prepare(policy="throwaway").plan.request.setup.keep_disk
    assert lab.prepare(spot=True).plan.request.setup.keep_disk


def test_the_same_request_under_another_policy_is_the_same_machine_unless_another_disk_would_stay(lab):
    first = lab.up().machine
    assert lab.up(policy="throwaway").machine.id == first.id
    spot = lab.up(spot=True).machine
    assert lab.up(spot=True, policy="throwaway").machine.id != spot.id


def test_down_leaves_nothing_whatever_the_policy(lab):
    for policy in ("default", "throwaway"):
        terminate_one(lab.session, lab.up(policy=policy, spot=True).machine, why="test")
    assert not lab.machines()
    assert not lab.cloud.resources().items


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ('policy = "throwaway"', 0, "throwaway: lease 4h, renew-until 12h"),
        ('lease = "100h"', 2, "longer than renew_until of the policy default"),
        ('policy = "nosuch"', 2, "No policy is called 'nosuch'"),
        ('policies = {projects = {thesis = "nigtly"}}', 2, "did you mean 'nightly'?"),
    ],
)
def test_doctor_says_which_policy_counts_or_what_is_wrong_with_it(lab, text, code, says):
    settings(lab, text)
    checks = examine({"CLOUDGPU_HOME": str(lab.home), "USER": "ada"}, clock=lab.clock)
    (check,) = (one for one in checks if one.name == "policy")
    assert (check.exit_code, says in check.message) == (code, True), check


@pytest.mark.parametrize(
    ("name", "text", "code", "says"),
    [
        ("limits", "lease: 5h\n", 0, "default: lease 5h, renew-until 3d"),
        ("limits", "lease: long\n", 2, "limits.yaml:1: lease is not a duration"),
        ("own", "lease: 5h\n", 2, "own.yaml:1: renew_until is missing"),
    ],
)
def test_doctor_reads_the_limits_and_every_policy_of_ones_own(lab, name, text, code, says):
    write(lab.session.home.policies, name, text)
    checks = examine({"CLOUDGPU_HOME": str(lab.home), "USER": "ada"}, clock=lab.clock)
    (check,) = (one for one in checks if one.name == "policy")
    assert (check.exit_code, says in check.message) == (code, True), check
