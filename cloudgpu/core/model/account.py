"""What an account has and may do: limits, regions, permissions, roles, a budget of the provider's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money


@dataclass(frozen=True, slots=True)
class Quota:
    """How much of a kind an account may run at once in a region. `limit` None: the provider did not say.

    `used` None: not known. `unit` is the provider's (`vCPU`, ...); `code` names it where it can be raised.
    """

    provider: str
    account: str
    region: str
    code: str
    name: str
    market: Market
    unit: str
    limit: float | None
    used: float | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """A region of an account, and the public endpoint whose round trip tells how far it is. `port` is TCP."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Permission:
    """An action of the provider's, whether this credential may do it (None: not known), and what needs it.

    `used_for` goes on after "needed to". `said` is why nothing is known. `needed`: nothing is launched without it.
    """

    action: str
    allowed: bool | None
    used_for: str
    said: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class RolePart:
    """A part of a machine role; `there`: it exists as it should be; `ours` False: somebody else's bears this name."""

    what: str
    name: str
    there: bool
    ours: bool


@dataclass(frozen=True, slots=True)
class MachineRole:
    """A role under which machines say when they were last in use, in the account that `where` names.

    `options` is what an account's table of config.toml says about it, so that launches give it to machines.
    """

    where: str
    parts: tuple[RolePart, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BudgetAlert:
    """A budget of the provider's own: it mails `emails` as a month of the whole account nears and passes `per_month`.

    It stops nothing, and needs nothing of ours alive.
    """

    per_month: Money
    emails: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Credit:
    """What is left of the money that was paid into an account in advance, by the provider's word of `as_of` (UTC).

    `hourly` is what the whole account spends an hour by that word, None where it says nothing of that. Where
    `threshold` is left, the provider deletes what is there. `page` is where a person pays in more.
    """

    left: Money
    as_of: datetime
    hourly: Money | None
    page: str
    threshold: Money = Money(0)  # noqa: RUF009  (a frozen value)
