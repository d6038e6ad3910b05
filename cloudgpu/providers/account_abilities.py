"""What a provider may be able to say and change of an account: one small protocol per ability, with its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from cloudgpu.core.model.account import BudgetAlert, Credit, MachineRole, Permission, Quota, Region
from cloudgpu.core.model.identity import AccountIdentity


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was looked at in an account: `good`, or why not and what to do; None: it could not be looked at.

    `needed`: nothing is launched while it is so.
    """

    what: str
    good: bool | None
    says: str
    next: str = ""
    needed: bool = False


@runtime_checkable
class Examines(Protocol):
    """What in an account stands in the way of cloudgpu, or makes it less safe, can be told without changing it."""

    def findings(self, region: str | None = None) -> Sequence[Finding]:
        """Return what was looked at, good or not: a service that is off, a rule that is open to all. Reads only."""


@runtime_checkable
class NarrowsSsh(Protocol):
    """The account opens SSH on all of its machines at once, to everybody at first; it can be narrowed when asked."""

    def ssh_sources(self) -> Sequence[str]:
        """Return the networks (CIDR) from which SSH can be reached by the account's rules. Reads only."""

    def narrow_ssh(self, cidrs: Sequence[str]) -> None:
        """Let SSH be reached from these networks alone, on every machine of the account. Idempotent."""


@runtime_checkable
class Registers(Protocol):
    """The account has nothing to be known by until something is put there: launches and `init` do, looks never."""

    def is_registered(self) -> bool:
        """Say whether it is there. Reads only."""

    def register(self) -> AccountIdentity:
        """Put it there where it is missing, and return what `identity` says from then on. Idempotent.

        Where nobody else did it meanwhile, that is what `identity` has said here before.
        """


@runtime_checkable
class HasQuota(Protocol):
    """The account's limits can be read."""

    def quotas(self, region: str) -> Sequence[Quota]:
        """Return the limits on machines with GPUs in a region."""

    def quota_page(self, region: str, code: str) -> str:
        """Return where a person asks for a higher limit: the address of the provider's own page. Asks nothing."""


@runtime_checkable
class RaisesQuota(HasQuota, Protocol):
    """A higher limit can be asked for here, without a person at the provider's page."""

    def request_quota(self, region: str, code: str, limit: float) -> str:
        """Ask the provider for a higher limit; return the request's id. Raises InvalidRequest."""


@runtime_checkable
class HasRegions(Protocol):
    """The account has regions, each with a public endpoint."""

    def regions(self) -> Sequence[Region]:
        """Return the regions that this account uses."""


@runtime_checkable
class ChecksPermissions(Protocol):
    """What the credential may do can be asked without doing it."""

    def permissions(self, region: str | None = None) -> Sequence[Permission]:
        """Return every action that cloudgpu uses and whether it is allowed. Changes nothing."""


@dataclass(frozen=True, slots=True)
class Login:
    """A credential as words, never the credential itself, and how long it lasts.

    `lasts`: it needs nobody to renew it (True), somebody has to (False), or that is not known (None). `until` is when
    it ends unless it is renewed; None where it does not, or nobody can say.
    """

    what: str
    until: datetime | None
    lasts: bool | None


@runtime_checkable
class HasLogin(Protocol):
    """How long the credential lasts with nobody at the keyboard can be told."""

    def login(self) -> Login:
        """Return what the credential is and how long it lasts. Changes nothing. Raises AuthFailed for none."""


@runtime_checkable
class HasMachineRole(Protocol):
    """Machines can be given a role: under it they write when they were last in use, and may do nothing else.

    `document` is the text of the permission document that says so.
    """

    def machine_role(self, document: str) -> MachineRole:
        """Return what there is of the role. Changes nothing."""

    def make_machine_role(self, document: str) -> None:
        """Make what is missing of it. Idempotent. Raises InvalidRequest where somebody else's bears its name."""

    def remove_machine_role(self) -> None:
        """Take away what is ours of it. Idempotent. Raises InvalidRequest for what the provider keeps."""


@runtime_checkable
class HasTimerRole(Protocol):
    """The provider's timers act under a role: it may stop and end machines of cloudgpu, and do nothing else.

    `document` is the text of the permission document that says so.
    """

    def timer_role(self, document: str) -> MachineRole:
        """Return what there is of the role. Changes nothing."""

    def make_timer_role(self, document: str) -> None:
        """Make what is missing of it. Idempotent. Raises InvalidRequest where somebody else's bears its name."""

    def remove_timer_role(self) -> None:
        """Take away what is ours of it. Idempotent. Timers that are set stay, and do nothing any more."""


@runtime_checkable
class HasBudgetAlert(Protocol):
    """The provider itself can mail when the account costs too much: a backstop for when nothing of ours lives."""

    def budget_alert(self) -> BudgetAlert | None:
        """Return ours, None for none. Changes nothing. One whose mails are not all as we set them names no `emails`."""

    def set_budget_alert(self, alert: BudgetAlert) -> None:
        """Make ours so, in place of what there is of it. Idempotent."""

    def remove_budget_alert(self) -> None:
        """Take ours away. Idempotent."""


@runtime_checkable
class ReadsCredit(Protocol):
    """The account may be paid in advance, and what is left can be read."""

    def credit(self) -> Credit | None:
        """Return what is left now; None for an account that is not paid in advance.

        One read, changes nothing. Raises AuthFailed, ProviderUnavailable.
        """
