"""Faults on demand: errors in AWS's words, lost replies, calls that never arrive or end, silent regions, delays."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.clouds.aws.calls import Call
from tests.clouds.aws.errors import PERMISSIONS, AwsError

FOREVER = 1 << 30


@dataclass
class Fault:
    """What goes wrong, for which calls (None is any), and how many more times.

    `effect` is `error` (AWS says no, and nothing is done), `lost` (it is done, and the answer never arrives), `refused`
    (the connection closes before anything is done), `hang` (the call is taken and never answered, and nothing is done)
    or `hung` (it is done and never answered).
    """

    effect: str = "error"
    service: str | None = None
    action: str | None = None
    region: str | None = None
    zone: str | None = None
    type: str | None = None
    market: str | None = None
    number: int | None = None
    times: int = 1
    error: AwsError | None = None
    hits: int = 0
    over: threading.Event = field(default_factory=threading.Event)  # a hang ends

    def means(self, call: Call, place: Mapping[str, str]) -> bool:
        """Say whether it is meant for this call; `place` has a launch's zone, type and market."""
        said = {"service": call.service, "action": call.action, "region": call.region, "number": call.number, **place}
        wanted = {name: getattr(self, name) for name in "service action region zone type market number".split()}
        return self.times > 0 and all(said.get(name) == one for name, one in wanted.items() if one is not None)


@dataclass
class Faults:
    """The faults of a server, in the order in which they were added; the first that is meant happens."""

    latency_s: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)
    _faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(
        self, action: str | None = None, *, error: str, status: int = 0, message: str = "", times: int = 1, **where: str
    ) -> Fault:
        """Answer the next `times` calls with an error; `where` is service, region, zone, type or market.

        `status` and `message` are AWS's usual ones unless given: InsufficientInstanceCapacity comes as 500 and as 400.
        """
        return self._put(Fault("error", action=action, times=times, error=AwsError(error, message, status), **where))

    def deny(self, action: str, *, service: str = "ec2", times: int = FOREVER) -> Fault:
        """Refuse an action for want of the permission, as the service says it."""
        codes = {"ec2": "UnauthorizedOperation", "iam": "AccessDenied", "sts": "AccessDenied"}
        permission = PERMISSIONS.get(f"{service}:{action}", f"{service}:{action}")
        said = f"not authorized to perform: {permission} because no identity-based policy allows it"
        sentence = f"User: arn:aws:iam::123456789012:user/someone is {said}"
        if service == "ec2":
            sentence = f"You are not authorized to perform this operation. {sentence}"
        code = codes.get(service, "AccessDeniedException")
        return self.add(action, error=code, message=sentence, times=times, service=service)

    def lose_reply(
        self, action: str | None = None, *, number: int | None = None, times: int = 1, **where: str
    ) -> Fault:
        """Do the call and close the connection without an answer."""
        return self._put(Fault("lost", action=action, number=number, times=times, **where))

    def refuse(self, action: str | None = None, *, number: int | None = None, times: int = 1, **where: str) -> Fault:
        """Close the connection before the call is done."""
        return self._put(Fault("refused", action=action, number=number, times=times, **where))

    def hang(self, action: str | None = None, *, done: bool = False, times: int = FOREVER, **where: str) -> Fault:
        """Take the call and answer nothing until the fault is removed or cleared; with `done`, do it before that.

        Then the connection closes, without an answer.
        """
        return self._put(Fault("hung" if done else "hang", action=action, times=times, **where))

    def offline(self, region: str, *, status: int | None = None) -> Fault:
        """Let a region answer nothing any more: connections close, or, with a status of 503, say so."""
        if status is None:
            return self.refuse(region=region, times=FOREVER)
        return self.add(error="Unavailable", status=status, region=region, times=FOREVER)

    def remove(self, fault: Fault) -> None:
        """End a fault, and whatever hangs by it."""
        with self._lock:
            self._faults.remove(fault)
        fault.over.set()

    def clear(self) -> None:
        """End all of them, and the latency."""
        with self._lock:
            for fault in self._faults:
                fault.over.set()
            self._faults.clear()
            self.latency_s = 0.0
            self._over.set()
            self._over = threading.Event()

    def delay(self) -> None:
        """Let a call take its time on the way; whoever is under way when the faults are cleared arrives at once."""
        if self.latency_s:
            self._over.wait(self.latency_s)

    def met(self, call: Call, place: Mapping[str, str]) -> Fault | None:
        """Return the fault that happens to this call, counted down; None when it goes well."""
        with self._lock:
            fault = next((one for one in self._faults if one.means(call, place)), None)
            if fault is not None:
                fault.times -= 1
                fault.hits += 1
            return fault

    def _put(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault
