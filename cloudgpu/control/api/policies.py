"""The verbs about policies, and whose an owner's name is, as methods of the library's face."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.api.money import Money

if TYPE_CHECKING:
    from cloudgpu.control.inputs.periods import Moment
    from cloudgpu.views.documents.automation.backtest import BacktestDocument
    from cloudgpu.views.documents.automation.policies import (
        PoliciesDocument,
        PolicyCheckDocument,
        PolicyDocument,
        PolicyOfMachineDocument,
        PublishedDocument,
        WithdrawnDocument,
    )
    from cloudgpu.views.documents.setup.ledger import OwnersDocument


class Policies(Money):
    """What `cloudgpu.connect()` returns can do about policies, and about who owns what in a lab."""

    def policies(self) -> PoliciesDocument:
        """Return every policy there is, and the lab's limits; one that cannot be read has its fault."""
        from cloudgpu.control.policies.commands import listed

        return listed(self._session)

    def policy(self, name: str | None = None) -> PolicyDocument:
        """Return what a policy says, rule by rule (None: the usual one); raise InvalidRequest for none such."""
        from cloudgpu.control.policies.commands import shown

        return shown(self._session, name or self._session.settings.policy)

    def explain_policy(self, name: str | None = None) -> PolicyOfMachineDocument:
        """Return which policy holds for a machine, why that one, and when each of its rules would act."""
        from cloudgpu.control.policies.commands import explained

        return explained(self._session, name)

    def check_policies(self, *files: str | Path) -> PolicyCheckDocument:
        """Return what was read: these files, or all that are not shipped; raise InvalidRequest for a fault."""
        from cloudgpu.control.policies.commands import checked

        return checked(self._session, [str(file) for file in files])

    def owners(self) -> OwnersDocument:
        """Return each owner's name that is recorded, with the database user whose it is."""
        from cloudgpu.control.team.law import owners

        return owners(self._session)

    def assign_owner(self, owner: str, user: str) -> OwnersDocument:
        """Record whose an owner's name is; raise RoleNeeded for a member, InvalidRequest without a team."""
        from cloudgpu.control.team.law import assign_owner

        return assign_owner(self._session, owner, user)

    def publish_policy(self, name_or_file: str | Path) -> PublishedDocument:
        """Publish a policy of yours, `limits`, or a file of either, for everybody who uses this ledger.

        Raises InvalidRequest for a file that is not there or has a fault, RoleNeeded for a member of a team.
        """
        from cloudgpu.config.policies.find import policy_paths
        from cloudgpu.control.team.published import publish

        return publish(self._session, str(name_or_file), policy_paths(self._session.home))

    def withdraw_policy(self, name: str) -> WithdrawnDocument:
        """Take back what is published under this name; raise InvalidRequest where nothing is, RoleNeeded."""
        from cloudgpu.control.team.published import withdraw

        return withdraw(self._session, name)

    def backtest(
        self,
        policy: str | Path,
        *,
        since: Moment = "30d",
        machine: str | None = None,
        every: timedelta | str = "10m",
    ) -> BacktestDocument:
        """Return what a policy (a name or a file) would have stopped, saved and killed, by what was recorded here.

        Raises InvalidRequest for a fault in the policy, InstanceNotFound for an unknown machine. Changes nothing.
        """
        from cloudgpu.control.policies.backtest import backtested

        return backtested(self._session, str(policy), since=since, machine=machine, every=every)
