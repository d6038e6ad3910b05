"""The state of the fake cloud: its machines, its other resources, and where they are kept.

A machine stores which state was requested; `phase` computes its present state from the time since then. The other
resources are disks, volumes, snapshots, images and orphans. The state is kept in memory, or in one JSON file that
several processes share.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from cloudgpu import errors
from cloudgpu.core.model.instances import TAG_IMAGE, TAG_RENEW_UNTIL, TAG_VOLUME, State
from cloudgpu.core.model.offers import Accelerator, Market
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.core.values.times import from_epoch, from_iso, iso
from cloudgpu.errors import CloudgpuError, ErrorRecord, ProviderUnavailable, RateLimited

SHUT_DOWN_INSIDE = "shut_down"  # why a machine is stopped that was shut down from inside, and is billed on
_TIME_FIELDS = ("made_at", "asked_at", "taken_at", "last_active")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the fake cloud takes, in seconds: to boot, and to stop."""

    boot_s: float = 0.0
    stop_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FakeMachine:
    """A machine as the fake cloud stores it.

    `requested` is the state that was last asked for, `asked_at` when; `taken_at` is when an interruption takes it.
    `call` is the fingerprint of the launch call, so that a token cannot be used for another one.
    """

    id: str
    token: str
    call: str
    account: str
    made_at: datetime
    tags: Mapping[str, str]
    region: str
    zone: str
    instance_type: str
    market: Market
    accelerators: tuple[Accelerator, ...]
    requested: State
    asked_at: datetime
    reason: str | None = None
    taken_at: datetime | None = None
    last_active: datetime | None = None
    persistent: bool = False  # for a spot machine: it can be stopped
    restarts: int = 0  # how often it was restarted to save an image
    by_tag: bool = True  # its renew-until tag ends it; else a timer of its own does, if anything
    run_s: float = 0.0  # how long it may run from each start, where that was fixed at its launch


@dataclass(frozen=True, slots=True)
class Phase:
    """A state, since when, and why (None if it was requested)."""

    state: State
    since: datetime
    reason: str | None = None


def phase(machine: FakeMachine, now: datetime, pace: Pace) -> Phase:
    """Return the state of the machine at `now`."""
    end = _unrequested_end(machine)
    if end and end.since <= now and not (machine.requested is State.TERMINATED and machine.asked_at <= end.since):
        return end
    interim, final, takes_s = {
        State.RUNNING: (State.PENDING, State.RUNNING, pace.boot_s),
        State.STOPPED: (State.STOPPING, State.STOPPED, pace.stop_s),
        State.TERMINATED: (State.STOPPING, State.TERMINATED, pace.stop_s),
    }[machine.requested]
    done_at = machine.asked_at + timedelta(seconds=takes_s)
    if now < done_at:
        return Phase(interim, machine.asked_at, machine.reason)
    return Phase(final, done_at, machine.reason)


def tag_timer(machine: FakeMachine) -> datetime | None:
    """Return when the renew-until tag ends the machine, aware UTC; None if no tag ends it."""
    text = machine.tags.get(TAG_RENEW_UNTIL) if machine.by_tag else None
    return from_epoch(text) if text else None


def machine_from_json(data: Mapping[str, Any]) -> FakeMachine:
    """Return a machine of a state file."""
    times = {name: data[name] and from_iso(data[name]) for name in _TIME_FIELDS}
    gpus = tuple(Accelerator(**gpu) for gpu in data["accelerators"])
    kinds = {"market": Market(data["market"]), "requested": State(data["requested"]), "accelerators": gpus}
    return FakeMachine(**{**data, **times, **kinds})


def _unrequested_end(machine: FakeMachine) -> Phase | None:
    """Return the earliest end that comes without a request: an interruption or the timer."""
    ends = [
        Phase(State.TERMINATED, at, why)
        for at, why in ((machine.taken_at, "interrupted"), (tag_timer(machine), "renew-until"))
        if at is not None
    ]
    return min(ends, key=lambda end: end.since, default=None)


_PRICED_AS = {  # the storage class by which it is priced; other kinds cost nothing
    Kind.DISK: "fake_disk",
    Kind.VOLUME: "fake_disk",
    Kind.SNAPSHOT: "fake_snapshot",
    Kind.IMAGE: "fake_snapshot",
    Kind.ADDRESS: "fake_address",
}


@dataclass(frozen=True, slots=True)
class FakeResource:
    """A disk, a volume, a snapshot, an image, or an orphan, as the fake cloud stores it.

    `full_name` is the name of the image that it is or will become; empty for others. `ready_at` is when it can be used.
    `attached_to` is the id of a machine. With `stays` it is not deleted with that machine.
    """

    id: str
    kind: Kind
    region: str
    zone: str
    full_name: str
    size_gb: int
    tags: Mapping[str, str]
    made_at: datetime
    ready_at: datetime
    attached_to: str | None = None
    stays: bool = True


def as_provider_resource(resource: FakeResource, account: str, now: datetime) -> ProviderResource:
    """Return the resource as the provider lists it at `now`."""
    name = resource.tags.get(TAG_VOLUME if resource.kind is Kind.VOLUME else TAG_IMAGE, "")
    return ProviderResource(
        provider="fake",
        account=account,
        region=resource.region,
        zone=resource.zone,
        id=resource.id,
        kind=resource.kind,
        name=name if resource.kind in (Kind.VOLUME, Kind.IMAGE) else "",
        size_gb=resource.size_gb,
        stored_as=_PRICED_AS.get(resource.kind, ""),
        tags=dict(resource.tags),
        made_at=resource.made_at,
        ready=now >= resource.ready_at,
        attached_to=resource.attached_to,
    )


def resource_from_json(data: Mapping[str, Any]) -> FakeResource:
    """Return a resource of a state file."""
    times = {name: from_iso(data[name]) for name in ("made_at", "ready_at")}
    return FakeResource(**{**data, "kind": Kind(data["kind"]), **times})


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
    calls: Counter[str] = field(default_factory=Counter)  # by method
    faults: list[Fault] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)  # regions, or the account, that do not answer
    exhausted: set[str] = field(default_factory=set)  # zones without capacity
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

    While the file has what this process wrote last, it is not parsed again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_written: tuple[bytes, Cloud] | None = None

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
        last_written, self._last_written = (
            self._last_written,
            None,
        )  # from now on it changes; what cannot be written is not kept either
        if not self._path.exists():
            return Cloud()
        encoded = self._path.read_bytes()
        if last_written is not None and last_written[0] == encoded:
            return last_written[1]
        try:
            return _from_json(json.loads(encoded))
        except (ValueError, KeyError, TypeError) as error:
            message = f"the fake cloud's state file {self._path} cannot be read: {error}"
            raise ProviderUnavailable(message, field="state_file", value=str(self._path)) from error

    def _write(self, cloud: Cloud) -> None:
        new_file = self._path.with_name(self._path.name + ".new")
        new_file.touch(mode=0o600)
        encoded = json.dumps({**_plain(cloud), "machines": list(cloud.machines.values())}, default=_plain).encode()
        new_file.write_bytes(encoded)
        new_file.replace(self._path)
        self._last_written = encoded, cloud


def _plain(value: Any) -> Any:
    """Return a value of the state that JSON does not have as one that it has."""
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, datetime):
        return iso(value)
    return {value_field.name: getattr(value, value_field.name) for value_field in fields(value)}


def _from_json(data: Mapping[str, Any]) -> Cloud:
    changes = {
        "machines": {machine["id"]: machine_from_json(machine) for machine in data["machines"]},
        "calls": Counter(data["calls"]),
        "faults": [Fault(**fault) for fault in data["faults"]],
        "hidden": set(data["hidden"]),
        "exhausted": set(data["exhausted"]),
        "resources": {id_: resource_from_json(resource) for id_, resource in data["resources"].items()},
        "denied": set(data["denied"]),
        "budget": data["budget"] and (data["budget"][0], tuple(data["budget"][1])),
    }
    return Cloud(**{**data, **changes})


def _error_classes() -> dict[str, type[CloudgpuError]]:
    """Return the error classes by their `kind`; a plugin's own subclass has the kind of its parent."""
    classes = (value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, CloudgpuError))
    return {error_class.kind: error_class for error_class in classes}
