"""Who may do what with whose machine: no member may ever do what only a payer may, and limits only get narrower."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.events.general_events import owner_assigned, owner_claimed, policy_published, policy_withdrawn
from cloudgpu.core.events.log import Draft, Event
from cloudgpu.core.policies.policy import Limits, Stoppers, narrowest_limits
from cloudgpu.core.team.rights import (
    ASSIGNED,
    CLAIMED,
    PAYER_KINDS,
    PEOPLE_SUBJECT,
    PUBLISHED,
    WITHDRAWN,
    Claim,
    People,
    Right,
    Role,
    claim,
    comparable_name,
    people_of,
    published_of,
    right_to,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
PERSONS = ("ada", "bo", "pia")
OWNERS = (*PERSONS, "ada@lab.org", "ADA-lab-org", "bo@lab.org", "eve")
spans = st.none() | st.sampled_from([timedelta(hours=hours) for hours in (1, 5, 24, 90)])
limits = st.builds(
    Limits,
    lease=spans,
    renew_until=spans,
    idle_after=spans,
    policies=st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    payers=st.lists(st.sampled_from(PERSONS), unique=True).map(tuple),
    stop=st.none() | st.sampled_from(Stoppers),
)


def event(seq, draft, actor):
    at = "2026-11-20T12:00:00.000000Z"
    return Event(seq, at, "own", at, actor, draft.kind, draft.subject, draft.dedupe, "", draft.body)


def lines(*drafts):
    """The lines of these (draft, actor), in this order."""
    return [event(seq, draft, actor) for seq, (draft, actor) in enumerate(drafts, 1)]


@given(st.booleans(), st.booleans(), st.sampled_from(Stoppers))
def test_whoever_is_alone_may_do_everything(mine, stops, stoppers):
    assert right_to(Role.ALONE, mine=mine, stops=stops, stoppers=stoppers) is Right.OWNER


@given(st.booleans(), st.booleans(), st.sampled_from(Stoppers), st.booleans())
def test_a_member_may_nothing_that_a_payer_may_not(mine, stops, stoppers, as_reaper):
    asked = {"mine": mine, "stops": stops, "stoppers": stoppers, "as_reaper": as_reaper}
    assert right_to(Role.PAYER, **asked) is not None
    member = right_to(Role.MEMBER, **asked)
    assert (member is not None) == (as_reaper or mine or (stops and stoppers is Stoppers.MEMBERS))
    assert member is not Right.PAYER


@given(st.lists(st.tuples(st.sampled_from(PERSONS), st.sampled_from(OWNERS), st.sampled_from(OWNERS)), max_size=12))
def test_no_member_gets_a_name_that_was_somebody_elses(tries):
    """Each tries to launch for an owner, with some owner in their settings; what is granted as new is written down."""
    people, written, first = People(), [], {}
    for person, owner, usual in tries:
        verdict = claim(people, Role.MEMBER, person, owner, usual)
        taken = people.person(owner) if people.is_known(owner) else None
        if verdict is Claim.GRANTED:
            assert taken == person
        if verdict is Claim.NEW:
            assert (taken is None and owner in (usual, person)) or owner.lower().replace("@", "-") != owner
            written.append((owner_claimed(owner, person, NOON, len(written)), person))
            people = people_of(lines(*written))
            first.setdefault(comparable_name(owner), person)
    assert all(
        people.person(draft.body["owner"]) == first[comparable_name(draft.body["owner"])] for draft, _ in written
    )
    assert all(len([one for one in people.names(person) if one != person]) <= 1 for person in PERSONS)


def test_a_members_first_name_is_the_only_one_beside_their_own():
    people = people_of(lines((owner_claimed("ada@lab.org", "ada", NOON, 0), "ada")))
    asked = [claim(people, Role.MEMBER, "ada", owner, owner) for owner in ("ada@lab.org", "ada", "second@lab.org")]
    assert asked == [Claim.GRANTED, Claim.NEW, Claim.REFUSED]


def test_a_member_gets_one_name_beside_their_own_whichever_was_first():
    people = people_of(lines((owner_claimed("ada", "ada", NOON, 0), "ada")))
    assert claim(people, Role.MEMBER, "ada", "ada@lab.org", "ada@lab.org") is Claim.NEW
    both = people_of(lines(*((owner_claimed(name, "ada", NOON, 0), "ada") for name in ("ada", "ada@lab.org"))))
    assert claim(both, Role.MEMBER, "ada", "second@lab.org", "second@lab.org") is Claim.REFUSED


@pytest.mark.parametrize("owner", ["bo", "Bo"])
def test_what_the_database_calls_a_member_is_no_other_members_to_take(owner):
    users = ("bo", "cy")
    assert claim(People(users=users), Role.MEMBER, "cy", owner, owner) is Claim.REFUSED
    assert claim(People(users=users), Role.MEMBER, "bo", "bo", "bo@lab.org") is Claim.NEW
    people = people_of(lines((owner_claimed(owner, "cy", NOON, 0), "cy")), users)  # by a program of cy's own
    assert [people.owns(person, name) for person in ("cy", "bo") for name in ("bo", "Bo")] == [False] * 2 + [True] * 2
    assert claim(people, Role.MEMBER, "bo", "bo", "bo@lab.org") is Claim.NEW
    assert people_of(lines((owner_assigned(owner, "cy", NOON, 0), "pia")), users).owns("cy", owner)


@pytest.mark.parametrize("owner", ["ada@lab.org", "ADA@lab.org", "ada-lab-org", "ada", "Ada"])
def test_another_member_cannot_launch_as_somebody_who_is_known(owner):
    people = people_of(lines((owner_claimed("ada@lab.org", "ada", NOON, 0), "ada")))
    assert claim(people, Role.MEMBER, "bo", owner, owner) is Claim.REFUSED
    assert claim(people, Role.PAYER, "pia", owner, owner) is Claim.GRANTED


def test_a_name_that_only_an_option_says_is_nobodys_to_take():
    assert claim(People(), Role.MEMBER, "bo", "ada@lab.org", "bo@lab.org") is Claim.REFUSED
    assert claim(People(), Role.PAYER, "pia", "ada@lab.org", "pia@lab.org") is Claim.GRANTED


def test_a_claim_counts_only_for_whoever_wrote_it():
    forged = owner_claimed("ada@lab.org", "bo", NOON, 0)
    assert people_of(lines((forged, "eve"))) == People()
    assert people_of(lines((forged, "bo"))).owns("bo", "ada@lab.org")


@pytest.mark.parametrize("kind", [CLAIMED, ASSIGNED])
@pytest.mark.parametrize("body", [
    {}, {"owner": "x"}, {"person": "eve"}, {"owner": ["x"], "person": "eve"}, {"owner": "x", "person": {}},
    {"owner": "", "person": "eve"},
])  # fmt: skip
def test_a_line_that_does_not_say_whose_a_name_is_says_nothing(kind, body):
    whole = (owner_claimed("ada@lab.org", "ada", NOON, 0), "ada")
    people = people_of(lines((Draft(kind, PEOPLE_SUBJECT, body, NOON, "x"), "eve"), whole))
    assert people == people_of(lines(whole))


def test_a_payer_corrects_whose_a_name_is():
    first = (owner_claimed("ada@lab.org", "bo", NOON, 0), "bo")
    people = people_of(lines(first, (owner_assigned("ada@lab.org", "ada", NOON, 1), "pia")))
    assert people.owns("ada", "ada@lab.org")
    assert not people.owns("bo", "ada@lab.org")
    assert {ASSIGNED, PUBLISHED, WITHDRAWN} <= PAYER_KINDS
    assert CLAIMED not in PAYER_KINDS


def test_a_name_that_was_read_from_tags_is_the_same_persons():
    people = people_of(lines((owner_claimed("ada@lab.org", "ada", NOON, 0), "ada")))
    assert people.owns("ada", "ada-lab-org")
    assert not people.owns("bo", "ada-lab-org")
    assert not any(people.owns(person, owner) for person in PERSONS for owner in (None, ""))


@given(limits, limits)
def test_another_file_of_limits_only_makes_them_narrower(lab, home):
    both = narrowest_limits((lab, home))
    for name in ("lease", "renew_until", "idle_after"):
        known = [getattr(one, name) for one in (lab, home) if getattr(one, name) is not None]
        assert getattr(both, name) == min(known, default=None)
    assert all(lab.allows(name) and home.allows(name) for name in "abc" if both.allows(name))
    assert both.stop is not Stoppers.MEMBERS or Stoppers.OWNER not in (lab.stop, home.stop)
    alone = replace(both, payers=())
    assert (
        narrowest_limits((alone, replace(home, payers=())))
        == narrowest_limits((alone, replace(lab, payers=())))
        == alone
    )


def test_the_last_publication_of_a_name_counts_until_it_is_withdrawn():
    first, second = (policy_published("night", text, "UTC", NOON, after) for text, after in (("a: 1", 0), ("b: 1", 1)))
    written = [(first, "pia"), (second, "cy")]
    one = published_of(lines(*written))["night"]
    assert (one.text, one.by, one.origin) == ("b: 1", "cy", "the ledger, published by cy at 2026-11-20 12:00 UTC")
    assert published_of(lines(*written, (policy_withdrawn("night", NOON, 2), "pia"))) == {}
