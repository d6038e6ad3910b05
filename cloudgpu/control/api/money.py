"""What the library does about money: what was spent, what may be, reports, exports, and the ledger behind them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from cloudgpu.control.api.capability import Capability

if TYPE_CHECKING:
    from cloudgpu.control.budgets.commands import BudgetChoices
    from cloudgpu.control.cost.report import ReportOptions
    from cloudgpu.control.inputs.periods import CostOptions, Moment
    from cloudgpu.views.documents.money.budgets import (
        BudgetCheckDocument,
        BudgetRemovedDocument,
        BudgetsDocument,
        BudgetSetDocument,
    )
    from cloudgpu.views.documents.money.cost import CostDocument
    from cloudgpu.views.documents.money.reconcile import ExportDocument, ReconcileDocument
    from cloudgpu.views.documents.money.report import ReportDocument, SentReportDocument
    from cloudgpu.views.documents.setup.ledger import OwnersDocument, VerifyDocument


class Money(Capability):
    """`connect().money`: what everything has cost, what it may cost, and the ledger that says so."""

    def cost(self, **asked: Unpack[CostOptions]) -> CostDocument:
        """Return what everything has cost so far, in groups, and what goes on costing. Asks no cloud.

        Raises InvalidRequest for a group, period, time zone or currency that cannot be.
        """
        from cloudgpu.control.cost.cost import costs
        from cloudgpu.control.inputs.periods import parse_cost

        return costs(self._session, parse_cost(self._session.settings, self._session.clock(), **asked), days=True)

    def set_budget(
        self,
        name: str,
        amount: Decimal | float | str,
        period: str,
        *,
        replace: bool = False,
        **asked: Unpack[BudgetChoices],
    ) -> BudgetSetDocument:
        """Set a budget of `amount` US dollars a `period`, and return it with its status.

        `period` is day, week, month, total or rolling:30d; the rest is as on the command line (`scope="project=nlp"`).
        `replace` sets a new one in place of one of this name. Raises InvalidRequest for a word that cannot be read, and
        for a name that is taken, RoleNeeded for a member of a team.
        """
        from cloudgpu.control.budgets.commands import BudgetChoices, BudgetOptions, set_value
        from cloudgpu.core.values.typed import check_keywords

        check_keywords("set_budget", asked, BudgetChoices.__annotations__)
        return set_value(self._session, BudgetOptions(name, str(amount), period, **asked), overwrite=replace)

    def budgets(self) -> BudgetsDocument:
        """Return every budget, of the ledger and of files, with its status. Asks no cloud."""
        from cloudgpu.control.budgets.commands import list_budgets

        return list_budgets(self._session)

    def remove_budget(self, name: str) -> BudgetRemovedDocument:
        """Take a budget of the ledger away; raise InvalidRequest for one that is not there."""
        from cloudgpu.control.budgets.commands import remove_budget_of_name

        return remove_budget_of_name(self._session, name)

    def check_budgets(self, name: str | None = None) -> BudgetCheckDocument:
        """Judge the budgets (or one), after a look where the last one is old, and send alerts; return what was found.

        A budget that is exhausted raises nothing: it is named under `exhausted`, and `stops` is what it would do.
        """
        from cloudgpu.control.budgets.commands import check_budgets

        return check_budgets(self._session, name)

    def export(
        self,
        out: Path | str,
        form: str = "focus",
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        tz: str | None = None,
    ) -> ExportDocument:
        """Write the bill to a file as `focus`, `csv` or `json`, and return what was written. Asks no cloud.

        Raises InvalidRequest for a form or a period that cannot be, and for a file that cannot be written.
        """
        from cloudgpu.control.cost.exports import export, parse_bill_format, parse_period

        span = parse_period(self._session, since, until, tz)
        return export(self._session, parse_bill_format(form), span, Path(out))

    def reconcile(self, file: Path | str, provider: str | None = None) -> ReconcileDocument:
        """Return the ledger beside a cloud's own bill, a FOCUS export: the gap of each resource and its reasons.

        Raises InvalidRequest for a file that is no such export, or in a currency without a rate. Changes nothing.
        """
        from cloudgpu.control.cost.reconcile import reconcile

        return reconcile(self._session, Path(file), provider)

    def report(
        self, to: Path | str | None = None, form: str = "html", **asked: Unpack[ReportOptions]
    ) -> ReportDocument:
        """Return all that was spent, saved and wasted as one document; with `to`, write the report there, too.

        `form` is html, md or json; a file is readable for its owner alone, and takes the place of an earlier report
        only. Each word is as on the command line: `since="month"`. Raises InvalidRequest for a word that cannot be,
        and for a file that cannot be written. Asks no cloud.
        """
        from cloudgpu.control.cost.report import parse_report, report_document
        from cloudgpu.control.cost.report_files import parse_report_format, render_report, write_report

        wanted = parse_report_format(form)
        document = report_document(self._session, parse_report(self._session, **asked))
        if to is not None:
            write_report(render_report(document, wanted), Path(to))
        return document

    def send_report(self, **asked: Unpack[ReportOptions]) -> SentReportDocument:
        """Send a report to every receiver of alerts, in one attempt each; return who has it and who has not.

        Each word is as for `report`: `month="last"`. A receiver that does not take it raises nothing: it is named
        under `failed`. Of a month in which nothing was billed nothing is sent: `nothing_sent` says so. Raises
        InvalidRequest where none is set, MissingExtra without apprise.
        """
        from cloudgpu.control.cost.report import parse_report, report_document
        from cloudgpu.control.cost.report_delivery import send_report

        return send_report(self._session, report_document(self._session, parse_report(self._session, **asked)))

    def verify(self) -> VerifyDocument:
        """Recompute the ledger's chain; when a part was missing, ask every account and settle it.

        Raises LedgerUnavailable for a ledger that was altered, or when an account does not answer.
        """
        from cloudgpu.control.setup.ledger_admin import verify_document

        self._session.check_ledger_exists(self._opened.environ)
        return verify_document(self._session, agree=self._session.report)

    def owners(self) -> OwnersDocument:
        """Return each owner's name that is recorded, with the database user whose it is."""
        from cloudgpu.control.team.authorization import owners

        return owners(self._session)

    def assign_owner(self, owner: str, user: str) -> OwnersDocument:
        """Record whose an owner's name is; raise RoleNeeded for a member, InvalidRequest without a team."""
        from cloudgpu.control.team.authorization import assign_owner

        return assign_owner(self._session, owner, user)
