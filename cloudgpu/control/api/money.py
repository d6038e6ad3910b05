"""The library's methods for money: what was spent, budgets, reports, exports, and the ledger behind them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from cloudgpu.control.api.namespace import Namespace

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


class Money(Namespace):
    """`connect().money`: costs, budgets, reports and exports, and the ledger that they are computed from."""

    def cost(self, **options: Unpack[CostOptions]) -> CostDocument:
        """Return what everything has cost so far, in groups, and what continues to cost. Asks no cloud.

        Raises InvalidRequest for an invalid group, period, time zone or currency.
        """
        from cloudgpu.control.cost.cost import cost_document
        from cloudgpu.control.inputs.periods import parse_cost

        return cost_document(
            self._session, parse_cost(self._session.settings, self._session.clock(), **options), days=True
        )

    def set_budget(
        self,
        name: str,
        amount: Decimal | float | str,
        period: str,
        *,
        replace: bool = False,
        **options: Unpack[BudgetChoices],
    ) -> BudgetSetDocument:
        """Set a budget of `amount` a `period`, in US dollars or `currency`, and return it with its status.

        `period` is day, week, month, total or rolling:30d; options are as on the command line (`scope="project=nlp"`).
        `replace` replaces a budget of this name. Raises InvalidRequest for an invalid option, and for a name that is
        taken, RoleNeeded for a member of a team.
        """
        from cloudgpu.control.budgets.commands import BudgetChoices, BudgetOptions, set_budget_document
        from cloudgpu.core.values.typed import check_keywords

        check_keywords("set_budget", options, BudgetChoices.__annotations__)
        return set_budget_document(
            self._session, BudgetOptions(name, str(amount), period, **options), overwrite=replace
        )

    def budgets(self) -> BudgetsDocument:
        """Return every budget, of the ledger and of files, with its status. Asks no cloud."""
        from cloudgpu.control.budgets.commands import list_budgets

        return list_budgets(self._session)

    def remove_budget(self, name: str) -> BudgetRemovedDocument:
        """Remove a budget from the ledger and return it. Raises InvalidRequest for an unknown name."""
        from cloudgpu.control.budgets.commands import remove_budget_of_name

        return remove_budget_of_name(self._session, name)

    def check_budgets(self, name: str | None = None) -> BudgetCheckDocument:
        """Evaluate the budgets (or one), and send alerts; sync first the accounts whose last sync is old.

        A budget that is exceeded raises nothing: it is named under `exhausted`, and `stops` has what it would stop.
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
        """Write the charges to a file as `focus`, `csv` or `json`; return how many, and their sum. Asks no cloud.

        Raises InvalidRequest for an invalid form or period, and for a file that cannot be written.
        """
        from cloudgpu.control.cost.exports import export, parse_export_format, parse_export_period

        bill_period = parse_export_period(self._session, since, until, tz)
        return export(self._session, parse_export_format(form), bill_period, Path(out))

    def reconcile(self, file: Path | str, provider: str | None = None) -> ReconcileDocument:
        """Compare the ledger with a cloud's own bill, a FOCUS export: the gap of each resource and its reasons.

        Raises InvalidRequest for a file that is not a FOCUS export, or in a currency without a rate. Changes nothing.
        """
        from cloudgpu.control.cost.reconcile import reconcile

        return reconcile(self._session, Path(file), provider)

    def report(
        self, to: Path | str | None = None, form: str = "html", **options: Unpack[ReportOptions]
    ) -> ReportDocument:
        """Return all that was spent, saved and wasted as one document; with `to`, also write the report there.

        `form` is html, md or json. Only its owner can read the file; it may replace an earlier report and nothing else.
        Options are as on the command line: `since="month"`. Raises InvalidRequest for an invalid option, and for a file
        that cannot be written. Asks no cloud.
        """
        from cloudgpu.control.cost.report import parse_report, report_document
        from cloudgpu.control.cost.report_files import parse_report_format, render_report, write_report

        report_format = parse_report_format(form)
        document = report_document(self._session, parse_report(self._session, **options))
        if to is not None:
            write_report(render_report(document, report_format), Path(to))
        return document

    def send_report(self, **options: Unpack[ReportOptions]) -> SentReportDocument:
        """Send a report to every receiver of alerts, in one attempt each; return who has accepted it.

        Options are those of `report`: `month="last"`. A receiver that does not accept it raises nothing: it is named
        under `failed`. No report is sent for a month without charges: `nothing_sent` says so. Raises InvalidRequest if
        no receiver is configured, MissingExtra without apprise.
        """
        from cloudgpu.control.cost.report import parse_report, report_document
        from cloudgpu.control.cost.report_delivery import send_report

        return send_report(self._session, report_document(self._session, parse_report(self._session, **options)))

    def verify(self) -> VerifyDocument:
        """Verify the ledger's hash chain. If a part of it is missing, sync every account and accept what is there.

        Raises LedgerUnavailable for a ledger that was altered, or if an account does not answer.
        """
        from cloudgpu.control.setup.ledger_admin import verify_document

        self._session.check_ledger_exists(self._client_session.environ)
        return verify_document(self._session, agree=self._session.report)

    def owners(self) -> OwnersDocument:
        """Return each recorded owner's name with its database user."""
        from cloudgpu.control.team.authorization import owners

        return owners(self._session)

    def assign_owner(self, owner: str, user: str) -> OwnersDocument:
        """Record the database user of an owner. Raises RoleNeeded for a member, InvalidRequest without a team."""
        from cloudgpu.control.team.authorization import assign_owner

        return assign_owner(self._session, owner, user)
