"""What is for rent in our model of vast.ai: machines of hosts, and the asks for their GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.clouds.rest import Refusal

OPERATORS = {
    "eq": lambda have, wanted: have == wanted,
    "neq": lambda have, wanted: have != wanted,
    "gt": lambda have, wanted: have > wanted,
    "lt": lambda have, wanted: have < wanted,
    "gte": lambda have, wanted: have >= wanted,
    "lte": lambda have, wanted: have <= wanted,
    "in": lambda have, wanted: have in wanted,
    "notin": lambda have, wanted: have not in wanted,
}
BESIDE = {"order", "type", "limit", "allocated_storage"}  # in a search, what is no filter
USUAL_LIMIT = 64  # [B]: the real one is not documented
MONTH_H = 730  # [B]: a month's length is not documented


@dataclass
class Host:
    """A machine that somebody rents out: of GPUs of one kind, `slices` says in which numbers together."""

    machine_id: int
    gpu_name: str
    gpus: int
    gpu_ram: int  # MB, a little under the label
    dph_base: float  # USD an hour for one GPU
    geolocation: str = "Kansas, US"
    verification: str = "verified"
    datacenter: bool = True
    reliability2: float = 0.995
    direct_port_count: int = 100
    cuda_max_good: float = 12.8
    storage_cost: float = 0.2  # USD a GB and month
    inet_up_cost: float = 0.004  # USD a GB
    inet_down_cost: float = 0.002
    min_bid: float = 0.1
    end_in_s: float = 90 * 86400.0
    taken: int = 0  # GPUs that are rented

    def asks(self, begun: float) -> Iterator[dict[str, Any]]:
        """Yield what it offers now: one GPU, two ... all of them, as far as they are free. `begun`: the epoch."""
        for count in (1, 2, 4, 8):
            if count > self.gpus - self.taken:
                return
            yield {
                "id": self.machine_id * 100 + count * 10 + self.taken,  # another one once some of it is rented [B]
                "ask_contract_id": self.machine_id * 100 + count * 10 + self.taken,
                "machine_id": self.machine_id,
                "host_id": self.machine_id + 7000,
                "gpu_name": self.gpu_name,
                "num_gpus": count,
                "gpu_ram": self.gpu_ram,
                "dph_base": round(self.dph_base * count, 6),
                "min_bid": round(self.min_bid * count, 6),
                "storage_cost": self.storage_cost,
                "inet_up_cost": self.inet_up_cost,
                "inet_down_cost": self.inet_down_cost,
                "geolocation": self.geolocation,
                "verification": self.verification,
                "hosting_type": 1 if self.datacenter else 0,
                "datacenter": self.datacenter,
                "reliability2": self.reliability2,
                "direct_port_count": self.direct_port_count,
                "cuda_max_good": self.cuda_max_good,
                "driver_version": "570.86.15",
                "end_date": begun + self.end_in_s,
                "static_ip": True,
                "vms_enabled": False,
                "rentable": True,
                "rented": False,
                "cpu_cores_effective": 8.0 * count,
                "cpu_ram": 64000,
            }


def usual() -> list[Host]:
    """Return the hosts that there are at first: good ones, and each kind of one that is not to be rented unasked."""
    good = [
        Host(40001, "RTX 4090", 8, 24564, 0.34, min_bid=0.15),
        Host(40002, "RTX 4090", 4, 24564, 0.36, "Oslo, NO", min_bid=0.16),
        Host(40003, "H100 SXM", 8, 81559, 2.4024, "Paris, FR"),
        Host(40004, "A100 SXM4", 4, 81920, 1.7043),
        Host(40005, "RTX A6000", 4, 49140, 0.45),
        Host(40006, "Tesla V100", 8, 16384, 0.18),
    ]
    others = [
        Host(41001, "RTX 4090", 2, 24564, 0.20, "Lima, PE", datacenter=False),
        Host(41002, "RTX 4090", 2, 24564, 0.11, verification="unverified", datacenter=False),
        Host(41003, "RTX 4090", 2, 24564, 0.12, direct_port_count=0),
        Host(41004, "RTX 4090", 2, 24564, 0.13, reliability2=0.71),
        Host(41005, "RTX 4090", 1, 24564, 0.14, end_in_s=1800.0),
        Host(41006, "RTX 4090", 1, 24564, 0.15, cuda_max_good=10.2),
    ]
    return [*good, *others]


def search(hosts: list[Host], body: Mapping[str, Any], begun: float) -> list[dict[str, Any]]:
    """Return the asks that a search is for, in its order. Raises Refusal for one that cannot be meant."""
    found = [ask for host in hosts for ask in host.asks(begun)]
    for name, wanted in body.items():
        if name not in BESIDE:
            found = [ask for ask in found if _fits(ask, name, wanted)]
    kind = body.get("type", "ondemand")
    if kind not in ("ondemand", "on-demand", "bid", "reserved"):
        raise Refusal("invalid_args", f"unknown type {kind!r}", 400)
    storage = body.get("allocated_storage", 5.0)
    if not _is_number(storage) or storage < 0:
        raise Refusal("invalid_args", "allocated_storage is no number", 400)
    for ask in found:
        ask["dph_total"] = round(ask["dph_base"] + ask["storage_cost"] * storage / MONTH_H, 9)
    for name, direction in reversed(body.get("order", [["dph_total", "asc"]])):
        if direction not in ("asc", "desc") or (found and name not in found[0]):
            raise Refusal("invalid_args", f"no order by {name!r} {direction!r}", 400)
        found.sort(key=lambda ask: ask[name], reverse=direction == "desc")
    limit = body.get("limit", USUAL_LIMIT)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise Refusal("invalid_args", "limit is no whole number", 400)
    return found[:limit]


def _fits(ask: Mapping[str, Any], name: str, wanted: Any) -> bool:
    if name not in ask or not isinstance(wanted, dict) or not wanted or wanted.keys() - OPERATORS.keys():
        raise Refusal("invalid_args", f"no filter {name}: {wanted!r}", 400)
    return all(OPERATORS[word](ask[name], value) for word, value in wanted.items())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
