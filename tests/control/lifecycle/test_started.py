"""The line of a machine that has started says until when looks saw it only start: no such look is a line of its own."""

from __future__ import annotations

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.core.values.times import iso


def seen_of(lab, row):
    return [line.body for line in lab.session.ledger.events(row.id) if line.kind == "instance_observed"]


def test_the_last_look_that_saw_a_machine_only_start_is_in_the_line_that_saw_it_run(make_lab):
    lab = make_lab("boot_s = 600")
    row = lab.up().machine
    for _ in range(2):
        lab.later(minutes=4)
        looked = iso(lab.clock())
        sync_all(lab.session)
    lab.later(minutes=4)
    sync_all(lab.session)
    assert [(one["state"], one.get("pending_at")) for one in seen_of(lab, row)] == [
        ("pending", None),
        ("running", looked),
    ]


def test_the_last_look_that_saw_a_machine_only_start_is_in_the_line_that_saw_its_end(make_lab):
    lab = make_lab("boot_s = 6000\nkeep_s = 9000")
    row = lab.up().machine
    lab.later(minutes=4)
    looked = iso(lab.clock())
    sync_all(lab.session)
    lab.later(minutes=1)
    terminate_one(lab.session, row, why="test")
    assert {one["state"]: one.get("pending_at") for one in seen_of(lab, row)} == {"pending": None, "terminated": looked}
