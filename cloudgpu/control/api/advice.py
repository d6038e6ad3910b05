"""Offers the verbs that compare and advise as methods of the library's face.

A comparison with a desktop goes either by the ledger, or by a price and a use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.advice.compare_request import CompareOptions, CompareRequest, parse_compare

if TYPE_CHECKING:
    from typing import Unpack

    from cloudgpu.control.advice.estimate_request import EstimateOptions
    from cloudgpu.control.advice.recommend_request import RecommendOptions
    from cloudgpu.control.cost.report import ReportOptions
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.market.estimate import EstimateDocument
    from cloudgpu.views.documents.market.recommend import RecommendDocument
    from cloudgpu.views.documents.money.compare import CompareDocument
    from cloudgpu.views.documents.money.rent_or_buy import CalculatedDocument, DesktopsDocument
    from cloudgpu.views.documents.money.report import ReportDocument, SentReportDocument


def comparison(session: Session, **asked: Unpack[CompareOptions]) -> CompareDocument | CalculatedDocument:
    """Return the comparison that was asked for; raise InvalidRequest that names the option of what cannot be."""
    return compared_as(session, parse_compare(session, **asked))


def compared_as(session: Session, request: CompareRequest) -> CompareDocument | CalculatedDocument:
    """Return the comparison that a wish asks for: without a ledger where it says what is rented."""
    if request.rented is not None:
        from cloudgpu.control.advice.rent_or_buy import calculated

        return calculated(session, request, request.rented)
    from cloudgpu.control.advice.compare import compared

    return compared(session, request)


class Advice:
    """What `cloudgpu.connect()` returns can do beside running machines: compare, estimate, recommend, report."""

    @property
    def _session(self) -> Session:
        raise NotImplementedError

    def compare(self, **asked: Unpack[CompareOptions]) -> CompareDocument | CalculatedDocument:
        """Return what an owned desktop would have cost for the same work, by the ledger, or by a price and a use.

        With `price`, `utilization` or `hours_per_day` no ledger is read: `compare(gpu="v100", utilization="15%")`.
        Each word is as on the command line; numbers may be numbers. Raises InvalidRequest for a word that cannot be.
        """
        return comparison(self._session, **asked)

    def desktops(self) -> DesktopsDocument:
        """Return every desktop that `compare` can name, your own and the shipped ones, with source and date."""
        from cloudgpu.control.advice.desktop_choice import desktops_listed

        return desktops_listed(self._session)

    def estimate(self, **asked: Unpack[EstimateOptions]) -> EstimateDocument:
        """Return what machines would cost on every provider, cheapest first: machine, disk and address. Asks no cloud.

        Each word is as on the command line: `gpu="l4"`, `hours_per_day=8`, `flops="3.1e20"`, `like="quiet-owl"`.
        Raises InvalidRequest for a word that cannot be, InstanceNotFound for a run that the ledger does not know.
        """
        from cloudgpu.control.advice.estimate import estimated
        from cloudgpu.control.advice.estimate_request import parse_estimate

        return estimated(self._session, parse_estimate(self._session.settings, self._session.clock(), **asked))

    def recommend(self, work: str | None = None, **asked: Unpack[RecommendOptions]) -> RecommendDocument:
        """Return which GPU for this work, to rent or to buy for a desktop, step by step with sources. Asks no cloud.

        Each word is as on the command line: `recommend("fine-tuning", parameters="7b", method="qlora")`; numbers may
        be numbers. Raises InvalidRequest for a word that cannot be.
        """
        from cloudgpu.control.advice.recommend import recommended

        return recommended(self._session, work, **asked)

    def report(
        self, to: Path | str | None = None, form: str = "html", **asked: Unpack[ReportOptions]
    ) -> ReportDocument:
        """Return all that was spent, saved and wasted as one document; with `to`, write the report there, too.

        `form` is html, md or json; a file is readable for its owner alone, and takes the place of an earlier report
        only. Each word is as on the command line: `since="month"`. Raises InvalidRequest for a word that cannot be,
        and for a file that cannot be written. Asks no cloud.
        """
        from cloudgpu.control.cost.report import parse_report, reported
        from cloudgpu.control.cost.report_files import form_of, rendered, write_report

        wanted = form_of(form)
        document = reported(self._session, parse_report(self._session, **asked))
        if to is not None:
            write_report(rendered(document, wanted), Path(to))
        return document

    def send_report(self, **asked: Unpack[ReportOptions]) -> SentReportDocument:
        """Send a report to every receiver of alerts, in one attempt each; return who has it and who has not.

        Each word is as for `report`: `month="last"`. A receiver that does not take it raises nothing: it is named
        under `failed`. Of a month in which nothing was billed nothing is sent: `nothing_sent` says so. Raises
        InvalidRequest where none is set, MissingExtra without apprise.
        """
        from cloudgpu.control.cost.report import parse_report, reported
        from cloudgpu.control.cost.report_delivery import sent_report

        return sent_report(self._session, reported(self._session, parse_report(self._session, **asked)))
