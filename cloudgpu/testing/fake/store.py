"""Where the fake cloud keeps its state: in memory, or in one JSON file that several processes share."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from cloudgpu import errors
from cloudgpu.errors import CloudgpuError, ErrorRecord, ProviderUnavailable, RateLimited
from cloudgpu.testing.fake.machines import FakeMachine, from_json, to_json
from cloudgpu.testing.fake.resources import FakeResource, resource_from_json, resource_to_json


@dataclass(frozen=True, slots=True)
class Fault:
    """An error for the next calls of `method`; with `after` the call is done first, and only its reply is lost."""

    method: str
    after: bool
    body: ErrorRecord
    retry_after: float | None = None
    times: int = 1  # a count, not copies: the state file is written at every call

    @classmethod
    def from_error(cls, method: str, error: CloudgpuError, *, times: int, after: bool = False) -> Fault:
        """Return the fault that raises a copy of this error at the next `times` calls."""
        return cls(method, after, error.as_dict(), getattr(error, "retry_after", None), times)

    def error(self) -> CloudgpuError:
        """Return the error to raise."""
        details = {"field": self.body["field"], "value": self.body["value"], "next": self.body["next"]}
        message = self.body["message"] or ""
        error_class = _error_classes()[self.body["kind"] or ""]
        if error_class is RateLimited:
            return RateLimited(message, retry_after=self.retry_after, **details)
        return error_class(message, **details)


@dataclass(slots=True)
class Cloud:
    """The whole state of the fake cloud, and the faults that tests have injected."""

    machines: dict[str, FakeMachine] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    exhausted: set[str] = field(default_factory=set)
    room: dict[str, int] = field(default_factory=dict)  # per zone: the most machines at once, where there is a limit
    resources: dict[str, FakeResource] = field(default_factory=dict)
    made: int = 0  # resources, ever: so that no two have one id
    firewalls: dict[str, dict[str, str]] = field(default_factory=dict)  # per machine: who may connect, by label
    quotas: dict[str, float] = field(default_factory=dict)  # by region/code, where not the usual one
    requests: list[str] = field(default_factory=list)  # for higher quotas
    denied: set[str] = field(default_factory=set)  # methods that the credential may not call
    spot: dict[str, list[list[str]]] = field(default_factory=dict)  # per type and zone: since when, and USD per hour
    role: str | None = None  # the document of the machines' role
    budget: tuple[int, tuple[str, ...]] | None = None  # the account's own: nano-dollars a month, and who is told
    credit: int | None = None  # nano-dollars that are left, where a test has set that
    timers: dict[str, list[str]] = field(default_factory=dict)  # per machine: when it fires, and what it does then
    timer_role: str | None = None  # the document of the timers' role
    host_keys: dict[str, list[str]] = field(default_factory=dict)  # per machine: what it has said of its own

    def take_fault(self, method: str) -> Fault | None:
        """Return the next fault of this method, and reduce its `times` by one."""
        index = next((index for index, fault in enumerate(self.faults) if fault.method == method), None)
        if index is None:
            return None
        fault = self.faults.pop(index)
        if fault.times > 1:
            self.faults.insert(index, replace(fault, times=fault.times - 1))
        return fault


class Store(Protocol):
    """Holds one Cloud; one caller at a time."""

    def open(self) -> AbstractContextManager[Cloud]:
        """Return a context manager that gives the Cloud alone and keeps every change."""


class MemoryStore:
    """Keeps the cloud in this process."""

    def __init__(self) -> None:
        self._cloud = Cloud()
        self._lock = threading.Lock()

    @contextmanager
    def open(self) -> Iterator[Cloud]:
        """Give the cloud to one thread at a time."""
        with self._lock:
            yield self._cloud


class FileStore:
    """Keeps the cloud in a JSON file (0600), under a lock that every process takes.

    What this process wrote last it does not read again: while the file still says it, the cloud is as it was.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: tuple[bytes, Cloud] | None = None

    @contextmanager
    def open(self) -> Iterator[Cloud]:
        """Give the cloud to one thread of one process at a time."""
        import fcntl

        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_name(self._path.name + ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            cloud = self._read()
            try:
                yield cloud
            finally:
                self._write(cloud)

    def _read(self) -> Cloud:
        last, self._last = self._last, None  # from now on it changes; what cannot be written is not kept either
        if not self._path.exists():
            return Cloud()
        stored = self._path.read_bytes()
        if last is not None and last[0] == stored:
            return last[1]
        try:
            return _from_json(json.loads(stored))
        except (ValueError, KeyError, TypeError) as error:
            message = f"the fake cloud's state file {self._path} cannot be read: {error}"
            raise ProviderUnavailable(message, field="state_file", value=str(self._path)) from error

    def _write(self, cloud: Cloud) -> None:
        new_file = self._path.with_name(self._path.name + ".new")
        new_file.touch(mode=0o600)
        encoded = json.dumps(_to_json(cloud)).encode()
        new_file.write_bytes(encoded)
        new_file.replace(self._path)
        self._last = encoded, cloud


def _to_json(cloud: Cloud) -> dict[str, Any]:
    return {
        "machines": [to_json(machine) for machine in cloud.machines.values()],
        "calls": dict(cloud.calls),
        "faults": [asdict(fault) for fault in cloud.faults],
        "hidden": sorted(cloud.hidden),
        "exhausted": sorted(cloud.exhausted),
        "room": cloud.room,
        "resources": [resource_to_json(resource) for resource in cloud.resources.values()],
        "made": cloud.made,
        "firewalls": cloud.firewalls,
        "quotas": cloud.quotas,
        "requests": cloud.requests,
        "denied": sorted(cloud.denied),
        "spot": cloud.spot,
        "role": cloud.role,
        "budget": cloud.budget,
        "credit": cloud.credit,
        "timers": cloud.timers,
        "timer_role": cloud.timer_role,
        "host_keys": cloud.host_keys,
    }


def _from_json(data: Mapping[str, Any]) -> Cloud:
    return Cloud(
        machines={item["id"]: from_json(item) for item in data["machines"]},
        calls=Counter(data["calls"]),
        faults=[Fault(**fault) for fault in data["faults"]],
        hidden=set(data["hidden"]),
        exhausted=set(data["exhausted"]),
        room=data["room"],
        resources={item["id"]: resource_from_json(item) for item in data["resources"]},
        made=data["made"],
        firewalls=data["firewalls"],
        quotas=data["quotas"],
        requests=data["requests"],
        denied=set(data["denied"]),
        spot=data["spot"],
        role=data["role"],
        budget=None if data["budget"] is None else (data["budget"][0], tuple(data["budget"][1])),
        credit=data.get("credit"),
        timers=data["timers"],
        timer_role=data["timer_role"],
        host_keys=data["host_keys"],
    )


def _error_classes() -> dict[str, type[CloudgpuError]]:
    """Return the error classes by their `kind`; a plugin's own subclass has the kind of its parent."""
    classes = (value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, CloudgpuError))
    return {error_class.kind: error_class for error_class in classes}
