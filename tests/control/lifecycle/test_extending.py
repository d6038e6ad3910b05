"""Leases that several people make longer at once: the ledger and the machine's tags say the same."""

from __future__ import annotations

from datetime import timedelta

from cloudgpu.control.inventory.sync import look_at_all
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
    look_at_all(lab.session)
    assert lab.session.ledger.machine(row.id).renew_until == known.renew_until
