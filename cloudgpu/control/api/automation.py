"""The library's methods for unattended operation: runs of the reaper, policies, orphaned resources."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.api.namespace import Namespace

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
    from cloudgpu.views.documents.automation.reap import ReapDocument
    from cloudgpu.views.documents.machines.storage import OrphansDocument
    from cloudgpu.views.documents.setup.doctor import DoctorDocument


class Automation(Namespace):
    """`connect().automation`: runs of the reaper, policies, orphaned resources, and checks of this computer."""

    def reap(
        self,
        *,
        dry_run: bool = False,
        explain: bool = False,
        policy: str | None = None,
        max_stops: int | None = None,
        nightly: bool = False,
    ) -> ReapDocument:
        """Run the reaper once and return what was found, decided and done; with `dry_run` change nothing.

        An account that did not answer, or a stop that is not confirmed, raises nothing: `exit_code` is 8 or 9 then.
        Raises InvalidRequest, before anything is done, for an invalid policy or budget.
        """
        from cloudgpu.control.jobs.watch import continue_jobs
        from cloudgpu.control.reaper.reaper import ReapOptions, reap
        from cloudgpu.core.reaper.decide import MAX_IDLE_STOPS
        from cloudgpu.views.reaper import run_document

        self._session.check_ever_used(self._client_session.environ)
        self._session.ledger.check_in_use()
        max_idle_stops = MAX_IDLE_STOPS if max_stops is None else max_stops
        options = ReapOptions(dry_run=dry_run, policy=policy, max_stops=max_idle_stops, sweep=nightly)
        run = continue_jobs(self._session, reap(self._session, options), self._client_session.environ)
        return run_document(run, explain=explain)

    def orphans(
        self,
        *,
        clean: bool = False,
        older_than: timedelta | str | None = None,
        snapshot: bool = False,
        stopped_older_than: timedelta | str | None = None,
        region: str | None = None,
    ) -> OrphansDocument:
        """Return the orphaned resources of launches, in all regions; with `clean`, remove them first.

        Accounts and regions that did not answer are in the document. Raises the gravest error if something could not
        be removed: StopUnproved for what costs money.
        """
        from cloudgpu.control.resources.orphans import build_orphans_document, cleanup_options, survey

        options = cleanup_options(
            clean=clean, snapshot=snapshot, older_than=older_than, stopped_older_than=stopped_older_than
        )
        surveyed = survey(self._session, options, region=region)
        if not clean:
            return build_orphans_document(surveyed)
        from cloudgpu.control.resources.cleanup import clean as remove, clean_document

        document, error = clean_document(surveyed, remove(self._session, surveyed.orphans, snapshot=snapshot))
        if error:
            raise error
        return document

    def doctor(self) -> DoctorDocument:
        """Check this computer, the settings, the ledger and every account; `ok` says that no check failed."""
        from cloudgpu.control.setup.doctor import doctor_document, examine

        return doctor_document(examine(self._client_session.environ, clock=self._session.clock))

    def policies(self) -> PoliciesDocument:
        """Return every policy, and the lab's limits; an invalid policy has its error."""
        from cloudgpu.control.policies.commands import list_policies

        return list_policies(self._session)

    def policy(self, name: str | None = None) -> PolicyDocument:
        """Return the rules of a policy (None: the default policy). Raises InvalidRequest for an unknown name."""
        from cloudgpu.control.policies.commands import show_policy

        return show_policy(self._session, name or self._session.settings.policy)

    def explain_policy(self, name: str | None = None) -> PolicyOfMachineDocument:
        """Return which policy applies to a machine, why that one, and when each of its rules would act."""
        from cloudgpu.control.policies.commands import explain_policy

        return explain_policy(self._session, name)

    def check_policies(self, *files: str | Path) -> PolicyCheckDocument:
        """Check these policy files, or all that are not shipped; return them. Raises InvalidRequest for an error."""
        from cloudgpu.control.policies.commands import check_policies

        return check_policies(self._session, [str(file) for file in files])

    def publish_policy(self, name_or_file: str | Path) -> PublishedDocument:
        """Publish one of your policies, `limits`, or a file of either, for everybody who uses this ledger.

        Raises InvalidRequest for a file that is not there or has an error, RoleNeeded for a member of a team.
        """
        from cloudgpu.config.policies.find import policy_paths
        from cloudgpu.control.team.published import publish

        return publish(self._session, str(name_or_file), policy_paths(self._session.home))

    def withdraw_policy(self, name: str) -> WithdrawnDocument:
        """Withdraw the policy published under this name. Raises InvalidRequest if there is none, RoleNeeded."""
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
        """Return what a policy (a name or a file) would have stopped, saved and interrupted, by the recorded samples.

        Raises InvalidRequest for an error in the policy, InstanceNotFound for an unknown machine. Changes nothing.
        """
        from cloudgpu.control.policies.backtest import build_backtest_document

        return build_backtest_document(self._session, str(policy), since=since, machine=machine, every=every)
