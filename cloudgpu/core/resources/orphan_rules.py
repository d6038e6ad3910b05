"""Which things count as left over, why, since when, and what speaks against their removal now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.core.model.identity import is_hidden
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, State
from cloudgpu.core.model.machine import Machine, fact
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.core.resources.orphan import (
    Cost,
    Do,
    Known,
    Orphan,
    comes_back,
    is_held,
    is_paused,
    lives,
    origin_of,
    work_on,
)
from cloudgpu.core.resources.retention import is_on_purpose
from cloudgpu.core.values.times import from_iso, minute

YOUNG = timedelta(minutes=15)  # longer than a cloud takes to show everywhere what was just made, or let go
SHARED = (Kind.KEY_PAIR, Kind.SECURITY_GROUP)  # one for all launches of a ledger in a region, which make it anew
_DISKS = (Kind.DISK, Kind.SNAPSHOT, Kind.IMAGE)
_GOES_WITH_ITS_MACHINE = {
    Kind.SPOT_REQUEST: "its machine is gone, and it can launch another",
    Kind.TIMER: "its machine is gone",
    Kind.GROUP: "its machine is gone",
    Kind.ROLE: "its machine is gone",
}


@dataclass(frozen=True, slots=True)
class _Found:
    """Why something counts as left over; `kept` why it is there on purpose, `way` what ends it then."""

    why: str
    kept: str = ""
    way: str = ""


def counted(things: Iterable[ProviderResource], known: Known) -> Iterator[Orphan]:
    """Yield those of these things that count as left over; nothing that a running machine uses is among them."""
    rows = {row.id: row for row in known.rows}
    for thing in things:
        row = rows.get(thing.tags.get(TAG_ID, "")) if is_ours(thing, known) else None
        found = _counts(thing, row, known)
        if found is not None:
            yield _orphan(thing, row, found, known)


def is_ours(thing: ProviderResource, known: Known) -> bool:
    """Say whether a thing belongs to this ledger."""
    return bool(known.ledger) and thing.tags.get(TAG_LEDGER) == known.ledger  # one without lines has no id yet


def is_shared(thing: ProviderResource) -> bool:
    """Say whether all launches of a ledger in a region share a thing: what bears a machine's id is that one's alone."""
    return thing.kind in SHARED and TAG_ID not in thing.tags


def _counts(thing: ProviderResource, row: Machine | None, known: Known) -> _Found | None:
    """Return why a thing counts as left over; None where it does not."""
    if thing.attached_to is not None:
        return _of_a_stopped_machine(thing, known)
    if is_on_purpose(thing) and thing.kind in (*_DISKS, Kind.VOLUME):
        word = "volume" if thing.kind is Kind.VOLUME else "image"
        return _Found("it is kept by name", "on purpose", f"cloudgpu {word} rm {thing.name}")
    if is_shared(thing):
        return None if _is_needed(thing, known) else _Found(f"no machine of its ledger is left in {thing.region}")
    if thing.kind in _GOES_WITH_ITS_MACHINE:
        return None if lives(row) else _Found(_GOES_WITH_ITS_MACHINE[thing.kind])
    return _unused(thing, row)


def _unused(thing: ProviderResource, row: Machine | None) -> _Found | None:
    """Return why something counts that no machine uses."""
    if row is None:
        return _Found("no machine uses it")
    if thing.kind in _DISKS:
        return _of_machine(thing, row)
    if not lives(row):
        return _Found("its machine is gone")
    return _Found("no machine uses it", f"{row.name} is there", f"cloudgpu down {row.name}")


def _of_a_stopped_machine(thing: ProviderResource, known: Known) -> _Found | None:
    """Return a volume that is kept by name and hangs on a stopped machine: `down` leaves it. Nothing else."""
    paused = (row for row in known.rows if row.provider_id == thing.attached_to and is_paused(row))
    row = next(paused, None)
    if row is None or thing.kind is not Kind.VOLUME or not is_ours(thing, known):
        return None
    return _Found(f"it is kept by name, at {row.name}, which is stopped", "on purpose")


def _of_machine(thing: ProviderResource, row: Machine) -> _Found | None:
    """Return why a disk or image of our machine counts; None where it is the machine's, or gone since the look."""
    name = row.name
    if thing.id not in {entry.id for entry in row.retained}:
        return None
    if lives(row):
        return _Found(f"it is of an earlier life of {name}", f"{name} is back, and cloudgpu ls --refresh removes it")
    if row.parked:
        way = f"cloudgpu start {name}, or cloudgpu down {name}"
        return _Found(f"{name} is stopped, and was parked", comes_back(row), way)
    why = f"{name} was ended, and it was not removed" if row.discard else f"{name} has ended by itself"
    return _Found(why, "", f"cloudgpu down {name}" if row.discard else f"cloudgpu start {name}")


def _is_needed(thing: ProviderResource, known: Known) -> bool:
    """Say whether its ledger has a machine, or may have one soon, where this is shared by all of them."""
    here = (thing.account, thing.region)
    if is_ours(thing, known):
        return any(lives(row) and (row.account, row.region) == here for row in known.rows)
    ledger, over = thing.tags.get(TAG_LEDGER), State.TERMINATED
    others = (one for one in known.foreign if one.tags.get(TAG_LEDGER) == ledger and one.state is not over)
    return any((one.account, one.region) == here for one in others)


def _orphan(thing: ProviderResource, row: Machine | None, found: _Found, known: Known) -> Orphan:
    since = _since(thing, row, known)
    kept = _not_now(thing, row, found, since, known)
    return Orphan(
        what=str(thing.kind),
        id=thing.id,
        name=thing.name,
        provider=thing.provider,
        account=thing.account,
        region=thing.region,
        zone=thing.zone,
        size_gb=thing.size_gb,
        cost=known.costs.get(thing.id, Cost(None)),
        origin=origin_of(thing.tags, row, known),
        since=since,
        why=found.why,
        do=Do.STAY if kept else Do.REMOVE,
        stays=kept,
        way=found.way if is_ours(thing, known) else "",
        thing=thing,
        row=row,
    )


def _since(thing: ProviderResource, row: Machine | None, known: Known) -> datetime | None:
    """Return since when a thing is left: its machine's end, or, where that is not known, when it was made."""
    ends = [row.terminated_at] if row is not None else []
    if is_shared(thing) and is_ours(thing, known):
        here = (thing.account, thing.region)
        ends = [one.terminated_at for one in known.rows if (one.account, one.region) == here]
    ended = max((from_iso(end) for end in ends if end), default=None)
    moments = [at for at in (ended, thing.made_at) if at is not None and not is_on_purpose(thing)]
    return max(moments, default=thing.made_at)


def _is_settled(thing: ProviderResource, row: Machine | None) -> bool:
    """Say whether nobody can need this any more: it is one machine's, which is proved gone, or never was."""
    return row is not None and row.terminated_at is not None and thing.kind not in (*_DISKS, Kind.VOLUME)


def _not_now(thing: ProviderResource, row: Machine | None, found: _Found, since: datetime | None, known: Known) -> str:
    """Return why cleaning leaves a thing; empty where nothing speaks against its removal."""
    return next(filter(None, _reasons(thing, row, found, since, known)), "")


def _reasons(
    thing: ProviderResource, row: Machine | None, found: _Found, since: datetime | None, known: Known
) -> Iterator[str | None]:
    """Yield what speaks against its removal, the gravest first; what does not, as nothing."""
    if not is_ours(thing, known):
        yield f"it belongs to another ledger ({thing.tags.get(TAG_LEDGER) or 'not said'})"
    yield (is_on_purpose(thing) and found.kept) or None
    # what bears no machine's id may be what any launch makes just now
    yield work_on([row] if row is not None else [one for one in known.rows if one.account == thing.account], known)
    if is_hidden(known.silent, thing.account, thing.region):
        yield f"{thing.region} did not answer in whole"
    if row is not None and is_held(row, known.now):
        yield f"{row.name} is held until {minute(fact(row.hold_until))}"
    yield found.kept
    if not thing.ready:
        yield "it is still being made"
    if not _is_settled(thing, row) and any(at is not None and known.now - at < YOUNG for at in (since, thing.made_at)):
        yield f"it is younger than {YOUNG // timedelta(minutes=1)} minutes"
