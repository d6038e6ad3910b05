"""The fake cloud's state, its clock, and the errors that a test has injected."""

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
from cloudgpu.testing.fake.market import REGIONS
from cloudgpu.testing.fake.settings import read_options
from cloudgpu.testing.fake.store import (
    SHUT_DOWN_INSIDE,
    Cloud,
    FakeMachine,
    Fault,
    FileStore,
    MemoryStore,
    Store,
    phase,
)

# What the next calls raise, or what is called before them and says what to raise (`fail_next`).
ErrorOrHook = CloudgpuError | Callable[[], CloudgpuError | None]
Params = ParamSpec("Params")
Result = TypeVar("Result")
Fake = TypeVar("Fake", bound="FaultyCloud")


class FaultyCloud:
    """The fake cloud itself, and the ways to make it fail. Faults survive in a `state_file`, except callables."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self.clock = settings.clock
        self.ledger = settings.ledger
        self.options = read_options(settings)
        self.address: Address | None = None  # overrides the options `host` and `port` in this process
        self.state_location = str(self.options.state_file or settings.home)  # identifies the cloud that processes share
        self._store: Store = FileStore(self.options.state_file) if self.options.state_file else MemoryStore()
        self._hooks: list[tuple[str, Callable[[], CloudgpuError | None]]] = []

    def fail_next(self, method: str, error: ErrorOrHook, *, times: int = 1) -> None:
        """Make the next `times` calls of `method` raise `error` and do nothing.

        A callable is called first: what it raises or returns is raised; None lets the call go on.
        """
        if not isinstance(error, CloudgpuError):
            self._hooks += [(method, error)] * times
            return
        self._add_fault(Fault.from_error(method, error, times=times))

    def lose_reply(self, method: str, *, times: int = 1) -> None:
        """Make the next `times` calls of `method` do their work, and then raise an error as if the reply was lost."""
        error_class = LaunchUncertain if method in ("launch", "launch_together") else ProviderUnavailable
        error = error_class(f"the reply to {method} was lost", next="ask again")
        self._add_fault(Fault.from_error(method, error, times=times, after=True))

    def hide(self, scope: str) -> None:
        """Make listings get no answer from a region, or from the whole account, until `show`."""
        with self._store.open() as cloud:
            cloud.hidden.add(scope)

    def show(self, scope: str) -> None:
        """Let a hidden scope answer again."""
        with self._store.open() as cloud:
            cloud.hidden.discard(scope)

    def exhaust(self, zone: str) -> None:
        """Make a zone have no capacity, until `refill`."""
        with self._store.open() as cloud:
            cloud.exhausted.add(zone)

    def leave_room(self, zone: str, count: int) -> None:
        """Limit a zone to `count` more machines, launched or started, until `refill`."""
        with self._store.open() as cloud:
            cloud.room[zone] = self._machines_in_use(cloud, zone) + count

    def refill(self, zone: str) -> None:
        """Give a zone its capacity back."""
        with self._store.open() as cloud:
            cloud.exhausted.discard(zone)
            cloud.room.pop(zone, None)

    def deny(self, method: str) -> None:
        """Forbid the credential to call a method, until `permit`."""
        with self._store.open() as cloud:
            cloud.denied.add(method)

    def permit(self, method: str) -> None:
        """Let the credential call a method again."""
        with self._store.open() as cloud:
            cloud.denied.discard(method)

    def die(self, id: str) -> None:  # noqa: A002
        """Stop a machine as if it had crashed, with the reason `died`."""
        stopped_at_once = self.clock() - timedelta(seconds=self.options.stop_s)
        self._change_machine(id, requested=State.STOPPED, reason="died", asked_at=stopped_at_once)

    def shut_down(self, id: str) -> None:  # noqa: A002
        """Stop a machine from inside, as on Azure: it is stopped, but still billed until `stop` is called."""
        stopped_at_once = self.clock() - timedelta(seconds=self.options.stop_s)
        self._change_machine(id, requested=State.STOPPED, reason=SHUT_DOWN_INSIDE, asked_at=stopped_at_once)

    def take(self, id: str) -> None:  # noqa: A002
        """Interrupt a machine now, without notice."""
        self._change_machine(id, taken_at=self.clock())

    def report_activity(self, id: str, at: datetime) -> None:  # noqa: A002
        """Let the machine report activity at `at`, as its agent would."""
        self._change_machine(id, last_active=at)

    @property
    def calls(self) -> Counter[str]:
        """How often each method of the provider was called, by every process that shares the state."""
        with self._store.open() as cloud:
            return Counter(cloud.calls)

    def _add_fault(self, fault: Fault) -> None:
        with self._store.open() as cloud:
            if fault.times > 0:
                cloud.faults.append(fault)

    @contextmanager
    def _call(self, method: str) -> Iterator[Cloud]:
        """Open the cloud for one call and count it; raise the injected error before the call, or after it is done."""
        self._run_hook(method)
        with self._store.open() as cloud:
            cloud.calls[method] += 1
            self._fire_due_timers(cloud)
            if method in cloud.denied:
                message = f"this credential may not call fake:{method}"
                raise AuthFailed(message, field="permission", value=f"fake:{method}", next="ask for that permission")
            fault = cloud.take_fault(method)
            if fault and not fault.after:
                raise fault.error()
            yield cloud
        if fault:
            raise fault.error()

    def _fire_due_timers(self, cloud: Cloud) -> None:
        """Do what timers that have fired until now do; here there are none."""

    def _machines_in_use(self, cloud: Cloud, zone: str) -> int:
        using_capacity = (State.PENDING, State.RUNNING, State.STOPPING)
        return sum(
            machine.zone == zone and self._state(machine) in using_capacity for machine in cloud.machines.values()
        )

    def _remaining_capacity(self, cloud: Cloud, zone: str) -> float:
        """Return for how many more machines a zone has capacity."""
        return cloud.room[zone] - self._machines_in_use(cloud, zone) if zone in cloud.room else float("inf")

    def _hidden_regions(self, cloud: Cloud) -> set[str]:
        """Return the regions that do not answer."""
        return set(REGIONS) | {self.account} if self.account in cloud.hidden else cloud.hidden

    def _hidden_scopes(self, cloud: Cloud) -> tuple[Unanswered, ...]:
        return tuple(Unanswered(scope, "it was hidden by the test") for scope in sorted(cloud.hidden))

    def _run_hook(self, method: str) -> None:
        hook = next((hook for hook in self._hooks if hook[0] == method), None)
        if hook is None:
            return
        self._hooks.remove(hook)
        error = hook[1]()
        if error is not None:
            raise error

    def _change_machine(self, id: str, **changes: object) -> None:  # noqa: A002
        with self._store.open() as cloud:
            self._update_machine(cloud, self._find_living_machine(cloud, id), **changes)

    def _update_machine(self, cloud: Cloud, machine: FakeMachine, **changes: object) -> None:
        if "requested" in changes:
            changes = {"asked_at": self.clock(), "reason": None, **changes}
        cloud.machines[machine.id] = replace(machine, **changes)  # type: ignore[arg-type]

    def _state(self, machine: FakeMachine) -> State:
        return phase(machine, self.clock(), self.options.pace).state

    def _find_machine(self, cloud: Cloud, id: str) -> FakeMachine:  # noqa: A002
        machine = cloud.machines.get(id)
        if machine is None or self._is_forgotten(machine):
            raise InstanceNotFound(f"the fake cloud has no machine {id}", field="id", value=id)
        return machine

    def _find_living_machine(self, cloud: Cloud, id: str) -> FakeMachine:  # noqa: A002
        machine = self._find_machine(cloud, id)
        if self._state(machine) is State.TERMINATED or machine.requested is State.TERMINATED:
            raise InstanceNotFound(f"the machine {id} was terminated", field="id", value=id)
        return machine

    def _is_forgotten(self, machine: FakeMachine) -> bool:
        current = phase(machine, self.clock(), self.options.pace)
        return current.state is State.TERMINATED and self.clock() >= current.since + timedelta(
            seconds=self.options.keep_s
        )


def counted_call(
    method: Callable[Concatenate[Fake, Cloud, Params], Result],
) -> Callable[Concatenate[Fake, Params], Result]:
    """Wrap a method of the provider: it gets the open `Cloud`, its calls are counted, injected errors are raised."""

    def call_counted(self: Fake, /, *args: Params.args, **kwargs: Params.kwargs) -> Result:
        with self._call(method.__name__) as cloud:
            return method(self, cloud, *args, **kwargs)

    call_counted.__name__, call_counted.__doc__ = method.__name__, method.__doc__
    return call_counted


def invalid_request(field: str, value: str, message: str, hint: str | None = None) -> InvalidRequest:
    """Return the error for an argument that the fake cloud does not accept."""
    return InvalidRequest(message, field=field, value=value, next=hint)


def no_capacity(instance_type: str, zone: str) -> NoCapacity:
    """Return the error for a zone without capacity."""
    return NoCapacity(f"{zone} has no {instance_type} now", field="zone", value=zone, next="try another zone")


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a value that a tag cannot hold, and for a renew-until tag that holds no time."""
    for key, value in tags.items():
        if not TAG_VALUE.fullmatch(value):
            raise invalid_request(
                key, value, f"the tag {key} cannot hold {value!r}", "use a-z, 0-9, _ and -, 63 at most"
            )
    try:
        from_epoch(tags.get(TAG_RENEW_UNTIL, "0"))
    except ValueError as error:
        raise invalid_request(
            TAG_RENEW_UNTIL, tags[TAG_RENEW_UNTIL], f"the tag {TAG_RENEW_UNTIL} holds no time"
        ) from error
