"""The fake cloud's inside: its memory, its clock, and the faults that a test orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Concatenate, ParamSpec, TypeVar

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_RENEW_UNTIL, Address, State
from cloudgpu.core.values.naming import TAG_VALUE
from cloudgpu.core.values.times import from_epoch
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
)
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing.fake.machines import ALLOCATED, FakeMachine, phase
from cloudgpu.testing.fake.market import REGIONS
from cloudgpu.testing.fake.settings import read_options
from cloudgpu.testing.fake.store import Cloud, Fault, FileStore, MemoryStore, Store

Ordered = CloudgpuError | Callable[[], CloudgpuError | None]
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Fake = TypeVar("Fake", bound="FaultyCloud")


class FaultyCloud:
    """The fake cloud itself, and the ways to make it fail. Faults survive in a `state_file`, except callables."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self.clock = settings.clock
        self.ledger = settings.ledger
        self.options = read_options(settings)
        self.address: Address | None = None  # overrides the options `host` and `port` in this process
        self.place = str(self.options.state_file or settings.home)
        self._store: Store = FileStore(self.options.state_file) if self.options.state_file else MemoryStore()
        self._hooks: list[tuple[str, Callable[[], CloudgpuError | None]]] = []

    def fail_next(self, method: str, error: Ordered, *, times: int = 1) -> None:
        """Make the next `times` calls of `method` raise `error` and do nothing.

        A callable is called first: what it raises or returns is raised; None lets the call go on.
        """
        if not isinstance(error, CloudgpuError):
            self._hooks += [(method, error)] * times
            return
        self._order(Fault.of(method, error, times=times))

    def lose_reply(self, method: str, *, times: int = 1) -> None:
        """Make the next calls of `method` do their work and lose the answer."""
        kind = LaunchUncertain if method in ("launch", "launch_together") else ProviderUnavailable
        error = kind(f"the reply to {method} was lost", next="ask again")
        self._order(Fault.of(method, error, times=times, after=True))

    def hide(self, scope: str) -> None:
        """Let a region, or the whole account, not answer listings until `show`."""
        with self._store.open() as cloud:
            cloud.hidden.add(scope)

    def show(self, scope: str) -> None:
        """Let a hidden scope answer again."""
        with self._store.open() as cloud:
            cloud.hidden.discard(scope)

    def exhaust(self, zone: str) -> None:
        """Let a zone have no capacity until `refill`."""
        with self._store.open() as cloud:
            cloud.exhausted.add(zone)

    def leave_room(self, zone: str, count: int) -> None:
        """Let a zone have capacity for so many more machines, launched or started, until `refill`."""
        with self._store.open() as cloud:
            cloud.room[zone] = self._in_use(cloud, zone) + count

    def refill(self, zone: str) -> None:
        """Give a zone its capacity back."""
        with self._store.open() as cloud:
            cloud.exhausted.discard(zone)
            cloud.room.pop(zone, None)

    def deny(self, method: str) -> None:
        """Let the credential not be allowed to call a method until `permit`."""
        with self._store.open() as cloud:
            cloud.denied.add(method)

    def permit(self, method: str) -> None:
        """Let the credential call a method again."""
        with self._store.open() as cloud:
            cloud.denied.discard(method)

    def die(self, id: str) -> None:  # noqa: A002
        """Let a machine die: it is stopped, for the reason `died`."""
        stopped_at_once = self.clock() - timedelta(seconds=self.options.stop_s)
        self._change(id, requested=State.STOPPED, reason="died", asked_at=stopped_at_once)

    def shut_down(self, id: str) -> None:  # noqa: A002
        """Let a machine be shut down from inside as Azure's are: it is stopped, and billed on until `stop` is asked."""
        stopped_at_once = self.clock() - timedelta(seconds=self.options.stop_s)
        self._change(id, requested=State.STOPPED, reason=ALLOCATED, asked_at=stopped_at_once)

    def take(self, id: str) -> None:  # noqa: A002
        """Let the cloud take a machine now, without notice."""
        self._change(id, taken_at=self.clock())

    def report_activity(self, id: str, at: datetime) -> None:  # noqa: A002
        """Let the machine report activity at `at`, as its agent would."""
        self._change(id, last_active=at)

    @property
    def calls(self) -> Counter[str]:
        """How often each method of the provider was called, by every process that shares the state."""
        with self._store.open() as cloud:
            return Counter(cloud.calls)

    def _order(self, fault: Fault) -> None:
        with self._store.open() as cloud:
            if fault.times > 0:
                cloud.faults.append(fault)

    @contextmanager
    def _call(self, method: str) -> Iterator[Cloud]:
        """Count the call, raise what was ordered before it, or after it is done."""
        self._run_hook(method)
        with self._store.open() as cloud:
            cloud.calls[method] += 1
            self._settle(cloud)
            if method in cloud.denied:
                raise _denied(method)
            fault = cloud.take(method)
            if fault and not fault.after:
                raise fault.error()
            yield cloud
        if fault:
            raise fault.error()

    def _settle(self, cloud: Cloud) -> None:
        """Let happen what was to happen by itself until now."""

    def _in_use(self, cloud: Cloud, zone: str) -> int:
        taken = (State.PENDING, State.RUNNING, State.STOPPING)
        return sum(one.zone == zone and self._state(one) in taken for one in cloud.machines.values())

    def _left(self, cloud: Cloud, zone: str) -> float:
        """Return for how many more machines a zone has capacity."""
        return cloud.room[zone] - self._in_use(cloud, zone) if zone in cloud.room else float("inf")

    def _hidden(self, cloud: Cloud) -> set[str]:
        """Return the regions that do not answer."""
        return set(REGIONS) | {self.account} if self.account in cloud.hidden else cloud.hidden

    def _silent(self, cloud: Cloud) -> tuple[Unanswered, ...]:
        return tuple(Unanswered(scope, "it was hidden by the test") for scope in sorted(cloud.hidden))

    def _run_hook(self, method: str) -> None:
        found = next((hook for hook in self._hooks if hook[0] == method), None)
        if found is None:
            return
        self._hooks.remove(found)
        error = found[1]()
        if error is not None:
            raise error

    def _change(self, id: str, **changes: object) -> None:  # noqa: A002
        with self._store.open() as cloud:
            self._set(cloud, self._living(cloud, id), **changes)

    def _set(self, cloud: Cloud, machine: FakeMachine, **changes: object) -> None:
        if "requested" in changes:
            changes = {"asked_at": self.clock(), "reason": None, **changes}
        cloud.machines[machine.id] = replace(machine, **changes)  # type: ignore[arg-type]

    def _state(self, machine: FakeMachine) -> State:
        return phase(machine, self.clock(), self.options.pace).state

    def _found(self, cloud: Cloud, id: str) -> FakeMachine:  # noqa: A002
        machine = cloud.machines.get(id)
        if machine is None or self._forgotten(machine):
            message = f"the fake cloud has no machine {id}"
            raise InstanceNotFound(message, field="id", value=id)
        return machine

    def _living(self, cloud: Cloud, id: str) -> FakeMachine:  # noqa: A002
        machine = self._found(cloud, id)
        if self._state(machine) is State.TERMINATED or machine.requested is State.TERMINATED:
            message = f"the machine {id} was terminated"
            raise InstanceNotFound(message, field="id", value=id)
        return machine

    def _forgotten(self, machine: FakeMachine) -> bool:
        now = phase(machine, self.clock(), self.options.pace)
        return now.state is State.TERMINATED and self.clock() >= now.since + timedelta(seconds=self.options.keep_s)


def counted(method: Callable[Concatenate[Fake, Cloud, Asked], Answer]) -> Callable[Concatenate[Fake, Asked], Answer]:
    """Return a method as callers see it, who give no cloud: each call is counted, and fails where that was ordered."""

    def called(self: Fake, /, *args: Asked.args, **more: Asked.kwargs) -> Answer:
        with self._call(method.__name__) as cloud:
            return method(self, cloud, *args, **more)

    called.__name__, called.__doc__ = method.__name__, method.__doc__
    return called


def refused(field: str, value: str, message: str, hint: str | None = None) -> InvalidRequest:
    """Return the error of a call that cannot be."""
    return InvalidRequest(message, field=field, value=value, next=hint)


def _denied(method: str) -> AuthFailed:
    message = f"this credential may not call fake:{method}"
    return AuthFailed(message, field="permission", value=f"fake:{method}", next="ask for that permission")


def no_capacity(instance_type: str, zone: str) -> NoCapacity:
    """Return the error of a zone that was exhausted."""
    return NoCapacity(f"{zone} has no {instance_type} now", field="zone", value=zone, next="try another zone")


def check_tags(tags: Mapping[str, str]) -> None:
    """Refuse what a tag cannot hold, and a renew-until that is no time."""
    for key, value in tags.items():
        if not TAG_VALUE.fullmatch(value):
            raise refused(key, value, f"the tag {key} cannot hold {value!r}", "use a-z, 0-9, _ and -, 63 at most")
    try:
        from_epoch(tags.get(TAG_RENEW_UNTIL, "0"))
    except ValueError as error:
        raise refused(TAG_RENEW_UNTIL, tags[TAG_RENEW_UNTIL], f"the tag {TAG_RENEW_UNTIL} holds no time") from error
