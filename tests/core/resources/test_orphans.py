"""What counts as left over, and what may go: nothing that is used, held, made, named, young, silent or another's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, Instance, State
from cloudgpu.core.model.offers import Market
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.core.resources.orphan import Cleanup, CleanupOptions, Cost, LedgerKnowledge
from cloudgpu.core.resources.orphans import orphans
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from tests.core.machines import attached, hourly, machine, retained
from tests.examples import some

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINE = "led-1"


def row(**more):
    usual = {
        "id": "cg-1", "name": "otter", "owner": "ada", "project": "", "provider": "fake", "account": "lab",
        "region": "north", "zone": "north-a", "provider_id": "i-1", "state": "running", "billed": True,
        "seen_at": iso(NOW - timedelta(days=3)), "attached_costs": (), "key": "k",
    }  # fmt: skip
    return machine(**usual | more)


def thing(**more):
    usual = {
        "provider": "fake", "account": "lab", "region": "north", "zone": "", "id": "disk-1", "kind": Kind.DISK,
        "name": "", "size_gb": 64, "stored_as": "gp3", "tags": {TAG_LEDGER: MINE, TAG_ID: "cg-1"},
        "made_at": NOW - timedelta(days=3),
    }  # fmt: skip
    return ProviderResource(**(usual | more))


def known(*rows, **more):
    usual = {
        "ledger": MINE, "machines": rows, "foreign_instances": (), "busy_ids": frozenset(),
        "silent_scopes": frozenset(), "costs": {},
        "now": NOW,
    }  # fmt: skip
    return LedgerKnowledge(**(usual | more))


STORED = (Kind.DISK, Kind.VOLUME, Kind.IMAGE, Kind.SNAPSHOT)
ENDED = {"terminated_at": iso(NOW - timedelta(days=2)), "state": "terminated", "billed": False}
ENDED |= {"retained": (retained("disk-1"),)}

SPANS = st.sampled_from([timedelta(minutes=1), timedelta(hours=1), timedelta(days=2), timedelta(days=30)])
AGES = st.one_of(st.none(), SPANS.map(lambda span: NOW - span))
TAGS = st.sampled_from(
    [
        {TAG_LEDGER: MINE, TAG_ID: "cg-1"},
        {TAG_LEDGER: MINE},
        {TAG_LEDGER: "led-2", TAG_ID: "cg-1"},
        {TAG_ID: "cg-1"},
        {TAG_LEDGER: MINE, TAG_ID: "cg-1", "cloudgpu-image": "mine"},
        {TAG_LEDGER: MINE, "cloudgpu-volume": "data"},
    ]
)
THINGS = st.builds(
    thing,
    kind=st.sampled_from(Kind),
    tags=TAGS,
    made_at=AGES,
    ready=st.booleans(),
    attached_to=st.sampled_from([None, None, "i-1", "i-2"]),
    region=st.sampled_from(["north", "south"]),
)
ROWS = st.builds(
    lambda parts, more: row(**{**parts, **more}),
    st.sampled_from(
        [
            {},
            {"state": "stopped", "billed": False},
            {"state": "stopped", "since": iso(NOW - timedelta(days=2)), "billed": False},
            {"state": "stopped", "since": iso(NOW - timedelta(days=2))},
            {"launch_status": "open", "provider_id": None, "state": "unknown"},
            {**ENDED, "parked": True},
            {**ENDED, "discard": True},
            ENDED,
            {**ENDED, "retained": ()},
        ]
    ),
    st.sampled_from([{}, {}, {"hold_until": iso(NOW + timedelta(hours=1))}, {"hold_until": iso(NOW)}]),
)
WISHES = st.builds(CleanupOptions, older_than=st.none() | SPANS, stopped_older_than=st.none() | SPANS)
KNOWN = st.builds(
    lambda one, busy, silent: known(one, busy_ids=busy, silent_scopes=silent),
    ROWS,
    st.sampled_from([frozenset(), frozenset(), frozenset({"cg-1"})]),
    st.sampled_from([frozenset(), frozenset(), frozenset({"north"}), frozenset({"lab"})]),
)


@settings(max_examples=some(300))
@given(st.lists(THINGS, max_size=3), KNOWN, WISHES)
def test_nothing_goes_that_somebody_uses_holds_makes_names_or_has_not_answered_for(things, sure, wish):
    (one_of_ours,) = sure.machines
    for one in orphans(things, sure, wish):
        assert one.why
        assert (one.stays == "") == (one.do is not Cleanup.STAY), one
        if one.do is Cleanup.STAY:
            continue
        assert not sure.busy_ids
        assert not sure.silent_scopes & {one.region, "lab"}
        assert one_of_ours.launch_status != "open"
        assert one.machine is None or not one_of_ours.hold_until or one_of_ours.hold_until <= iso(NOW)
        if wish.older_than is not None:
            assert one.since is not None
            assert NOW - one.since >= wish.older_than
        if one.do is Cleanup.END:
            assert wish.stopped_older_than is not None
            assert NOW - one.since >= wish.stopped_older_than
            assert one_of_ours.parked or one_of_ours.state == "stopped"
        else:
            _may_go(one.resource, one_of_ours)


def _may_go(gone, row):
    """Assert that this thing is nobody's any more."""
    assert gone.tags.get(TAG_LEDGER) == MINE
    assert gone.attached_to is None
    assert gone.ready
    assert not {"cloudgpu-image", "cloudgpu-volume"} & set(gone.tags) or gone.kind not in STORED
    settled = TAG_ID in gone.tags and row.terminated_at is not None and gone.kind not in STORED
    assert settled or gone.made_at is None or NOW - gone.made_at >= timedelta(minutes=15)
    lives = row.terminated_at is None
    if TAG_ID in gone.tags:
        assert not lives, gone
        assert gone.kind not in (Kind.DISK, Kind.IMAGE, Kind.SNAPSHOT) or not row.parked
    if gone.kind in (Kind.KEY_PAIR, Kind.SECURITY_GROUP):
        assert not lives or row.region != gone.region


def test_a_stopped_machine_costs_what_is_paid_beside_it_and_one_that_is_still_allocated_costs_itself_too():
    beside = (
        attached(nanos_per_month=5_120_000_000, kept=True),
        attached("address", nanos_per_month=3_650_000_000, kept=False),  # while it is allocated
    )
    stopped = row(state="stopped", billed=False, attached_costs=beside, price=hourly(1_000_000_000))
    (one,) = orphans([], known(stopped))
    assert (one.what, one.cost.per_month, one.command) == ("stopped_machine", Money.usd("5.12"), "cloudgpu down otter")
    (one,) = orphans([], known(stopped._replace(billed=True)))
    assert (one.what, one.cost.per_month, one.command) == (
        "allocated_machine",
        Money.usd("738.77"),
        "cloudgpu stop otter",
    )


def test_a_rule_of_one_machine_is_left_when_that_is_gone_though_others_live_there():
    rule = thing(kind=Kind.SECURITY_GROUP, id="global/firewalls/cg-1", size_gb=0, stored_as="")
    other = row(id="cg-2", name="fox", provider_id="i-2")
    (one,) = orphans([rule], known(row(**ENDED | {"retained": ()}), other))
    assert (one.do, one.why) == (Cleanup.REMOVE, "its machine is gone")
    assert orphans([thing(kind=Kind.SECURITY_GROUP, tags={TAG_LEDGER: MINE})], known(row(**ENDED), other)) == []
    (one,) = orphans([rule], known(row()))  # it is there, and lets nobody in by this rule
    assert one.do is Cleanup.STAY


def test_a_part_without_a_price_makes_the_whole_unknown_and_never_nothing():
    for beside in (None, (attached(nanos_per_month=None, kept=True),)):
        (one,) = orphans([], known(row(state="stopped", billed=False, attached_costs=beside)))
        assert one.cost.per_month is None


def test_a_stopped_machine_of_another_ledger_costs_its_disks_and_is_not_ended():
    tags = {TAG_LEDGER: "led-2", TAG_ID: "cg-9", "cloudgpu-name": "heron", "cloudgpu-owner": "ben"}
    theirs = Instance(
        "fake", "lab", "i-9", State.STOPPED, billed=False, tags=tags, region="north", zone="north-a",
        instance_type="x", market=Market.ON_DEMAND,
    )  # fmt: skip
    disk = thing(id="disk-9", tags=tags, attached_to="i-9")
    sure = known(foreign_instances=(theirs,), costs={"disk-9": Cost(Money.usd("5.12"))})
    (one,) = orphans([disk], sure, CleanupOptions(stopped_older_than=timedelta(hours=1)))
    assert (one.name, one.cost.per_month, one.do) == ("heron", Money.usd("5.12"), Cleanup.STAY)
    assert one.stays == "it belongs to another ledger (led-2)"


def test_a_volume_at_a_stopped_machine_is_shown_as_kept_by_name():
    volume = thing(id="v", kind=Kind.VOLUME, tags={TAG_LEDGER: MINE, "cloudgpu-volume": "data"}, attached_to="i-1")
    shown = orphans([volume], known(row(state="stopped", billed=False)))
    assert [(one.what, one.do) for one in shown] == [("stopped_machine", Cleanup.STAY), ("volume", Cleanup.STAY)]
    assert orphans([volume], known(row())) == []


def test_a_disk_that_was_put_in_order_since_the_look_counts_no_more():
    assert orphans([thing()], known(row(**{**ENDED, "retained": ()}))) == []


def test_the_disk_of_an_earlier_life_stays_where_its_machine_is_back():
    (one,) = orphans([thing()], known(row(retained=(retained("disk-1"),))))
    assert (one.do, "otter is back" in one.stays) == (Cleanup.STAY, True)


@pytest.mark.parametrize(("kind", "goes"), [(Kind.GROUP, True), (Kind.SECURITY_GROUP, True), (Kind.SNAPSHOT, False)])
def test_what_a_machine_that_is_proved_gone_left_needs_no_age_unless_it_holds_data(kind, goes):
    fresh = thing(kind=kind, made_at=NOW - timedelta(minutes=2))
    ended = ENDED | {"terminated_at": iso(NOW - timedelta(minutes=1))}
    (one,) = orphans([fresh], known(row(**ended)), CleanupOptions())
    assert (one.do is Cleanup.REMOVE) == goes
    assert goes or "15 minutes" in one.stays
    living = orphans([fresh], known(row()), CleanupOptions())
    assert all(one.do is Cleanup.STAY for one in living)


def test_what_start_brings_back_is_spared_unless_an_age_or_an_image_is_named():
    left, sure = thing(), known(row(**ENDED))
    (spared,) = orphans([left], sure, CleanupOptions(spare=True))
    assert (spared.do, "brings it back" in spared.stays) == (Cleanup.STAY, True)
    (meant,) = orphans([left], sure, CleanupOptions())
    assert meant.do is Cleanup.REMOVE
    (other,) = orphans([thing(tags={TAG_LEDGER: MINE, TAG_ID: "cg-9"})], sure, CleanupOptions(spare=True))
    assert other.do is Cleanup.REMOVE
