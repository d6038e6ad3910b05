"""Looks at contracts, and stops, starts, tags, prices and destroys them. A contract's id is its number at vast.ai.

A contract costs what it was made at, whatever its host asks now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from cloudgpu.core.model.instances import NEVER_RAN, TAG_ID, TAG_RENEW_UNTIL, Address, Instance, Listing, State
from cloudgpu.core.model.offers import Available, Basis, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InstanceNotFound, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.machine.container_start import TAGS
from cloudgpu.providers.vast import market, request
from cloudgpu.providers.vast.client import CLOUD, KIND, Paid, Vast, unreadable
from cloudgpu.providers.vast.gpus import accelerator, type_name
from cloudgpu.providers.vast.request import LABEL

Raw = Mapping[str, Any]
PAGE = 25  # contracts of one answer, at most
MAX_PAGES = 400
LONGEST_LABEL = 1024  # characters, when it is changed (OpenAPI files)
PREFIX = "cloudgpu-"
_ID = re.compile(r"[1-9]\d{0,17}", re.ASCII)
_STARTING = (None, "", "loading", "created", "recycling", "scheduling", "rebooting")


def get(vast: Vast, id: str) -> Instance:  # noqa: A002
    """Return the machine now; raise InstanceNotFound when vast.ai has none. One call."""
    return instance(vast, raw(vast, id))


def raw(vast: Vast, id: str) -> Raw:  # noqa: A002
    """Return what vast.ai says of a contract. Of one that it does not know it says null, with 200."""
    number = number_of(id)
    answer = vast.ask("GET", f"/api/v0/instances/{number}/", "get")
    if "instances" not in answer:
        raise unreadable(f"answered a look at {id} without saying whether it exists")
    found = answer["instances"]
    if found is None:
        raise InstanceNotFound(f"{CLOUD} has no contract {id}.", field="instance", value=id)
    return _checked(found, id)


def listed(vast: Vast) -> Listing:
    """Return every contract with a cloudgpu-id tag: a call per 25 contracts of the account."""
    found = [one for one in pages(vast) if TAG_ID in tags_of(one)]
    return Listing(tuple(instance(vast, _checked(one)) for one in found))


def pages(vast: Vast, filters: Mapping[str, Any] | None = None) -> Iterator[Raw]:
    """Yield the contracts of the account, page by page, until vast.ai says that there is none more.

    They may be somebody else's, which are not held to be whole. Raises ProviderUnavailable for pages without an end.
    """
    query = {"limit": str(PAGE)}
    if filters:
        query["select_filters"] = json.dumps(filters)
    seen: set[str] = set()
    while True:
        answer = vast.ask("GET", "/api/v1/instances/", "list", query=query)
        found = answer.get("instances")
        if not isinstance(found, list):
            raise unreadable("answered a listing without contracts in it")
        yield from (_identified(one) for one in found)
        token = answer.get("next_token")
        if token is None:
            return
        if str(token) in seen or len(seen) >= MAX_PAGES:
            message = f"{CLOUD}'s listing comes to no end."
            raise ProviderUnavailable(message, field="provider", value=KIND, next="Try again in a minute.")
        seen.add(str(token))
        query["after_token"] = str(token)


def made_by(vast: Vast, token: str) -> Raw | None:
    """Return the contract that a launch's token has made; None where no listing shows one.

    By the label first, one call; then by the token in all labels, since a change of tags changes the label.
    """
    found = labelled(vast, token)
    if found is not None:
        return found
    every = (one for one in pages(vast) if str(one.get("label") or "").split(" ")[0] == f"{LABEL}{token}")
    return next(map(_checked, every), None)


def labelled(vast: Vast, token: str) -> Raw | None:
    """Return the contract whose label is that of a launch, as it was given. One call."""
    return next(map(_checked, pages(vast, {"label": {"eq": f"{LABEL}{token}"}})), None)


def terminate(vast: Vast, id: str) -> None:  # noqa: A002
    """Ask to destroy the contract and its disk; an unknown id is no error."""
    number = number_of(id)
    try:
        vast.ask("DELETE", f"/api/v0/instances/{number}/", "destroy", again=True)
    except InstanceNotFound:
        return


def stop(vast: Vast, id: str) -> None:  # noqa: A002
    """Ask to stop: its GPUs are billed no more, its disk is."""
    _change(vast, id, {"state": "stopped"})


def start(vast: Vast, id: str) -> None:  # noqa: A002
    """Ask to start a stopped one, which waits until GPUs of its host are free; one that runs is left alone."""
    if _state(raw(vast, id))[0] is not State.RUNNING:
        _change(vast, id, {"state": "running"})


def tag(vast: Vast, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
    """Set these tags: what differs from those of the launch stands in the label, as JSON after the launch's token."""
    found = raw(vast, id)
    if not tags:
        return
    token, changed = _label(found)
    now = {**changed, **{name.removeprefix(PREFIX): value for name, value in tags.items()}}
    label = f"{token} {json.dumps(now, separators=(',', ':'), sort_keys=True)}"
    if len(label) > LONGEST_LABEL:
        message = f"The tags of {id} need {len(label)} characters, and a label at {CLOUD} has {LONGEST_LABEL}."
        raise InvalidRequest(message, field="tags", value=id, next="Take shorter texts.")
    _change(vast, id, {"label": label})
    _tell_of_the_end(vast, found, tags.get(TAG_RENEW_UNTIL, ""))


def _tell_of_the_end(vast: Vast, raw: Raw, until: str) -> None:
    """Say which end a container has that cannot read its label, where it was just given a later one than its launch's.

    Its lease does not end it then (container.sh), but the renew-until of its launch does.
    """
    first = _object(_given(raw)).get(TAG_RENEW_UNTIL, "")
    if not (first.isdecimal() and until.isdecimal()) or int(until) <= int(first):
        return
    if tags_of(raw).get(TAG_RENEW_UNTIL) == until:  # it was said when that was set
        return
    vast.notify(
        f"The container reads its new end from its label, if vast.ai lets it. If not, it stops itself at "
        f"{datetime.fromtimestamp(int(first), UTC):%Y-%m-%d %H:%M} UTC, the renew-until of its launch. Its disk stays."
    )


def _change(vast: Vast, id: str, body: Mapping[str, str]) -> None:  # noqa: A002
    vast.ask("PUT", f"/api/v0/instances/{number_of(id)}/", "change", body=body, again=True)


def number_of(id: str) -> int:  # noqa: A002
    """Return a contract's number; raise InvalidRequest for what is no id: vast.ai was not asked about anything."""
    if _ID.fullmatch(id):
        return int(id)
    message = f"{id!r} is not an id of a contract at {CLOUD}."
    raise InvalidRequest(message, field="instance", value=id, next="It is a number, like 20000001.")


def instance(vast: Vast, raw: Raw) -> Instance:
    """Return a contract as a machine, and remember what it costs."""
    bought = Market.SPOT if raw.get("is_bid") else Market.ON_DEMAND
    state, billed, reason = _state(raw)
    vast.ends[str(raw["id"])] = market.ends(raw)
    costs = None
    if isinstance(raw.get("dph_base"), int | float):
        vast.paid[str(raw["id"])] = Paid(bought, str(raw["dph_base"]))
        costs = Money.usd(Decimal(str(raw["dph_base"])))
    return Instance(
        provider=KIND,
        account=vast.account,
        id=str(raw["id"]),
        state=state,
        billed=billed,
        tags=tags_of(raw),
        region=market.country_of(raw),
        zone=market.zone_of(raw),
        instance_type=type_name(raw),
        market=bought,
        launched_at=_time(raw.get("start_date")),
        address=_address(raw) if state is State.RUNNING else None,
        accelerators=(accelerator(raw),),
        reason=reason,
        per_hour=costs,
    )


def leaves_at(vast: Vast, id: str) -> datetime | None:  # noqa: A002
    """Return when the host of a contract leaves, by the last look at it. One call where there was none."""
    if id not in vast.ends:
        get(vast, id)
    return vast.ends[id]


def tags_of(raw: Raw) -> dict[str, str]:
    """Return a contract's tags: those of its launch, with what its label has changed since."""
    tags = _object(_given(raw))
    changed = _label(raw)[1] if tags else {}
    return {**tags, **{f"{PREFIX}{name}": value for name, value in changed.items()}}


def _given(raw: Raw) -> str:
    """Return the tags of a contract's launch, as they were given to it."""
    env = raw.get("extra_env") or ()
    pairs = dict(env.items() if isinstance(env, Mapping) else (pair for pair in env if len(pair) == 2))  # noqa: PLR2004
    return str(pairs.get(TAGS) or "")


def _label(raw: Raw) -> tuple[str, dict[str, str]]:
    token, _, rest = str(raw.get("label") or "").partition(" ")
    return token, _object(rest)


def _object(text: str) -> dict[str, str]:
    """Return a JSON object of texts; an empty one for anything else: somebody may have written there by hand."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _state(raw: Raw) -> tuple[State, bool, str | None]:
    """Return the state of a contract, whether its GPUs are billed, and why it stopped by itself.

    By `actual_status` and `intended_status` (OpenAPI files). A contract that is starting counts as billed, which is the
    careful reading; one whose host is offline is not (guide to billing). That an outbid one keeps its wish to run is
    our belief.
    """
    actual, intended = raw.get("actual_status"), raw.get("intended_status")
    stops = intended == "stopped"
    if actual == "created" and "failed" in str(raw.get("status_msg") or ""):
        return State.STOPPED, False, "died"
    if actual == "running":
        return (State.STOPPING if stops else State.RUNNING), True, None
    if stops and (actual == "exited" or actual in _STARTING):
        return State.STOPPED, False, NEVER_RAN if _never_ran(raw) else None
    if actual == "exited":  # outbid, or it waits for a GPU of its host
        return (State.STOPPED, False, "interrupted") if raw.get("is_bid") else (State.PENDING, False, None)
    if actual in _STARTING:
        return State.PENDING, True, None
    return State.UNKNOWN, actual != "offline", None


def _never_ran(raw: Raw) -> bool:
    """Say whether a stopped contract has never run: vast.ai has no container of it, or no time when it began.

    That this is what a refusal leaves, and that a contract that ran shows both, is our belief.
    """
    return raw.get("actual_status") in (None, "") or not raw.get("start_date")


def _address(raw: Raw) -> Address | None:
    """Return where SSH answers directly; vast.ai's own proxy is not used: its host key is not the machine's."""
    bound = (raw.get("ports") or {}).get(f"{request.SSH_PORT}/tcp") or ()
    port = str(bound[0].get("HostPort")) if bound else ""
    host = str(raw.get("public_ipaddr") or "").strip()
    return Address(host, int(port), request.USER) if host and port.isdecimal() else None


def _identified(found: Any) -> Raw:
    """Return what a listing has of a contract; raise ProviderUnavailable where that is none."""
    if isinstance(found, dict) and found.get("id") is not None:
        return found
    raise unreadable("answered a listing with something that is not a contract")


def _checked(found: Any, id: str | None = None) -> Raw:  # noqa: A002
    """Return a contract as it was answered; raise ProviderUnavailable for one that lacks what names it."""
    whole = isinstance(found, dict) and all(found.get(name) is not None for name in ("id", "machine_id", "gpu_name"))
    if whole and id in (None, str(found["id"])):
        return dict(found)
    raise unreadable("answered with a contract that is not whole, or another one than was asked for")


def _time(seconds: object) -> datetime | None:
    return datetime.fromtimestamp(float(seconds), UTC) if isinstance(seconds, int | float) and seconds > 0 else None


def prices(vast: Vast, offers: Sequence[Available]) -> list[Price | None]:
    """Return one price an hour per item, without its storage: of a contract its own, of an offer what is asked.

    One call per contract that was not looked at yet, and one per market for offers that were not seen.
    """
    for item in offers:
        if item.machine is not None and item.machine not in vast.paid:
            _read_contract(vast, item.machine)
    missing = [item for item in offers if _paid(vast, item) is None and _key(item) not in vast.asked]
    for where in dict.fromkeys(item.market for item in missing):
        hosts = sorted({market.machine_of(item.zone) for item in missing if item.market is where})
        market.search(vast, where, {"machine_id": {"in": hosts}})
    return [_price(vast, item) for item in offers]


def _read_contract(vast: Vast, contract: str) -> None:
    """Look at a contract, so that its price is known; one that is gone has none."""
    try:
        get(vast, contract)
    except InstanceNotFound:
        return


def _key(item: Available) -> tuple[str, str, str]:
    return item.zone, item.instance_type, str(item.market)


def _paid(vast: Vast, item: Available) -> str | None:
    """Return what the contract of an item costs; None for an offer, and for another market than the contract's."""
    found = vast.paid.get(item.machine or "")
    return None if found is None or found.market is not item.market else found.per_hour


def _price(vast: Vast, item: Available) -> Price | None:
    paid = _paid(vast, item)
    found = paid or vast.asked.get(_key(item))
    if found is None:
        return None
    whose = "offer" if paid is None else "contract"
    says = "what is bid for it" if item.market is Market.SPOT else "dph_base"
    source = f"vast.ai's own {whose} ({says}), without storage and traffic"
    return Price(Money.usd(found), source, vast.clock(), Basis.ASKED)
