"""What a provider may be able to say and change of an account: one small protocol for each ability, with its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from cloudgpu.core.model.account import BudgetAlert, Permission, PrepaidCredit, ProviderRole, Quota, Region
from cloudgpu.core.model.identity import AccountIdentity


@dataclass(frozen=True, slots=True)
class AccountFinding:
    """The result of one check of an account: `is_ok`, or a problem and its remedy (`next`); None: it was not possible.

    `what` names the check, `message` is its result as text. `needed`: while this check fails, nothing can be launched.
    """

    what: str
    is_ok: bool | None
    message: str
    next: str = ""
    needed: bool = False


@runtime_checkable
class Examines(Protocol):
    """The account can be checked, without changing it, for what blocks cloudgpu or makes it less safe."""

    def findings(self, region: str | None = None) -> Sequence[AccountFinding]:
        """Return the result of every check, good or not: a service that is off, a rule open to all. Reads only."""


@runtime_checkable
class NarrowsSsh(Protocol):
    """One rule of the account opens SSH on all of its machines, to everybody by default; it can be narrowed."""

    def ssh_sources(self) -> Sequence[str]:
        """Return the networks (CIDR) from which SSH can be reached by the account's rules. Reads only."""

    def narrow_ssh(self, cidrs: Sequence[str]) -> None:
        """Let SSH be reached from these networks alone, on every machine of the account. Idempotent."""


@runtime_checkable
class Registers(Protocol):
    """The account has no identity until cloudgpu stores one there: launches and `init` do that, reads never."""

    def is_registered(self) -> bool:
        """Say whether the account has an identity. Reads only."""

    def register(self) -> AccountIdentity:
        """Store the identity where it is missing, and return what `identity` returns from then on. Idempotent.

        It is the one that `identity` has returned here before, unless another home stored one in between.
        """


@runtime_checkable
class HasQuota(Protocol):
    """The account's limits can be read."""

    def quotas(self, region: str) -> Sequence[Quota]:
        """Return the limits on machines with GPUs in a region."""

    def quota_page(self, region: str, code: str) -> str:
        """Return the address of the provider's page on which a person requests a higher limit. Sends nothing."""


@runtime_checkable
class RaisesQuota(HasQuota, Protocol):
    """A higher limit can be requested through the API, without the provider's page."""

    def request_quota(self, region: str, code: str, limit: float) -> str:
        """Request a higher limit; return the request's id. Raises InvalidRequest."""


@runtime_checkable
class HasRegions(Protocol):
    """The account has regions that can be listed."""

    def regions(self) -> Sequence[Region]:
        """Return the regions that this account uses."""


@runtime_checkable
class ChecksPermissions(Protocol):
    """What the credential permits can be checked without doing it."""

    def permissions(self, region: str | None = None) -> Sequence[Permission]:
        """Return every action that cloudgpu uses and whether it is allowed. Changes nothing."""


@dataclass(frozen=True, slots=True)
class Login:
    """A credential described in words (`what`), never the credential itself, and how long it lasts.

    `lasts`: True: it works on without a user, as a long-lived key or one that renews itself; False: somebody has to
    renew it; None: not known. `until` is when it expires unless it is renewed; None: it does not, or that is not known.
    """

    what: str
    until: datetime | None
    lasts: bool | None


@runtime_checkable
class HasLogin(Protocol):
    """The provider can say how long the credential lasts while nobody renews it."""

    def login(self) -> Login:
        """Return what the credential is and how long it lasts. Changes nothing. Raises AuthFailed for none."""


@runtime_checkable
class HasMachineRole(Protocol):
    """Machines can be given a role, with which they may write when they were last in use, and nothing else.

    `document` is the text of the role's permission policy.
    """

    def machine_role(self, document: str) -> ProviderRole:
        """Return the state of the role. Changes nothing."""

    def make_machine_role(self, document: str) -> None:
        """Create what is missing of it. Idempotent. Raises InvalidRequest where another role has its name."""

    def remove_machine_role(self) -> None:
        """Delete what cloudgpu made of it. Idempotent. Raises InvalidRequest for what the provider does not delete."""


@runtime_checkable
class HasTimerRole(Protocol):
    """The provider's timers act with a role that may stop and terminate machines of cloudgpu, and nothing else.

    `document` is the text of the role's permission policy.
    """

    def timer_role(self, document: str) -> ProviderRole:
        """Return the state of the role. Changes nothing."""

    def make_timer_role(self, document: str) -> None:
        """Create what is missing of it. Idempotent. Raises InvalidRequest where another role has its name."""

    def remove_timer_role(self) -> None:
        """Delete what cloudgpu made of it. Idempotent. Timers that are set stay, and cannot act any more."""


@runtime_checkable
class HasBudgetAlert(Protocol):
    """The provider itself can send mail when the account costs too much, even if nothing of cloudgpu runs."""

    def budget_alert(self) -> BudgetAlert | None:
        """Return the alert of cloudgpu, None for none; without `emails` where its mails were changed. Reads only."""

    def set_budget_alert(self, alert: BudgetAlert) -> None:
        """Create the alert of cloudgpu, or replace it. Idempotent."""

    def remove_budget_alert(self) -> None:
        """Delete the alert of cloudgpu. Idempotent."""


@runtime_checkable
class ReadsCredit(Protocol):
    """The account may be prepaid, and its balance can be read."""

    def credit(self) -> PrepaidCredit | None:
        """Return the balance now; None for an account that is not prepaid.

        One read, changes nothing. Raises AuthFailed, ProviderUnavailable.
        """
