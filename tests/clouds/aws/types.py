"""Instance types and where they are offered: moto's list, with p3.2xlarge in two zones and no P2 anywhere."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from fnmatch import translate
from functools import cache
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES, InstanceType, InstanceTypeBackend
from moto.ec2.responses import EC2Response
from moto.ec2.utils import generic_filter

from tests.clouds.aws.model import Model

WILD = set("*?[")
V100_ZONES = ("us-east-1b", "us-west-2a")


class Types(EC2Response):
    """The calls about types."""

    model: Model

    def describe_instance_types(self) -> ActionResult:
        """Return the types of this region; one that is not offered in it does not exist, as on AWS."""
        offered = by_type("region", self.region)
        names = self._get_param("InstanceTypes", [])
        if unknown := [name for name in names if name not in offered]:
            said = f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
            raise EC2ClientError("InvalidInstanceType", said)
        found = [InstanceType(name) for name in names or sorted(offered) if name in INSTANCE_TYPES]
        chosen = generic_filter(self._filters_from_querystring(), found)
        begin, size = int(self._get_param("NextToken") or 0), int(self._get_param("MaxResults") or 100)
        more = {"NextToken": str(begin + size)} if begin + size < len(chosen) else {}
        return ActionResult({"InstanceTypes": chosen[begin : begin + size], **more})

    def describe_instance_type_offerings(self) -> ActionResult:
        """Return what is offered where; filters may have several values and wildcards."""
        filters = self._filters_from_querystring()
        kind = self._get_param("LocationType") or "region"
        names, places = filters.get("instance-type", ["*"]), filters.get("location", ["*"])
        there = _meaning(tuple(places))
        found = [one for one in offers(kind, self.region, names) if there(one["Location"])]
        return ActionResult({"InstanceTypeOfferings": found})


@cache
def by_type(kind: str, region: str) -> dict[str, list[dict[str, str]]]:
    """Return what a region offers, by type; `kind` is region or availability-zone."""
    found: dict[str, list[dict[str, str]]] = {}
    for one in INSTANCE_TYPE_OFFERINGS[kind].get(region, []):
        found.setdefault(one["InstanceType"], []).append(one)
    return found


def offers(kind: str, region: str, patterns: list[str]) -> list[dict[str, str]]:
    """Return the offers of types that any of the patterns means."""
    known = by_type(kind, region)
    means = _meaning(tuple(patterns))
    return [one for name in known if means(name) for one in known[name]]


@cache
def _meaning(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return what tells whether any of the patterns means a name; made once for all names that are asked."""
    wild = [translate(one) for one in patterns if set(one) & WILD]
    exact, matches = frozenset(patterns), re.compile("|".join(wild)).match if wild else None
    return lambda name: name in exact or (matches is not None and matches(name) is not None)


CALLS = {"DescribeInstanceTypes", "DescribeInstanceTypeOfferings"}
_ADDED: list[tuple[str, str, dict[str, str]]] = []  # what tests offer
_ANSWERS: dict[tuple[str, str, str], tuple[int, str, bytes]] = {}  # a launch asks for long lists, the same each time


def kept(asked: tuple[str, str, str], made: Callable[[], tuple[int, str, bytes]]) -> tuple[int, str, bytes]:
    """Return the answer to one of `CALLS`, of a region, with parameters; made once until other types are offered."""
    if asked not in _ANSWERS:
        _ANSWERS[asked] = made()
    return _ANSWERS[asked]


def _forget() -> None:
    by_type.cache_clear()
    _ANSWERS.clear()


def extend() -> None:
    """Write p3.2xlarge into moto's tables, once in a process, and take P2 out."""
    if "p3.2xlarge" in INSTANCE_TYPES:
        return
    INSTANCE_TYPES["p3.2xlarge"] = _v100(copy.deepcopy(INSTANCE_TYPES["p3dn.24xlarge"]))
    InstanceTypeBackend.instance_types.append(InstanceType("p3.2xlarge"))
    for kind in INSTANCE_TYPE_OFFERINGS.values():
        for listed in kind.values():
            listed[:] = [one for one in listed if not one["InstanceType"].startswith("p2.")]
    for zone in V100_ZONES:
        offer("p3.2xlarge", zone)
    _ADDED.clear()  # these stay


def offer(name: str, zone: str) -> None:
    """Offer a type in a zone, and so in its region."""
    region = zone[:-1]
    _forget()
    for kind, place in (("availability-zone", zone), ("region", region)):
        made = {"InstanceType": name, "Location": place, "LocationType": kind}
        if made not in INSTANCE_TYPE_OFFERINGS[kind][region]:
            INSTANCE_TYPE_OFFERINGS[kind][region].append(made)
            _ADDED.append((kind, region, made))


def withdraw() -> None:
    """Take back what tests offered."""
    while _ADDED:
        kind, region, made = _ADDED.pop()
        INSTANCE_TYPE_OFFERINGS[kind][region].remove(made)
        _forget()


def _v100(made: dict[str, Any]) -> dict[str, Any]:
    """Return p3.2xlarge: 8 vCPUs, 61 GiB, one V100 with 16 GiB, no local disk (AWS, Amazon EC2 P3)."""
    made.update(InstanceType="p3.2xlarge", Hypervisor="xen", InstanceStorageSupported=False)
    made.pop("InstanceStorageInfo")
    made["MemoryInfo"] = {"SizeInMiB": 62464}
    made["VCpuInfo"] = {"DefaultCores": 4, "DefaultThreadsPerCore": 2, "DefaultVCpus": 8}
    gpu = {**made["GpuInfo"]["Gpus"][0], "Count": 1, "LogicalGpuCount": 1, "MemoryInfo": {"SizeInMiB": 16384}}
    made["GpuInfo"] = {"Gpus": [gpu], "TotalGpuMemoryInMiB": 16384}
    return made
