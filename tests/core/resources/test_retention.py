"""What is to be done with what stays of a machine, over all that may be there: pure."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.core.resources import retention as keeping
from cloudgpu.core.resources.retention import StepKind
from cloudgpu.core.values.times import iso
from tests.core.machines import machine

NOW = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)


def thing(kind, life=1, *, ready=True, attached_to=None, number=0, made_at=NOW - timedelta(days=1), **tags):
    tags = {"cloudgpu-id": "cg-1", "cloudgpu-ledger": "led", "cloudgpu-seq": str(life), **tags}
    name = f"{kind}-{life}-{number}"
    return ProviderResource("fake", "lab", "north", "", name, kind, "", 64, "gp3", tags, made_at, ready, attached_to)


def row(**more):
    usual = {"id": "cg-1", "terminated_at": iso(NOW), "parked": True, "provider_id": "i-2"}
    usual |= {"state": "terminated", "since": iso(NOW), "seen_at": iso(NOW), "seq": 1}
    return machine(**usual | {"intended_at": iso(NOW - timedelta(hours=1))} | more)


def said(found, **more):
    return [(step.do, step.resource.id) for step in keeping.retention_steps(row(**more), found, NOW)]


def test_a_parked_machine_comes_to_one_image_and_nothing_else():
    disk, snapshot = thing(Kind.DISK), thing(Kind.SNAPSHOT, ready=False)
    making, image = thing(Kind.IMAGE, ready=False), thing(Kind.IMAGE)
    assert said([disk]) == [(StepKind.SAVE, disk.id)]
    assert said([disk, snapshot]) == [(StepKind.SAVE, disk.id)]
    assert said([snapshot]) == [(StepKind.SAVE, snapshot.id)]
    assert said([disk, making]) == [(StepKind.SAVE, disk.id)]
    assert said([disk, image]) == [(StepKind.REMOVE, disk.id)]
    assert said([image]) == []
    assert said([]) == []


def test_what_is_of_a_later_life_counts_and_the_earlier_goes_only_when_its_image_is_ready():
    old, disk, image = thing(Kind.IMAGE, 1), thing(Kind.DISK, 2), thing(Kind.IMAGE, 2)
    assert said([old, disk]) == [(StepKind.SAVE, disk.id)]
    assert said([old, disk, image]) == [(StepKind.REMOVE, disk.id), (StepKind.REMOVE, old.id)]


def test_a_disk_that_is_still_attached_is_waited_for_and_another_machines_is_left_alone():
    assert said([thing(Kind.DISK, attached_to="i-2")]) == []
    assert said([thing(Kind.DISK, attached_to="i-other")], discard=True, parked=False) == []
    assert keeping.retained_of(row(), [thing(Kind.DISK, attached_to="i-other")]) == []


def test_what_is_discarded_goes_and_what_was_only_left_stays():
    found = [thing(Kind.DISK), thing(Kind.IMAGE)]
    assert {step for step, _ in said(found, parked=False, discard=True)} == {StepKind.REMOVE}
    assert said(found, parked=False) == []


def test_a_running_machine_gives_up_its_image_only_after_a_while():
    image, disk = thing(Kind.IMAGE), thing(Kind.DISK, 2, attached_to="i-2")
    alive = {"terminated_at": None, "parked": False, "state": "running"}
    assert said([image, disk], **alive) == []
    assert said([image, disk], **alive, since=iso(NOW - keeping.DELETE_IMAGE_AFTER)) == [(StepKind.REMOVE, image.id)]
    assert said([image, disk], **alive | {"launch_status": "open"}, since=iso(NOW - keeping.DELETE_IMAGE_AFTER)) == []
    fresh = thing(Kind.DISK, 2, made_at=NOW)  # made with the machine, and not attached yet
    assert said([fresh], **alive, since=iso(NOW - keeping.DELETE_IMAGE_AFTER)) == []


def test_a_free_disk_of_this_life_is_not_taken_for_an_older_one_whatever_its_time_says():
    alive = {
        "terminated_at": None,
        "parked": False,
        "state": "running",
        "since": iso(NOW - keeping.DELETE_IMAGE_AFTER),
        "seq": 2,
    }
    before_the_intent = NOW - timedelta(hours=1, seconds=1)  # clouds cut off parts of a second
    assert said([thing(Kind.DISK, 2, made_at=before_the_intent)], **alive) == []
    old = thing(Kind.DISK, 1, made_at=before_the_intent)
    assert said([old], **alive) == [(StepKind.REMOVE, old.id)]


def test_what_is_kept_on_purpose_or_of_another_ledger_is_no_machines():
    things = [
        thing(Kind.VOLUME, **{"cloudgpu-volume": "data"}),
        thing(Kind.IMAGE, **{"cloudgpu-image": "mine"}),
        thing(Kind.DISK, **{"cloudgpu-ledger": "other"}),
        thing(Kind.DISK, **{"cloudgpu-id": "cg-2"}),
    ]
    assert keeping.resources_of_machine(things, "cg-1", "led") == []


@given(
    st.lists(
        st.builds(
            thing,
            st.sampled_from([Kind.DISK, Kind.SNAPSHOT, Kind.IMAGE]),
            st.integers(1, 3),
            ready=st.booleans(),
            number=st.integers(0, 2),
        ),
        max_size=6,
        unique_by=lambda one: one.id,
    )
)
def test_the_newest_data_is_never_removed_before_its_image_is_ready(found):
    for _ in itertools.repeat(None, 12):
        todo = keeping.retention_steps(row(), found, NOW)
        if not todo:
            break
        newest = max(one.tags["cloudgpu-seq"] for one in found)
        safe = any(one.kind is Kind.IMAGE and one.ready for one in found if one.tags["cloudgpu-seq"] == newest)
        for step in todo:
            if step.do is StepKind.REMOVE:
                assert safe
                found = [one for one in found if one is not step.resource]
            else:
                made = thing(Kind.IMAGE, int(newest), number=9)
                replaced = (Kind.IMAGE, Kind.SNAPSHOT)
                found = [one for one in found if one is not step.resource or one.kind not in replaced] + [made]
    assert [one.kind for one in found] in ([], [Kind.IMAGE])
    assert not found or found[0].ready
