"""An attempt as JSON: the exact call, saved before it is sent so that a later process can send it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.launch import Attempt, Boot, LaunchRequest, Network, Part, Setup, Volume
from cloudgpu.core.model.offers import (
    Accelerator,
    Available,
    Market,
    Offer,
    Requirements,
    TrafficPrices,
    Trust,
    price_from_json,
)
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso


def attempt_to_json(attempt: Attempt) -> dict[str, Any]:
    """Return the whole attempt as plain JSON values. It holds the host's private key: write it 0600."""
    plain: dict[str, Any] = _plain(attempt)
    return plain


def attempt_from_json(data: Mapping[str, Any]) -> Attempt:
    """Return the attempt that `attempt_to_json` wrote; raise KeyError, TypeError or ValueError for anything else."""
    offer, request, boot = data["offer"], data["request"], data["boot"]
    return Attempt(
        token=data["token"],
        number=data["number"],
        machine=data["machine"],
        ledger=data["ledger"],
        request=_request(request),
        offer=Offer(_available(offer["available"]), price_from_json(offer["price"])),
        tags=dict(data["tags"]),
        boot=Boot(**{**boot, **_boot(boot)}),
        **{name: from_iso(data[name]) for name in ("made_at", "expires", "renew_until")},
        call=data["call"],
        identity=AccountIdentity(**data["identity"]) if data["identity"] else None,
    )


def _request(data: Mapping[str, Any]) -> LaunchRequest:
    cluster = ClusterNode(*data["cluster"]) if data["cluster"] else None
    of_it = {"want": _want(data["want"]), "setup": setup_from_json(data["setup"]), "cluster": cluster}
    return LaunchRequest(**{**data, **of_it})


def setup_from_json(data: Mapping[str, Any]) -> Setup:
    """Return the setup that `setup_to_json` wrote."""
    network = {**data["network"], "ssh_from": tuple(data["network"]["ssh_from"])}
    return Setup(**{**data, "volume": data["volume"] and Volume(**data["volume"]), "network": Network(**network)})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _want(data: Mapping[str, Any]) -> Requirements:
    limit = data["max_price"]
    words = {"market": Market(data["market"]), "trust": Trust(data["trust"])}
    return Requirements(**{**data, **words, "max_price": limit and Money(limit["nanos"])})


def _available(data: Mapping[str, Any]) -> Available:
    gpus = tuple(Accelerator(**gpu) for gpu in data["accelerators"])
    said = {name: tuple(data[name]) for name in ("after", "gpus_now")}
    words = {"market": Market(data["market"]), "trust": Trust(data["trust"])}
    costs = data["traffic"] and TrafficPrices(
        Money(data["traffic"]["out"]["nanos"]), Money(data["traffic"]["into"]["nanos"])
    )
    return Available(**{**data, **said, **words, "accelerators": gpus, "traffic": costs})


def _boot(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "parts": tuple(Part(**part) for part in data["parts"]),
        "jupyter": tuple(data["jupyter"]),
        "client_public_keys": tuple(data["client_public_keys"]),
    }
