"""The state of our model of AWS that moto does not keep: a clock, what is on its way, prices, quotas, addresses."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

SHOWN_S = 3600.0  # AWS shows a terminated machine "for a short while", some report an hour
REQUEST_SHOWN_S = 4 * 3600.0  # "deleted four hours after they are canceled and their instances are terminated"
ACCOUNT = os.environ.get("MOTO_ACCOUNT_ID", "123456789012")  # moto reads it there, too
STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


@dataclass
class Model:
    """Everything that `reset` forgets."""

    ahead: timedelta = timedelta()  # how far its clock is ahead of this machine's
    # by state: pending, stopping, shutting-down, terminated (until it is shown no more), creating, snapshot,
    # unseen (a disk that was just made), attachment (until the disk shows it), request (a spot request whose machine
    # has ended)
    dwell_s: dict[str, float] = field(default_factory=lambda: {"terminated": SHOWN_S, "request": REQUEST_SHOWN_S})
    shows_terminated: bool = False  # a token whose machine has ended: is it shown (else an error)? Both are documented
    dates_interruptions: bool = True  # does a machine's own record say when AWS took it? Public records show both
    due: dict[str, tuple[datetime, Callable[[], None]]] = field(default_factory=dict)
    tokens: dict[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)
    spot_prices: dict[tuple[str, str], Decimal] = field(default_factory=dict)  # by type, and zone or region
    began: datetime = field(default_factory=lambda: datetime.now(UTC))  # spot prices are as of a while before
    # by type and zone: since when (aware UTC) which spot price held, instead of the one above
    spot_scores: dict[tuple[str, str], int] = field(default_factory=dict)  # by type and zone; 3 elsewhere
    spot_history: dict[tuple[str, str], list[tuple[datetime, Decimal]]] = field(default_factory=dict)
    # what the price list says instead: by item and region, a text in USD or a whole `pricePerUnit`
    list_prices: dict[tuple[str, str], Any] = field(default_factory=dict)
    list_products: list[str] = field(default_factory=list)  # products that it names besides, as they stand
    quotas: dict[tuple[str, str], float] = field(default_factory=dict)  # by region ("" is all) and code
    quota_requests: list[dict[str, Any]] = field(default_factory=list)
    schedule_groups: set[tuple[str, str]] = field(default_factory=set)  # by region and name
    schedules: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)  # by region, group and name
    placement_groups: dict[tuple[str, str], Any] = field(default_factory=dict)  # by region and name
    room: dict[tuple[str, str], int] = field(default_factory=dict)  # by type and zone: the most machines at once
    fired: list[Any] = field(default_factory=list)  # what schedules have called
    furnished: set[tuple[str, str]] = field(default_factory=set)
    watchers: list[Callable[[Any], None]] = field(default_factory=list)  # told of each change of a machine's state
    _addresses: Any = field(default_factory=lambda: itertools.count(257))

    def now(self) -> datetime:
        """Return its own time, aware UTC."""
        return datetime.fromtimestamp(time.time(), UTC) + self.ahead

    def naive(self) -> datetime:
        """Return its own time as moto keeps times."""
        return self.now().replace(tzinfo=None)

    def later(self, key: str, state: str, then: Callable[[], None]) -> None:
        """Let `then` happen when the dwell of a state is over; it replaces what was on its way for `key`."""
        seconds = self.dwell_s.get(state, 0.0)
        never = datetime.max.replace(tzinfo=UTC)
        self.due[key] = (never if seconds == float("inf") else self.now() + timedelta(seconds=seconds), then)

    def settle(self) -> None:
        """Let everything happen whose time has come: each look does this first."""
        now = self.now()
        for key, (at, then) in list(self.due.items()):
            if at <= now and self.due.get(key, (None, None))[1] is then:
                del self.due[key]
                then()

    def hurry(self, key: str) -> None:
        """Let what is on its way for `key` happen now."""
        _, then = self.due.pop(key)
        then()

    def addresses(self) -> tuple[str, str]:
        """Return a new public and a new private address, both of this machine's loopback."""
        high, low = divmod(next(self._addresses), 256)
        return f"127.20.{high}.{low}", f"127.21.{high}.{low}"

    def set_state(self, instance: Any, name: str) -> None:
        """Write a state, and tell whoever watches."""
        instance._state.name, instance._state.code = name, STATES[name]
        for watcher in self.watchers:
            watcher(instance)

    def once(self, key: tuple[str, str, str], asked: Mapping[str, Any]) -> str | None:
        """Return what a token (region, action, token) made before; None when it is new.

        Raises IdempotentParameterMismatch for other parameters. That tokens do not span regions is documented;
        how long EC2 remembers one is not modelled.
        """
        found = self.tokens.get(key)
        if found is None:
            return None
        made, fingerprint = found
        if fingerprint != fingerprint_of(asked):
            from moto.ec2.exceptions import EC2ClientError

            sentence = (
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
            )
            raise EC2ClientError("IdempotentParameterMismatch", sentence)
        return made

    def made(self, key: tuple[str, str, str], asked: Mapping[str, Any], what: str) -> None:
        """Remember what a token has made."""
        self.tokens[key] = (what, fingerprint_of(asked))


def fingerprint_of(asked: Mapping[str, Any]) -> str:
    """Return all parameters but the token as one text."""
    return json.dumps(asked, sort_keys=True, default=str)
