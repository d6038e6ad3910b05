"""Thirteen hours of a lab under passes every ten minutes: one machine for each thing that may keep or end it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.control.lifecycle.lease import set_hold
from tests.soak.idleness import MINUTE, TEN, World

HOURS = 13


def lives(world):
    """Launch the machines, and let their people do what they do over the hours."""
    boxes = {
        name: world.launch(name, account, policy=policy, spot=spot)
        for name, account, policy, spot in (
            ("forgotten", "red", "default", False),
            ("spot", "green", "default", True),
            ("typed-at", "blue", "default", False),
            ("deaf", "red", "default", False),
            ("blind", "red", "default", False),
            ("held", "green", "default", False),
            ("full", "green", "default", False),
            ("at-work", "blue", "default", False),
            ("at-work-at-night", "blue", "nightly", False),
            ("short", "blue", "throwaway", False),
            ("hidden", "hid", "default", False),
        )
    }
    boxes["typed-at"].by = "typing"
    boxes["typed-at"].used = [(world.now + n * 50 * MINUTE, world.now + (n * 50 + 2) * MINUTE) for n in range(8)]
    boxes["deaf"].deaf.append((world.now + 5 * MINUTE, None))
    boxes["blind"].blind = boxes["full"].scratch = True
    for name in ("at-work", "at-work-at-night", "short"):
        world.use(boxes[name], HOURS * 60)
    set_hold(world.session, world.rows()[boxes["held"].id], world.now + timedelta(hours=5))
    world.clouds["hid"].hide("us-east")
    world.clouds["hid"].hide(world.rows()[boxes["hidden"].id].region)
    return boxes


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("lab") / "home", accounts=("red", "green", "blue", "hid"))
    boxes, begun, ended = lives(world), world.now, {}
    for number in range(1, HOURS * 6 + 1):
        world.now = max(world.now, begun + number * TEN)  # a pass takes seconds of its own
        world.write_words()
        for one in world.reap().ended:
            ended[one.name] = (str(one.do), str(one.rule), (world.now - begun) // MINUTE)
    for name, box in boxes.items():
        ended.setdefault(name, None if world.runs(box) else ("its cloud", "", 0))
    yield world, boxes, ended
    world.session.ledger.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("forgotten", ("stop", "idle", 70)),
        ("spot", ("park", "idle", 70)),
        ("typed-at", ("stop", "idle", 8 * 50 - 48 + 78)),  # ended two minutes and a pass after its hour
        ("deaf", None),
        ("blind", None),
        ("held", ("stop", "idle", 5 * 60 + 10)),
        ("full", ("stop", "lease", 8 * 60)),
        ("at-work", None),
        ("at-work-at-night", ("stop", "schedule", 8 * 60)),  # 19:00 in Paris is eight hours after 9:00 UTC
        ("short", ("its cloud", "", 0)),  # at its renew-until, before a pass came
        ("hidden", None),
    ],
)
def test_each_machine_ends_by_its_rule_at_its_time_or_runs_on(lab, name, expected):
    assert lab[2][name] == expected


def test_leases_of_those_at_work_and_of_the_unknown_were_renewed(lab):
    world, boxes, _ = lab
    rows = world.rows()
    for name in ("at-work", "deaf", "blind"):
        assert rows[boxes[name].id].expires > rows[boxes["forgotten"].id].expires, name
    assert rows[boxes["deaf"].id].warnings["none"].due is None  # its people were told that nothing is known


def test_who_was_ended_was_warned_before_and_the_reason_stands_in_the_ledger(lab):
    world, boxes, ended = lab
    for name, end in ended.items():
        if end is not None and end[0] != "its cloud":
            lines = list(world.session.ledger.events(boxes[name].id))
            asked = [one for one in lines if one.kind in ("stop_requested", "park_requested")]
            warned = [one for one in lines if one.kind == "warning_sent" and one.body["rule"] == end[1]]
            assert len(asked) == 1, name
            assert asked[0].body["why"], name
            assert warned, name
            assert warned[0].occurred_at < asked[0].occurred_at, name
