"""What an account has and may do: quotas, regions, permissions, roles, and the provider's own budget and credit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money


@dataclass(frozen=True, slots=True)
class Quota:
    """How much of something an account may run at once in a region. `limit` None: the provider did not say.

    `used` None: not known. `unit` is the provider's (`vCPU`, ...); `code` is the quota's id in a request to raise it.
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
    """A region of an account, and a public endpoint in it whose round-trip time is measured. `port` is TCP."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Permission:
    """An action of the provider, whether these credentials allow it (None: not known), and what needs it.

    `used_for` completes the sentence "needed to ...". `unknown_reason` is why it is not known whether it is allowed.
    `needed`: nothing can be launched without it.
    """

    action: str
    allowed: bool | None
    used_for: str
    unknown_reason: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class RolePart:
    """A resource that is part of a role. `exists`: it is there and set up as cloudgpu would set it up.

    `is_ours` False: there is one of this name that cloudgpu did not make.
    """

    description: str
    name: str
    exists: bool
    is_ours: bool


@dataclass(frozen=True, slots=True)
class ProviderRole:
    """A role of machines, with which they report when they were last in use, and the account that it is in.

    The role of the provider's timers, with which they stop and end machines, is described by the same fields. `options`
    are the settings of the account in config.toml by which launches attach the role to machines or timers.
    """

    account: str
    parts: tuple[RolePart, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BudgetAlert:
    """A budget at the provider: it mails `emails` as the whole account's cost of a month nears and passes `per_month`.

    It stops no machine, and works while cloudgpu does not run.
    """

    per_month: Money
    emails: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PrepaidCredit:
    """The prepaid credit that an account has left, as the provider reported it at `as_of` (UTC).

    `spent_per_hour` is what the whole account spends, None where the provider does not say. When credit falls to
    `threshold`, the provider stops what runs and deletes what the account has, at once or later. `payment_page` is the
    URL where a person adds credit.
    """

    remaining: Money
    as_of: datetime
    spent_per_hour: Money | None
    payment_page: str
    threshold: Money = Money(0)  # noqa: RUF009  (a frozen value)
