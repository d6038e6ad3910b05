"""Reads, stops, starts, tags, prices and destroys contracts. A contract's id is its number at vast.ai.

A contract keeps the price at which it was created.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import NEVER_RAN, TAG_ID, TAG_RENEW_UNTIL, Address, Instance, Listing, State
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InstanceNotFound, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.machine.container_start import TAGS_VARIABLE
from cloudgpu.providers.vast import market, request
from cloudgpu.providers.vast.client import CLOUD, PROVIDER, ContractPrice, Vast, unreadable_error
from cloudgpu.providers.vast.gpus import accelerator, type_name
from cloudgpu.providers.vast.request import LABEL_PREFIX

Raw = Mapping[str, Any]
CONTRACTS_PER_PAGE = 25  # contracts per answer
MAX_PAGES = 400
MAX_LABEL_CHARS = 1024  # characters, for a change (OpenAPI files)
TAG_PREFIX = "cloudgpu-"
_ID = re.compile(r"[1-9]\d{0,17}", re.ASCII)
_OWN_LABEL = re.compile(rf"{LABEL_PREFIX}[0-9a-f]{{48}}")  # with the token of a launch: others may use cg-, too
_STARTING_STATUSES = (None, "", "loading", "created", "recycling", "scheduling", "rebooting")


def get(vast: Vast, id: str) -> Instance:  # noqa: A002
    """Return the machine now; raise InstanceNotFound when vast.ai has none. One call."""
    return instance(vast, read_contract(vast, id))


def read_contract(vast: Vast, id: str) -> Raw:  # noqa: A002
    """Return a contract in vast.ai's format. For an unknown contract vast.ai answers null, with 200."""
    number = number_of(id)
    answer = vast.call("GET", f"/api/v0/instances/{number}/", "get")
    if "instances" not in answer:
        raise unreadable_error(f"answered a call for {id} without saying whether it exists")
    contract = answer["instances"]
    if contract is None:
        raise InstanceNotFound(f"{CLOUD} has no contract {id}.", field="instance", value=id)
    return _complete(contract, id)


def list_machines(vast: Vast) -> Listing:
    """Return every contract with a cloudgpu-id tag: a call per 25 contracts of the account.

    A contract with a label of ours but without tags is in `unanswered`: it may be a machine of ours. So is one of ours
    that cannot be read.
    """
    instances, unanswered = [], []
    for contract in all_contracts(vast):
        label = _parse_label(contract)[0]
        if TAG_ID in tags_of(contract):
            try:
                instances.append(instance(vast, _complete(contract)))
            except ProviderUnavailable as error:
                unanswered.append(Unanswered(str(contract["id"]), error.message))
        elif _OWN_LABEL.fullmatch(label):
            why = f"{CLOUD} does not show the variable {TAGS_VARIABLE} of the contract {label}"
            unanswered.append(Unanswered(str(contract["id"]), why))
    return Listing(tuple(instances), tuple(unanswered))


def all_contracts(vast: Vast, filters: Mapping[str, Any] | None = None) -> Iterator[Raw]:
    """Yield all contracts of the account, page by page.

    Contracts of others may be incomplete. Raises ProviderUnavailable for endless pages.
    """
    query = {"limit": str(CONTRACTS_PER_PAGE)}
    if filters:
        query["select_filters"] = json.dumps(filters)
    seen_tokens: set[str] = set()
    while True:
        answer = vast.call("GET", "/api/v1/instances/", "list", query=query)
        contracts = answer.get("instances")
        if not isinstance(contracts, list):
            raise unreadable_error("answered a listing without contracts in it")
        yield from (_with_id(contract) for contract in contracts)
        token = answer.get("next_token")
        if token is None:
            return
        if str(token) in seen_tokens or len(seen_tokens) >= MAX_PAGES:
            raise ProviderUnavailable(
                f"{CLOUD}'s listing does not end.", field="provider", value=PROVIDER, next="Try again in a minute."
            )
        seen_tokens.add(str(token))
        query["after_token"] = str(token)


def find_by_token(vast: Vast, token: str) -> Raw | None:
    """Return the contract of a launch's token; None if no listing shows one.

    By the exact label first, in one call; then by the token in all labels, since tags change the label.
    """
    return find_by_label(vast, token) or _with_token(all_contracts(vast), token)


def find_by_label(vast: Vast, token: str) -> Raw | None:
    """Return the contract with the original label of a launch. One call.

    The answer is checked: whoever took another contract for the launch's could destroy it.
    """
    return _with_token(all_contracts(vast, {"label": {"eq": f"{LABEL_PREFIX}{token}"}}), token)


def _with_token(contracts: Iterable[Raw], token: str) -> Raw | None:
    """Return the first of these contracts whose label begins with a launch's token; None for none."""
    own = (contract for contract in contracts if _parse_label(contract)[0] == f"{LABEL_PREFIX}{token}")
    return next(map(_complete, own), None)


def terminate(vast: Vast, id: str) -> None:  # noqa: A002
    """Request the end of the contract and its disk; an unknown id is no error."""
    with suppress(InstanceNotFound):
        vast.call("DELETE", f"/api/v0/instances/{number_of(id)}/", "destroy", idempotent=True)


def stop(vast: Vast, id: str) -> None:  # noqa: A002
    """Stop a contract: its GPUs are not billed any more, its disk is."""
    _change(vast, id, {"state": "stopped"})


def start(vast: Vast, id: str) -> None:  # noqa: A002
    """Start a stopped contract, which waits until GPUs of its host are free; no call if it runs."""
    if _state(read_contract(vast, id))[0] is not State.RUNNING:
        _change(vast, id, {"state": "running"})


def tag(vast: Vast, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
    """Set tags. Changes since the launch are in the label, as JSON after the launch's token."""
    contract = read_contract(vast, id)
    if not tags:
        return
    token, changed_tags = _parse_label(contract)
    all_changes = {**changed_tags, **{name.removeprefix(TAG_PREFIX): value for name, value in tags.items()}}
    label = f"{token} {json.dumps(all_changes, separators=(',', ':'), sort_keys=True)}"
    if len(label) > MAX_LABEL_CHARS:
        message = f"The tags of {id} need {len(label)} characters, and a label at {CLOUD} has {MAX_LABEL_CHARS}."
        raise InvalidRequest(message, field="tags", value=id, next="Take shorter texts.")
    _change(vast, id, {"label": label})
    _notify_end(vast, contract, tags.get(TAG_RENEW_UNTIL, ""))


def _notify_end(vast: Vast, contract: Raw, new_end: str) -> None:
    """Notify that the renew-until of the launch ends a container that cannot read its label, if it is extended now."""
    launch_end = _json_object(_launch_tags(contract)).get(TAG_RENEW_UNTIL, "")
    if not (launch_end.isdecimal() and new_end.isdecimal()) or int(new_end) <= int(launch_end):
        return
    if tags_of(contract).get(TAG_RENEW_UNTIL) == new_end:  # already notified
        return
    vast.notify(
        f"The container reads its new end from its label, if vast.ai lets it. If not, it stops itself at "
        f"{datetime.fromtimestamp(int(launch_end), UTC):%Y-%m-%d %H:%M} UTC, the renew-until of its launch. "
        f"Its disk stays."
    )


def _change(vast: Vast, id: str, body: Mapping[str, str]) -> None:  # noqa: A002
    vast.call("PUT", f"/api/v0/instances/{number_of(id)}/", "change", body=body, idempotent=True)


def number_of(id: str) -> int:  # noqa: A002
    """Return a contract's number; raise InvalidRequest for an invalid id."""
    if _ID.fullmatch(id):
        return int(id)
    message = f"{id!r} is not an id of a contract at {CLOUD}."
    raise InvalidRequest(message, field="instance", value=id, next="It is a number, like 20000001.")


def instance(vast: Vast, contract: Raw) -> Instance:
    """Return a contract as a machine, and cache its price. Raises ProviderUnavailable for a field of a wrong type."""
    try:
        return _instance(vast, contract)
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:
        raise unreadable_error(f"answered with a contract {contract['id']} that cannot be read") from error


def _instance(vast: Vast, contract: Raw) -> Instance:
    contract_market = Market.SPOT if contract.get("is_bid") else Market.ON_DEMAND
    state, billed, reason = _state(contract)
    vast.host_leaves_at[str(contract["id"])] = market.host_end(contract)
    price = None
    if isinstance(contract.get("dph_base"), int | float):
        vast.contract_prices[str(contract["id"])] = ContractPrice(contract_market, str(contract["dph_base"]))
        price = Money.usd(Decimal(str(contract["dph_base"])))
    return Instance(
        provider=PROVIDER,
        account=vast.account,
        id=str(contract["id"]),
        state=state,
        billed=billed,
        tags=tags_of(contract),
        region=market.country_of(contract),
        zone=market.zone_of(contract),
        instance_type=type_name(contract),
        market=contract_market,
        launched_at=market.utc_time(contract.get("start_date")),
        address=_address(contract) if state is State.RUNNING else None,
        accelerators=(accelerator(contract),),
        reason=reason,
        per_hour=price,
    )


def leaves_at(vast: Vast, id: str) -> datetime | None:  # noqa: A002
    """Return when the host of a contract leaves vast.ai, by the last call; one call if there was none."""
    if id not in vast.host_leaves_at:
        get(vast, id)
    return vast.host_leaves_at[id]


def tags_of(contract: Raw) -> dict[str, str]:
    """Return a contract's tags: those of its launch, with the changes in its label."""
    tags = _json_object(_launch_tags(contract))
    changed_tags = _parse_label(contract)[1] if tags else {}
    return {**tags, **{f"{TAG_PREFIX}{name}": value for name, value in changed_tags.items()}}


def _launch_tags(contract: Raw) -> str:
    """Return the tags of a contract's launch, as JSON text from its environment."""
    env = contract.get("extra_env")
    pairs = map(list, env.items()) if isinstance(env, Mapping) else env if isinstance(env, list) else ()
    name_and_value = (pair for pair in pairs if isinstance(pair, list) and len(pair) == 2)  # noqa: PLR2004
    return next((str(value or "") for name, value in name_and_value if name == TAGS_VARIABLE), "")


def _parse_label(contract: Raw) -> tuple[str, dict[str, str]]:
    """Return the first word of a contract's label, by which its launch is found, and the tags changed since then."""
    token, _, changes_json = str(contract.get("label") or "").partition(" ")
    return token, _json_object(changes_json)


def _json_object(text: str) -> dict[str, str]:
    """Return a JSON object of texts; empty for anything else, because users can edit labels."""
    try:
        parsed = json.loads(text or "{}")
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in parsed.items()} if isinstance(parsed, dict) else {}


def _state(contract: Raw) -> tuple[State, bool, str | None]:
    """Return the state of a contract, whether its GPUs are billed, and why it stopped by itself.

    By `actual_status` and `intended_status` (OpenAPI files). A starting contract counts as billed, to be safe; one
    whose host is offline does not (guide to billing). That the intended status of an outbid contract stays `running` is
    unverified.
    """
    actual, intended = contract.get("actual_status"), contract.get("intended_status")
    is_stopping = intended == "stopped"
    if actual == "created" and "failed" in str(contract.get("status_msg") or ""):
        return State.STOPPED, False, "died"
    if actual == "running":
        return (State.STOPPING if is_stopping else State.RUNNING), True, None
    if is_stopping and (actual == "exited" or actual in _STARTING_STATUSES):
        return State.STOPPED, False, NEVER_RAN if _never_ran(contract) else None
    if actual == "exited":  # outbid, or it waits for a GPU of its host
        return (State.STOPPED, False, "interrupted") if contract.get("is_bid") else (State.PENDING, False, None)
    if actual in _STARTING_STATUSES:
        return State.PENDING, True, None
    return State.UNKNOWN, actual != "offline", None


def _never_ran(contract: Raw) -> bool:
    """Tell whether a stopped contract has never run: it has no container, or no start time.

    That a refusal leaves such a contract, and that one that ran has both, is unverified.
    """
    return contract.get("actual_status") in (None, "") or not contract.get("start_date")


def _address(contract: Raw) -> Address | None:
    """Return the direct SSH address, not vast.ai's proxy, which has another host key."""
    bindings = (contract.get("ports") or {}).get(f"{request.SSH_PORT}/tcp") or ()
    port = str(bindings[0].get("HostPort")) if bindings else ""
    host = str(contract.get("public_ipaddr") or "").strip()
    return Address(host, int(port), request.USER) if host and port.isdecimal() else None


def _with_id(entry: Any) -> Raw:
    """Return an entry of a listing that has an id; raise ProviderUnavailable for anything else."""
    if isinstance(entry, dict) and entry.get("id") is not None:
        return entry
    raise unreadable_error("answered a listing with something that is not a contract")


def _complete(contract: Any, id: str | None = None) -> Raw:  # noqa: A002
    """Return a contract with all required fields; raise ProviderUnavailable for an incomplete or another one."""
    is_complete = isinstance(contract, dict) and all(
        contract.get(name) is not None for name in ("id", "machine_id", "gpu_name")
    )
    if is_complete and id in (None, str(contract["id"])):
        return dict(contract)
    raise unreadable_error("answered with an incomplete contract, or another one than requested")


def prices(vast: Vast, offers: Sequence[MachineConfiguration]) -> list[Price | None]:
    """Return one hourly price per offer, without storage: a contract's own, or that of a listed offer.

    One call per contract without a cached price, and one per market for offers without one.
    """
    for offer in offers:
        if offer.machine is not None and offer.machine not in vast.contract_prices:
            with suppress(InstanceNotFound):
                get(vast, offer.machine)  # caches its price
    unpriced = [
        offer for offer in offers if _contract_price(vast, offer) is None and _price_key(offer) not in vast.offer_prices
    ]
    for offer_market in dict.fromkeys(offer.market for offer in unpriced):
        machine_ids = sorted({market.machine_number(offer.zone) for offer in unpriced if offer.market is offer_market})
        market.search(vast, offer_market, {"machine_id": {"in": machine_ids}})
    return [_price(vast, offer) for offer in offers]


def _price_key(offer: MachineConfiguration) -> tuple[str, str, str]:
    return offer.zone, offer.instance_type, str(offer.market)


def _contract_price(vast: Vast, offer: MachineConfiguration) -> str | None:
    """Return the price of the contract `offer.machine`; None without one, and if the contract is of another market."""
    contract_price = vast.contract_prices.get(offer.machine or "")
    return None if contract_price is None or contract_price.market is not offer.market else contract_price.per_hour


def _price(vast: Vast, offer: MachineConfiguration) -> Price | None:
    contract_price = _contract_price(vast, offer)
    usd_per_hour = contract_price or vast.offer_prices.get(_price_key(offer))
    if usd_per_hour is None:
        return None
    source_kind = "offer" if contract_price is None else "contract"
    price_kind = "what is bid for it" if offer.market is Market.SPOT else "dph_base"
    source = f"vast.ai's own {source_kind} ({price_kind}), without storage and traffic"
    return Price(Money.usd(usd_per_hour), source, vast.clock(), Basis.QUOTED)
