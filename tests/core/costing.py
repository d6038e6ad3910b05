"""Rows and ended uses as a ledger has them, made of random uses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from cloudgpu.core.billing.charges import NO_NOTE, note_with_charge
from cloudgpu.core.events import metering
from cloudgpu.core.model.facts import record_of
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage
from cloudgpu.core.values.times import iso
from tests.core.machines import machine

START = datetime(2026, 10, 20, tzinfo=UTC)  # both changes of the clock in Europe and America are near
NOW = START + timedelta(days=40)
Ended = list[tuple[str, Usage]]


def at(seconds: float) -> str:
    return iso(START + timedelta(seconds=seconds))


def segment(nanos: int = 1_000_000_000, seconds: float = 0, **more: Any) -> PriceInterval:
    return PriceInterval(at(seconds), nanos, **({"source": "a test", "as_of": at(0), "basis": "listed"} | more))


def use(begin: float = 0, end: float | None = 3600, **more: Any) -> Usage:
    """Return a run of a machine at 1 USD an hour on demand, from second to second."""
    usual: dict[str, Any] = {"resource": Resource.INSTANCE, "id": "i-1", "what": "small on demand"}
    usual |= {"provider": "local", "market": "on_demand", "kind": "small", "quantity": 1, "per": Per.HOUR}
    usual |= {"begin": at(begin), "end": None if end is None else at(end), "segments": (segment(),)}
    return Usage(**(usual | {"on_demand": 1_000_000_000} | more))


def row(*uses: Usage, id: str = "cg-1", **facts: Any) -> tuple[Machine, Ended]:  # noqa: A002
    """Return a machine with these uses, and those of them that have ended."""
    usual: dict[str, Any] = {"name": f"name of {id}", "provider": "local", "account": "main", "region": "here"}
    usual |= {"owner": "ada", "project": "thesis", "state": "running", "billed": True, "provider_id": "i-1"}
    usual |= {"intended_at": at(0), "first_at": at(0), "open_usage": tuple(one for one in uses if one.end is None)}
    ended, totals, notes = [one for one in uses if one.end is not None], dict[str, list[int]](), dict[str, Any]()
    for one in ended:
        charge = metering.add_to_totals(totals, record_of(one))
        notes[one.resource] = note_with_charge(notes.get(one.resource, NO_NOTE), charge)
    usual |= {"usage_totals": {name: tuple(sums) for name, sums in totals.items()}, "charge_notes": notes}
    return machine(id=id, **usual | facts), [(id, one) for one in ended]


seconds = st.integers(0, 40 * 86_400 - 1)
nanos = st.integers(0, 10**13)


@st.composite
def uses(draw: st.DrawFn) -> Usage:
    """Return any use: any resource, priced or not, open or not, with a price that moved and an end that is not sure."""
    begin, end = sorted((draw(seconds), draw(seconds)))
    resource = draw(st.sampled_from(list(Resource)))
    per = Per.GB if resource is Resource.TRAFFIC else draw(st.sampled_from([Per.HOUR, Per.MONTH]))
    ended = resource is Resource.TRAFFIC or draw(st.booleans())
    moved = draw(st.one_of(st.none(), st.integers(begin, end)))
    segments = [segment(draw(nanos), begin, basis=draw(st.sampled_from(["listed", "derived", "unverified"])))]
    if moved is not None:
        seen = draw(st.one_of(st.none(), st.integers(begin, moved)))
        segments.append(segment(draw(nanos), moved, maybe_from=None if seen is None else at(seen)))
    return use(
        begin,
        end if ended else None,
        resource=resource,
        id=draw(st.sampled_from(["a", "b"])),
        provider=draw(st.sampled_from(["aws", "gcp", "azure", "local", "another"])),
        market=draw(st.sampled_from(["on_demand", "spot"])),
        quantity=draw(st.integers(1, 10**6)),
        per=per,
        segments=draw(st.sampled_from([(), tuple(segments)])),
        on_demand=draw(st.one_of(st.none(), nanos)) if resource is Resource.INSTANCE else None,
        first=draw(st.booleans()),
        reason=draw(st.sampled_from([None, "interrupted"])),
        maybe_until=at(end + draw(st.integers(0, 10**5))) if ended and draw(st.booleans()) else None,
        why_maybe_less=draw(st.sampled_from(["", "it may have changed less"])),
    )


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[list[Machine], Ended]:
    """Return the rows of a few machines and all uses of theirs that have ended."""
    rows, ended = [], []
    for number, many in enumerate(draw(st.lists(st.lists(uses(), max_size=5), max_size=4))):
        facts = {"id": f"cg-{number}", "project": draw(st.sampled_from(["thesis", "course", None]))}
        facts |= {"launch_failed": draw(st.booleans()), "owner": draw(st.sampled_from(["ada", "bob"]))}
        made, gone = row(*many, **facts)
        rows.append(made)
        ended += gone
    return rows, ended
