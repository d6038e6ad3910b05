"""Ledger lines of what is asked and what is taken up: a launch, an adopted machine; and the rows that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from cloudgpu.core.events.log import Draft, Event
from cloudgpu.core.events.observations import of_tags
from cloudgpu.core.events.projection import machine_row
from cloudgpu.core.launch.attempt import setup_to_json
from cloudgpu.core.launch.plan_cost import Extra
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import TAG_ID, TAG_SEQ, Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Price, price_to_json
from cloudgpu.core.values.times import iso

Row = dict[str, Any]


def intent(
    attempt: Attempt,
    fingerprint: str,
    stop_means: str,
    now: datetime,
    extras: Sequence[Extra] = (),
    on_demand: Price | None = None,
    licence: str = "",
    *,
    identity: AccountIdentity,
) -> Draft:
    """Return the line that says what is about to be launched, before the call is sent.

    `extras` are what is paid beside the machine: what a stopped one costs is known from this line alone. `on_demand`
    is what the same machine costs on demand, `licence` its system's where that changes how it is billed. `identity` is
    the account to which the machine will belong, whatever it is called here.
    """
    request, item = attempt.request, attempt.offer.available
    body = {
        "attempt": attempt.number,
        "seq": int(attempt.tags[TAG_SEQ]),
        "token": attempt.token,
        "key": request.key,
        "request": fingerprint,
        "name": request.name,
        "provider": item.provider,
        "account": item.account,
        "identity": identity.to_json(),
        "region": item.region,
        "zone": item.zone,
        "instance_type": item.instance_type,
        "market": str(item.market),
        "accelerators": [asdict(gpu) for gpu in item.accelerators],
        "price": price_to_json(attempt.offer.price),
        "on_demand": on_demand and price_to_json(on_demand),
        "max_price": request.want.max_price and request.want.max_price.nanos,
        "owner": request.owner,
        "project": request.project,
        "policy": request.policy,
        "policy_by": request.policy_by,
        "terms": request.terms,
        "template": request.template,
        "expires": iso(attempt.expires),
        "renew_until": iso(attempt.renew_until),
        "renew_s": request.renew_s,
        "stoppable": item.stoppable,
        "parkable": item.parkable,
        "setup": setup_to_json(request.setup),
        "stop_means": stop_means,
        "beside": [beside_entry(extra) for extra in extras],
        "licence": licence,
    }
    return Draft("launch_intended", attempt.machine, body, now, f"intent:{attempt.token}")


def beside_entry(extra: Extra) -> dict[str, Any]:
    """Return what is paid beside a machine as a line carries it."""
    entry: dict[str, Any] = {
        "what": extra.what,
        "nanos_per_month": None if extra.per_month is None else extra.per_month.nanos,
        "at_most": extra.upper_bound,
        "running": extra.running,
        "kept": extra.kept,
        "named": extra.named,
    }
    if extra.rate is None:
        return entry
    rate = extra.rate
    of_it = {"resource": str(rate.resource), "stored_as": rate.stored_as, "quantity": rate.quantity}
    return entry | of_it | rate.terms()


def adopted(
    instance: Instance,
    price: Price | None,
    now: datetime,
    *,
    on_demand: Price | None = None,
    beside: Sequence[Extra] = (),
    able: Mapping[str, Any],
    identity: AccountIdentity,
    unknown: str = "",
) -> Draft:
    """Return the line that takes up a machine of this ledger that has no launch record here.

    `able` is how it can end, and what guards it, by what its provider can do; `unknown` says what of its cost cannot be
    known.
    """
    tags = instance.tags
    body = of_tags(tags) | {
        "provider": instance.provider,
        "account": instance.account,
        "identity": identity.to_json(),
        "region": instance.region,
        "zone": instance.zone,
        "instance_type": instance.instance_type,
        "market": str(instance.market),
        "accelerators": [asdict(gpu) for gpu in instance.accelerators],
        "price": price and price_to_json(price),
        "on_demand": on_demand and price_to_json(on_demand),
        "max_price": None,
        "beside": [beside_entry(each) for each in beside],
        **able,
        "why": f"it bears this ledger's tag and the ledger had no launch of it{unknown}{_unknown_launch(instance)}",
    }
    at = instance.launched_at or now
    return Draft("machine_adopted", tags[TAG_ID], body, at, f"adopted:{tags[TAG_ID]}:{instance.id}")


def _unknown_launch(instance: Instance) -> str:
    return "" if instance.launched_at else "; since when it runs is not known, so it is billed from now on"


def row_of(draft: Draft, before: Row | None = None) -> Row:
    """Return the row that the line of a launch makes; what is kept of the machine's life `before` goes on costing."""
    at = iso(draft.occurred_at)
    line = Event(1, at, draft.clock, at, "", draft.kind, draft.subject, draft.dedupe, "", draft.body)
    row = machine_row([line]) or {}
    return row | {"kept": before["kept"] if before else []}


def row_until(row: Row, renew_until: datetime) -> Row:
    """Return a machine's row as it is once it runs under this renew-until."""
    return row | {"renew_until": iso(renew_until), "state": "running", "billed": True, "asked": "start"}
