"""Leases that several people make longer at once: the ledger and the machine's tags say the same."""

from __future__ import annotations

from datetime import timedelta

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lease import extend, plan_extension
from cloudgpu.core.values.times import from_iso

HOUR = timedelta(hours=1)


def test_of_two_extensions_that_were_planned_at_once_the_longer_one_holds(lab):
    row = lab.up().machine
    long, short = (plan_extension(lab.session, row, hours * HOUR) for hours in (60, 30))
    extend(lab.session, long)
    lab.later(minutes=1)
    known = extend(lab.opened(), short)
    assert (from_iso(known.expires), from_iso(known.renew_until)) == (long.lease.expires, long.lease.renew_until)
    sync_all(lab.session)
    assert lab.session.ledger.machine(row.id).renew_until == known.renew_until


def test_a_lease_that_is_extended_by_a_clock_that_is_behind_counts_all_the_same(lab):
    row = lab.up().machine
    lab.later(minutes=10)
    extend(lab.session, plan_extension(lab.session, row, 10 * HOUR))
    lab.later(minutes=-5)
    for hours in (20, 30):
        plan = plan_extension(lab.session, lab.session.ledger.machine(row.id), hours * HOUR)
        known = extend(lab.session, plan)
        assert (from_iso(known.expires), from_iso(known.renew_until)) == (plan.lease.expires, plan.lease.renew_until)
