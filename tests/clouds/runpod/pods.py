"""The pods of our model of RunPod, what stock there is, and what happens to a pod.

States, actions and fields are RunPod's (openapi.json 2.0.0). What is only our belief is marked [B].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from hashlib import sha256
from typing import Any

from tests.clouds.clock import Clock
from tests.clouds.rest import Refusal
from tests.clouds.runpod.bills import Book

ALLOWED = {
    "PROVISIONING": ("stop", "terminate"),
    "STARTING": ("stop", "terminate"),
    "RUNNING": ("stop", "restart", "terminate"),
    "EXITED": ("start", "terminate"),
    "ERROR": ("start", "terminate"),
}
NO_STOCK = "There are no instances currently available"  # [B]: RunPod names no code, only a sentence
NO_GPU = "There are not enough free GPUs on the host machine to start this pod."  # [B]


@dataclass
class GpuType:
    """What the catalogue says of a GPU; `stock` is how many are free, by cloud and data centre."""

    id: str
    name: str
    memory: int  # GB
    secure: str  # USD per GPU and hour, as text
    community: str
    most: tuple[int, int] = (8, 4)
    maker: str = "NVIDIA"
    stock: dict[str, dict[str, int]] = field(default_factory=dict)


def usual_types() -> list[GpuType]:
    """Return what the model sells: prices as of 2026-11-09 where the facts have them, else made up."""
    home = {"US-KS-2": 16, "EU-RO-1": 8}
    return [
        GpuType(
            "NVIDIA H100 80GB HBM3", "H100 SXM", 80, "3.99", "2.69", stock={"SECURE": dict(home), "COMMUNITY": {"": 4}}
        ),
        GpuType("NVIDIA A100 80GB PCIe", "A100 PCIe", 80, "1.79", "1.19", stock={"SECURE": {"US-KS-2": 8}}),
        GpuType("NVIDIA A100-SXM4-80GB", "A100 SXM", 80, "1.79", "1.39", stock={"SECURE": {"EU-RO-1": 8}}),
        GpuType(
            "NVIDIA GeForce RTX 4090",
            "RTX 4090",
            24,
            "0.69",
            "0.34",
            (4, 2),
            stock={"SECURE": dict(home), "COMMUNITY": {"": 12}},
        ),
        GpuType("Tesla V100-SXM2-16GB", "V100 SXM2", 16, "0.23", "0.19", stock={"COMMUNITY": {"": 2}}),
        GpuType("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 48, "0.77", "0.74", stock={"SECURE": {"US-KS-2": 2}}),
        GpuType(
            "AMD Instinct MI300X OAM", "MI300X", 192, "1.99", "1.99", maker="AMD", stock={"SECURE": {"EU-RO-1": 1}}
        ),
    ]


@dataclass
class Pod:
    """One pod: the body it was made with, its state, its host, what its container has said."""

    id: str
    body: dict[str, Any]
    made: datetime
    book: Book
    where: str
    status: str = "PROVISIONING"
    started: datetime | None = None
    port: int = 0
    key: str = ""
    host: str = "127.0.0.1"
    user: str = "root"
    read_log: Callable[[], list[str]] = list  # of a container that really runs
    locked: bool = False
    lines: list[dict[str, str]] = field(default_factory=list)

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return int(self.body["gpu"].get("count", 1))


class Model:
    """One account's pods."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.types = {one.id: one for one in usual_types()}
        self.pods: dict[str, Pod] = {}
        self.gone: dict[str, Pod] = {}
        self.balance = Fraction(100)
        self.mode = "PREPAID"
        self.listed_after_s = 0.0  # how long a new pod is in no listing: how long that is with RunPod is not known
        self.held: set[str] = set()  # hosts of stopped pods that another customer's pod has taken
        self.boot: Callable[[Pod], None] = lambda _: None  # what really runs the container of a pod, and ends it
        self.halt: Callable[[Pod], None] = lambda _: None
        self._numbers, self._ports = itertools.count(1), itertools.count(40000)

    def make(self, body: Mapping[str, Any]) -> Pod:
        """Make a pod where there is stock, in the order of the data centres that are asked for. Raises Refusal."""
        gpu = self._type(body)
        cloud = body.get("cloud", "SECURE")
        count = int(body["gpu"].get("count", 1))
        where = self._placed(gpu, cloud, count, body.get("dataCenterIds") or [])
        price = Fraction(gpu.secure if cloud == "SECURE" else gpu.community) * count
        if self.mode == "PREPAID" and self.balance < price:  # "an hour of credit is needed to start"
            raise Refusal("balance", "Your account balance is too low to deploy this pod.", 402)
        gpu.stock[cloud][where] -= count
        number = next(self._numbers)
        letters = sha256(f"pod {number}".encode()).hexdigest()[:13]
        now = self.clock.now()
        volume = body.get("mounts", {}).get("persistent", {}).get("size", 0)
        pod = Pod(f"{letters}z", dict(body), now, Book(price, body.get("disk", 1), volume, now), where)
        pod.key = f"rpa_scoped_{letters}"
        self.pods[pod.id] = pod
        self.clock.later(pod.id, "PROVISIONING", lambda: self._starting(pod))
        return pod

    def _type(self, body: Mapping[str, Any]) -> GpuType:
        if "gpu" not in body:
            raise Refusal("rule", "this model has no CPU pods", 400)
        found = self.types.get(body["gpu"]["id"])
        if found is None:  # [B] whether that is 400, 404 or 422
            raise Refusal("rule", f"unknown GPU type {body['gpu']['id']!r}", 400)
        return found

    def _placed(self, gpu: GpuType, cloud: str, count: int, wanted: list[str]) -> str:
        most = gpu.most[0] if cloud == "SECURE" else gpu.most[1]
        free = gpu.stock.get(cloud, {})
        places = [one for one in (wanted or free) if free.get(one, 0) >= count]
        if count > most or not places:
            raise Refusal("stock", NO_STOCK, 400)
        return places[0]

    def _starting(self, pod: Pod) -> None:
        pod.status = "STARTING"
        self.clock.later(pod.id, "STARTING", lambda: self._running(pod))

    def _running(self, pod: Pod) -> None:
        pod.status, pod.started = "RUNNING", self.clock.now()
        pod.port = next(self._ports)
        self.say(pod, "start container", "system")
        self.boot(pod)

    def say(self, pod: Pod, line: str, source: str = "container") -> None:
        """Let the container, or its host, say a line in the log."""
        pod.lines.append({"ts": stamp(self.clock.now()), "source": source, "line": line})

    def act(self, pod: Pod, action: str) -> None:
        """Do what is asked of a pod. Raises Refusal where its state does not allow it, or its host has no GPU left."""
        if action not in ALLOWED[pod.status]:
            raise Refusal("state", f"action {action} is not valid for a pod that is {pod.status}", 409)
        if action == "stop":
            self.stop(pod)
        elif action == "start":
            self.start(pod)
        elif action == "restart":
            self.clock.cancel(pod.id)
            self._starting(pod)
        else:
            self.end(pod)

    def stop(self, pod: Pod) -> None:
        """Stop it: its GPUs go back into the stock of its host, and all but /workspace is erased."""
        self.clock.cancel(pod.id)
        self.halt(pod)
        pod.book.turn(self.clock.now(), runs=False)
        self._back(pod)
        pod.status, pod.started, pod.port = "EXITED", None, 0
        pod.lines = []  # [B] the log of an earlier container is not shown

    def start(self, pod: Pod) -> None:
        """Start it on the very host that it was stopped on, where that still has the GPUs. Raises Refusal."""
        stock = self._stock(pod)
        if pod.id in self.held or stock.get(pod.where, 0) < pod.gpus:
            raise Refusal("stock", NO_GPU, 400)
        stock[pod.where] -= pod.gpus
        pod.book.turn(self.clock.now(), runs=True)
        pod.status = "PROVISIONING"
        self.clock.later(pod.id, "PROVISIONING", lambda: self._starting(pod))

    def end(self, pod: Pod) -> None:
        """End it: nothing of it is left."""
        self.clock.cancel(pod.id)
        self.halt(pod)
        pod.book.end(self.clock.now())
        if pod.status != "EXITED":
            self._back(pod)
        pod.status = "TERMINATED"
        self.gone[pod.id] = self.pods.pop(pod.id)

    def fail(self, pod: Pod) -> None:
        """Let its container fail for good; [B] it is billed on, for its `cost` is not 0."""
        self.clock.cancel(pod.id)
        pod.status, pod.port = "ERROR", 0

    def _stock(self, pod: Pod) -> dict[str, int]:
        return self.types[pod.body["gpu"]["id"]].stock[pod.body.get("cloud", "SECURE")]

    def _back(self, pod: Pod) -> None:
        self._stock(pod)[pod.where] += pod.gpus

    def listed(self) -> list[Pod]:
        """Return the pods that a listing shows by now."""
        late = self.clock.now() - timedelta(seconds=self.listed_after_s)
        return [pod for pod in self.pods.values() if pod.made <= late]


def shown(pod: Pod) -> dict[str, Any]:
    """Return a pod as RunPod's schema has it: every required field, and nothing else."""
    body, runs = pod.body, pod.status == "RUNNING"
    mapped = runs and any(one.endswith("/tcp") for one in body.get("ports", []))
    direct = {
        "host": pod.host,
        "port": pod.port,
        "username": pod.user,
        "command": f"ssh {pod.user}@{pod.host} -p {pod.port}",
    }
    user = f"{pod.id}-64411eb2"
    proxy = {"host": "ssh.runpod.io", "port": 22, "username": user, "command": f"ssh {user}@ssh.runpod.io"}
    uptime = {"uptime": 1, "ports": [{"private": 22, "public": pod.port, "type": "tcp", "ip": pod.host}]}
    return {
        "id": pod.id,
        "name": body["name"],
        "image": body.get("image", ""),
        "args": body.get("args", ""),
        "disk": body.get("disk", 1),
        "ports": body.get("ports", []),
        "env": body.get("env", {}),  # [B] without RUNPOD_API_KEY and the others that RunPod adds
        "registry": body.get("registry"),
        "status": pod.status,
        "actions": list(ALLOWED[pod.status]),
        "mounts": body.get("mounts", {}),
        "gpu": {"id": body["gpu"]["id"], "count": pod.gpus},
        "cloud": body.get("cloud", "SECURE"),
        "dataCenterId": pod.where or None,
        "cudaVersion": "12.8",
        "ssh": {"proxy": proxy, "direct": direct if mapped else None},
        "template": None,
        "cost": 0.0 if pod.status == "EXITED" else float(pod.book.per_hour),
        "locked": pod.locked,
        "globalNetworking": {"enabled": False},
        "runtime": uptime if runs else None,
        "createdAt": stamp(pod.made),
        "startedAt": None if pod.started is None else stamp(pod.started),
    }


def stamp(at: datetime) -> str:
    """Return a time as RunPod writes it."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
