"""Faults on demand at a cloud that speaks REST: errors, lost replies, calls that never arrive or never end, delays."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FOREVER = 1 << 30


@dataclass
class Fault:
    """What goes wrong, for which calls, and how many more times.

    `effect` is `error` (the cloud says no, and nothing is done), `lost` (it is done, and the answer never arrives),
    `refused` (the connection closes before anything is done), `hang` (the call is taken and never answered, and nothing
    is done), `hung` (it is done and never answered) or whatever else a cloud's model knows: it finds the fault in
    `Request.fault`, and does the call. `where` is what has to be so for a call to be meant: its path
    parameters (zone, region, instance ...) and what the model says of its place.
    """

    effect: str = "error"
    action: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    times: int = 1
    error: str = ""
    status: int = 0
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    hits: int = 0
    over: threading.Event = field(default_factory=threading.Event)  # a hang ends

    def means(self, action: str, said: Mapping[str, Any]) -> bool:
        """Say whether it is meant for a call of this action, of which that much is known."""
        if self.times <= 0 or self.action not in {None, action}:
            return False
        return all(said.get(name) == one for name, one in self.where.items())


@dataclass
class Faults:
    """The faults of a server, in the order in which they were added; the first that is meant happens."""

    latency_s: float = 0.0
    _over: threading.Event = field(default_factory=threading.Event)
    _faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(
        self,
        action: str | None = None,
        *,
        error: str = "",
        status: int = 0,
        message: str = "",
        times: int = 1,
        retry_after: float | None = None,
        body: Any = None,
        **where: Any,
    ) -> Fault:
        """Answer the next `times` calls with an error; `where` names path parameters, or what a model says of a place.

        `status` and `message` are the cloud's usual ones for `error` unless given; `body` is the whole body instead.
        """
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        return self.put(Fault("error", action, where, times, error, status, message, headers, body))

    def deny(self, action: str, *, times: int = FOREVER, **where: Any) -> Fault:
        """Refuse an action for want of the permission, as the cloud says it."""
        return self.put(Fault("denied", action, where, times))

    def lose_reply(self, action: str | None = None, *, times: int = 1, **where: Any) -> Fault:
        """Do the call and close the connection without an answer."""
        return self.put(Fault("lost", action, where, times))

    def refuse(self, action: str | None = None, *, times: int = 1, **where: Any) -> Fault:
        """Close the connection before the call is done."""
        return self.put(Fault("refused", action, where, times))

    def offline(self, *, status: int | None = None, **where: Any) -> Fault:
        """Let a place answer nothing any more (`region=`, `zone=`): connections close, or, with a status, say so."""
        if status is None:
            return self.refuse(times=FOREVER, **where)
        return self.add(status=status, times=FOREVER, **where)

    def hang(self, action: str | None = None, *, done: bool = False, times: int = FOREVER, **where: Any) -> Fault:
        """Take the call and answer nothing until the fault is removed or cleared; with `done`, do it before that.

        Then the connection closes, without an answer.
        """
        return self.put(Fault("hung" if done else "hang", action, where, times))

    def put(self, fault: Fault) -> Fault:
        """Add a fault as it is: for the effects that only one cloud's model knows."""
        with self._lock:
            self._faults.append(fault)
        return fault

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

    def met(self, action: str, said: Mapping[str, Any]) -> Fault | None:
        """Return the fault that happens to this call, counted down; None when it goes well."""
        with self._lock:
            fault = next((one for one in self._faults if one.means(action, said)), None)
            if fault is not None:
                fault.times -= 1
                fault.hits += 1
            return fault

    def standing(self, effect: str) -> list[Fault]:
        """Return the faults of an effect that would still happen: for a model that asks of them itself."""
        with self._lock:
            return [one for one in self._faults if one.effect == effect and one.times > 0]
