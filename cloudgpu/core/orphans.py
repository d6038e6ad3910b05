"""What is left over without a running machine: things and stopped machines, as they were asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cloudgpu.core.orphan import Do, Known, Orphan, Wish, comes_back, is_paused, is_startable
from cloudgpu.core.orphans_machines import machines, others
from cloudgpu.core.orphans_things import counted
from cloudgpu.core.resources import Leftover


def orphans(things: Iterable[Leftover], known: Known, wish: Wish = Wish()) -> list[Orphan]:  # noqa: B008  (frozen)
    """Return what is left over, by account and region. Nothing that a running machine uses is among it."""
    there = list(things)
    found = [*counted(there, known), *machines(known), *others(known, there)]
    asked = [_as_wished(one, known, wish) for one in found if not _is_later(one, known, wish)]
    return sorted(asked, key=lambda one: (one.account, one.region, one.what, one.name, one.id))


def _is_later(one: Orphan, known: Known, wish: Wish) -> bool:
    return wish.older_than is not None and one.since is not None and known.now - one.since < wish.older_than


def _as_wished(one: Orphan, known: Known, wish: Wish) -> Orphan:
    """Return it with what cleaning does with it under this wish."""
    if one.do is Do.REMOVE and wish.older_than is not None and one.since is None:
        return replace(one, do=Do.STAY, stays="since when it is left is not known")
    if one.do is Do.REMOVE and wish.spare and is_startable(one):
        return replace(one, do=Do.STAY, stays=f"{one.way} brings it back; --older-than or --snapshot lets it go")
    span = wish.stopped_older_than
    if span is None or one.row is None or one.do is Do.REMOVE or not is_paused(one.row):
        return one
    if one.stays != comes_back(one.row) or one.since is None or known.now - one.since < span:
        return one
    return replace(one, do=Do.END, stays="")
