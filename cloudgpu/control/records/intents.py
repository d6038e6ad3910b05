"""Ledger lines of what is asked and what is taken up: a launch, a stop, an adopted machine, what is kept.

Budgets count a recorded start until a line says that it has not begun.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.core.events.log import Draft
from cloudgpu.core.launch.attempt import price_to_json, setup_to_json
from cloudgpu.core.launch.plan_cost import Extra
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import (
    TAG_ID,
    TAG_SEQ,
    Instance,
    State,
)
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Price
from cloudgpu.core.model.resources import Leftover
from cloudgpu.core.values.naming import lock_name
from cloudgpu.core.values.times import duration_text, from_iso, iso

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
from cloudgpu.core.events.observations import not_begun_line, of_tags

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


def asked(kind: str, machine: str, why: str, now: datetime, *, who: Mapping[str, str], failed: bool = False) -> Draft:
    """Return the line written before a stop, start or end is asked: `kind` is one of these words.

    `who` is `law.by`: who asked, by which right. `failed`: it is ended because it never came up.
    """
    body = {"why": why, "host": platform.node(), **who} | ({"failed": True} if failed else {})
    return Draft(f"{kind}_asked", machine, body, now, f"{kind}:{machine}:{iso(now)}")


def kept_entry(thing: Leftover) -> dict[str, Any]:
    """Return a leftover as a line carries it: `nanos_per_month` is at most what it costs, null where nobody knows."""
    from cloudgpu.control.pricing.attached_costs import rate_of_thing

    rate = rate_of_thing(thing)
    return {
        "id": thing.id,
        "kind": str(thing.kind),
        "region": thing.region,
        "zone": thing.zone,
        "size_gb": thing.size_gb,
        "stored_as": thing.stored_as,
        "made_at": thing.made_at and iso(thing.made_at),
        "ready": thing.ready,
        "nanos_per_month": None if rate.per_month is None else rate.per_month.nanos,
    } | rate.terms()


RESTS = (State.STOPPED, State.DEALLOCATED)
BEGUN_WITHIN = timedelta(hours=1)  # no cloud shows a start that it took this late; the largest machines need minutes


def given_up(session: Session, row: Row, instance: Instance, now: datetime) -> list[Draft]:
    """Return the line that frees what a start holds back in budgets whose process has died before it was answered.

    Sure only where the provider shows the machine at rest an hour after it was asked, and no process is at it: a start
    that the provider took would have shown by then, whatever became of it since.
    """
    if row["asked"] != "start" or instance.billed or instance.state not in RESTS:
        return []
    asked = [line.occurred_at for line in session.ledger.events(row["id"]) if line.kind == "start_asked"]
    since = now - from_iso(max(asked)) if asked else BEGUN_WITHIN
    if since < BEGUN_WITHIN or session.held(lock_name(row["key"] or row["id"])):
        return []
    return [not_begun_line(row, f"the provider shows it {instance.state} {duration_text(since)} later", now)]
