"""Turns what a provider said of a machine into ledger lines, and says what of it is news."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.events.log import OWN, PROVIDER, Draft
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import (
    TAG_EXPIRES,
    TAG_HOLD_UNTIL,
    TAG_ID,
    TAG_KEY,
    TAG_NAME,
    TAG_OWNER,
    TAG_POLICY,
    TAG_PROJECT,
    TAG_RENEW_UNTIL,
    Address,
    Instance,
    State,
)
from cloudgpu.core.model.resources import Leftover
from cloudgpu.core.values.naming import digest
from cloudgpu.core.values.times import from_epoch, from_iso, iso
from cloudgpu.errors import EndRefused

Row = dict[str, Any]
NEWS_OF_ACTIVITY = timedelta(minutes=15)
_NOTHING: Mapping[str, Any] = {}
_SAID = "provider_id state billed since launched_at address reason".split()
_ENDS = {"expires": TAG_EXPIRES, "renew_until": TAG_RENEW_UNTIL, "hold_until": TAG_HOLD_UNTIL}


def settled(machine: str, token: str, outcome: str, why: str, now: datetime) -> Draft:
    """Return the line that ends an attempt: `made`, `refused` by the provider, or `void` (never made)."""
    body = {"token": token, "outcome": outcome, "why": why}
    return Draft("launch_settled", machine, body, now, f"settled:{token}:{outcome}")


def observed(
    instance: Instance, now: datetime, known: Mapping[str, Any] = _NOTHING, *, row: Row | None = None
) -> Draft:
    """Return the line that says how the provider reports this machine now.

    `known` is what else is known: of the time before its end (of the time before its end), of a resize
    (`control.records.changes`). `row` is what is known of it: the line is about that one, though somebody may have
    taken the machine's tags away, and its word of its use stays where an answer has none.
    """
    body = _said(instance)
    if row is not None:
        body["address"] = _address_now(row, instance)
    body |= known
    if row is not None and body["last_active"] is None and row["provider_id"] == instance.id:
        body["last_active"] = row["last_active"]
    subject = instance.tags[TAG_ID] if row is None else row["id"]
    return _seen_line(subject, body, now, PROVIDER if instance.since else OWN)


def told_itself(row: Row, last_active: datetime, now: datetime) -> Draft:
    """Return the line that says when a machine was last in use by its own word; all else is as it was seen last."""
    names = (*_SAID, *_ENDS)
    return _seen_line(row["id"], {name: row[name] for name in names} | {"last_active": iso(last_active)}, now, OWN)


def _seen_line(subject: str, body: dict[str, Any], now: datetime, clock: str) -> Draft:
    return Draft("instance_observed", subject, body, now, f"seen:{digest(subject, iso(now), repr(body))}", clock)


def _said(instance: Instance) -> dict[str, Any]:
    """Return what the provider says of a machine, as a line has it."""
    return {
        "provider_id": instance.id,
        "state": str(instance.state),
        "billed": instance.billed,
        "since": instance.since and iso(instance.since),
        "launched_at": instance.launched_at and iso(instance.launched_at),
        "address": _address(instance.address) if instance.address else None,
        "reason": instance.reason,
        "last_active": instance.last_active and iso(instance.last_active),
        "expires": _tag_time(instance.tags, TAG_EXPIRES),
        "renew_until": _tag_time(instance.tags, TAG_RENEW_UNTIL),
        "hold_until": _tag_time(instance.tags, TAG_HOLD_UNTIL),
    }


def _address(address: Address) -> dict[str, Any]:
    return {"host": address.host, "port": address.port, "user": address.user}  # a tenth of what `asdict` takes


def _address_now(row: Row, instance: Instance) -> dict[str, Any] | None:
    """Return where a machine answers by this word; one that goes on running keeps its address where that says none.

    Azure's listings tell no address: silence about it is no word that the machine has lost it.
    """
    if instance.address is not None:
        return _address(instance.address)
    same = row["provider_id"] == instance.id and row["state"] == State.RUNNING
    kept: dict[str, Any] | None = row["address"] if same and instance.state is State.RUNNING else None
    return kept


def not_before(row: Row, now: datetime) -> datetime:
    """Return `now`, or the machine's last known time where this clock is behind it.

    Lines are folded by their time: what a clock that went back writes would otherwise count as older than the launch.
    """
    known = [from_iso(row[name]) for name in ("intended_at", "seen_at") if row[name]]
    return max([now, *known])


def too_fresh(row: Row, proves_after: timedelta, now: datetime) -> bool:
    """Say whether a machine is so young that its absence from an answer proves nothing."""
    return bool(now - from_iso(row["intended_at"]) < proves_after)


def is_news(row: Row, instance: Instance) -> bool:
    """Say whether the provider's word differs from the row; an unchanged look writes no line per machine.

    Times are compared as times: to write thousands of them as text takes longer than all the rest.
    """
    known = (row["provider_id"], row["state"], row["billed"], row["reason"])
    if known != (instance.id, str(instance.state), instance.billed, instance.reason) or is_resized(row, instance):
        return True
    if row["address"] != _address_now(row, instance):
        return True
    if _time(row["since"]) != instance.since or has_moved_on(_time(row["last_active"]), instance.last_active):
        return True
    return any(_is_another(row[name], instance.tags, key) for name, key in _ENDS.items())


def is_resized(row: Row, instance: Instance) -> bool:
    """Say whether a machine is of another type, or on another market, than is known; one that ends is as it was."""
    ends = instance.state in (State.STOPPING, State.TERMINATED, State.UNKNOWN)
    if ends or not row["instance_type"] or not instance.instance_type:
        return False
    same = row["instance_type"].lower() == instance.instance_type.lower() and row["market"] == instance.market
    return row["provider_id"] == instance.id and not same


def _time(text: str | None) -> datetime | None:
    return from_iso(text) if text is not None else None


def has_moved_on(known: datetime | None, said: datetime | None) -> bool:
    """Say whether a machine was active again since it was last written down: every quarter of an hour is news."""
    if said is None or known is None:
        return said is not None
    return said - known >= NEWS_OF_ACTIVITY


def _is_another(known: str | None, tags: Mapping[str, str], key: str) -> bool:
    """Say whether a tag names another time than is known; one that says nothing does not."""
    text = tags.get(key, "")
    if not text or (known is not None and text.isdecimal() and from_iso(known).timestamp() == int(text)):
        return False
    said = _tag_time(tags, key)
    return said is not None and said != known


def vanished(machine: str, provider_id: str, proof: str, now: datetime, alive: str | None = None) -> Draft:
    """Return the line that says the machine is proved gone, and by what; some time after `alive`, None for just now."""
    body = {"provider_id": provider_id, "proof": proof, "alive_at": alive, "ended_at": None}
    return Draft("instance_vanished", machine, body, now, f"gone:{machine}:{provider_id}:{iso(now)}")


def found_without_record(thing: Leftover, identity: AccountIdentity, now: datetime) -> Draft:
    """Return the line that takes up a machine of which only a disk or an image is there, and no launch record."""
    body = of_tags(thing.tags) | {
        "provider": thing.provider,
        "account": thing.account,
        "identity": identity.to_json(),
        "region": thing.region,
        "zone": thing.zone or None,
        "instance_type": None,
        "market": "on_demand",
        "accelerators": [],
        "price": None,
        "why": "its disk or image bears this ledger's tag and the ledger had no launch of it",
    }
    machine = thing.tags[TAG_ID]
    return Draft("machine_adopted", machine, body, now, f"adopted:{machine}:{thing.id}")


def of_tags(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return what a machine's tags tell of its launch; the rest is not known."""
    return {
        "key": tags.get(TAG_KEY, ""),
        "request": tags.get(TAG_KEY, ""),
        "name": tags.get(TAG_NAME) or tags[TAG_ID],
        "owner": tags.get(TAG_OWNER, ""),
        "project": tags.get(TAG_PROJECT, ""),
        "policy": tags.get(TAG_POLICY, ""),
        "template": None,
        "expires": _tag_time(tags, TAG_EXPIRES),
        "renew_until": _tag_time(tags, TAG_RENEW_UNTIL),
        "stoppable": None,
        "setup": None,
        "stop_means": None,
    }


def end_refused(row: Row, what: str, refusal: EndRefused, now: datetime) -> Draft:
    """Return the line that says that the provider refused what was asked (`end`, `stop`), and what lifts that."""
    body = {"asked": what, "why": refusal.message, "next": refusal.next}
    return Draft("end_refused", row["id"], body, now, f"end_refused:{row['id']}:{what}:{iso(now)}")


def kept_line(row: Row, entries: list[dict[str, Any]], now: datetime, alive: str | None = None) -> Draft:
    """Return the line that says what stays of a machine without it; no entries: nothing does.

    `alive` is when what is missing now was last known to be there, where others have removed it.
    """
    dedupe = f"kept:{row['id']}:{digest(iso(now), repr(entries))}"
    return Draft("kept_observed", row["id"], {"kept": entries} | ({"alive_at": alive} if alive else {}), now, dedupe)


def looked(
    scope: str,
    machines: int,
    unanswered: list[dict[str, str]],
    now: datetime,
    *,
    unseen: Sequence[str] = (),
    things: bool = False,
    pinned: bool = False,
) -> Draft:
    """Return the one line of a look at one account; one that was not wholly answered makes no view fresh.

    `unseen` is what was not in the answer and is not known to be gone: of that the look proves nothing. `things`: disks
    and images were asked for, too; `pinned`: all prices were asked for, and answered.
    """
    body = {"machines": machines, "unanswered": unanswered, "unseen": sorted(unseen)}
    body |= {"things": things, "pinned": pinned}
    subject = f"gap:{scope}" if unanswered else scope
    return Draft("scope_looked", subject, body, now, f"look:{scope}:{iso(now)}")


def _tag_time(tags: Mapping[str, str], key: str) -> str | None:
    """Return a tag's epoch seconds as a ledger time; a tag that is missing, `0` or no time says nothing."""
    text = tags.get(key, "")
    try:
        return iso(from_epoch(text)) if int(text or 0) else None
    except ValueError:
        return None


def not_begun_line(row: Row, why: str, now: datetime) -> Draft:
    """Return the line that says that the start which was asked has surely not begun."""
    return Draft("start_refused", row["id"], {"why": why}, now, f"start_refused:{row['id']}:{iso(now)}")
