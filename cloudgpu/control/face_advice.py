"""The verbs that compare and advise, as methods of the library's face."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Unpack

    from cloudgpu.control.compare_asked import AskedOfCompare
    from cloudgpu.control.estimate_asked import AskedOfEstimate
    from cloudgpu.control.recommend_asked import AskedOfRecommend
    from cloudgpu.control.report_asked import AskedOfReport
    from cloudgpu.control.session import Session

Document = dict[str, Any]


class Advice:
    """What `cloudgpu.connect()` returns can do beside running machines: compare, estimate, recommend, report."""

    @property
    def _session(self) -> Session:
        raise NotImplementedError

    def compare(self, **asked: Unpack[AskedOfCompare]) -> Document:
        """Return what an owned desktop would have cost for the same work, by the ledger, or by a price and a use.

        With `price`, `utilization` or `hours_per_day` no ledger is read: `compare(gpu="v100", utilization="15%")`.
        Each word is as on the command line; numbers may be numbers. Raises InvalidRequest for a word that cannot be.
        """
        from cloudgpu.control.comparing import comparison

        return comparison(self._session, **asked)

    def desktops(self) -> Document:
        """Return every desktop that `compare` can name, your own and the shipped ones, with source and date."""
        from cloudgpu.control.compare_desktop import desktops_listed

        return desktops_listed(self._session)

    def estimate(self, **asked: Unpack[AskedOfEstimate]) -> Document:
        """Return what machines would cost on every provider, cheapest first: machine, disk and address. Asks no cloud.

        Each word is as on the command line: `gpu="l4"`, `hours_per_day=8`, `flops="3.1e20"`, `like="quiet-owl"`.
        Raises InvalidRequest for a word that cannot be, InstanceNotFound for a run that the ledger does not know.
        """
        from cloudgpu.control.estimate import estimated
        from cloudgpu.control.estimate_asked import estimate_wish

        return estimated(self._session, estimate_wish(self._session.settings, self._session.clock(), **asked))

    def recommend(self, work: str | None = None, **asked: Unpack[AskedOfRecommend]) -> Document:
        """Return which GPU for this work, to rent or to buy for a desktop, step by step with sources. Asks no cloud.

        Each word is as on the command line: `recommend("fine-tuning", parameters="7b", method="qlora")`; numbers may
        be numbers. Raises InvalidRequest for a word that cannot be.
        """
        from cloudgpu.control.recommend import recommended

        return recommended(self._session, work, **asked)

    def report(self, to: Path | str | None = None, form: str = "html", **asked: Unpack[AskedOfReport]) -> Document:
        """Return all that was spent, saved and wasted as one document; with `to`, write the report there, too.

        `form` is html, md or json; a file is readable for its owner alone, and takes the place of an earlier report
        only. Each word is as on the command line: `since="month"`. Raises InvalidRequest for a word that cannot be,
        and for a file that cannot be written. Asks no cloud.
        """
        from cloudgpu.control.report import reported
        from cloudgpu.control.report_asked import report_wish
        from cloudgpu.control.report_file import form_of, rendered, write_report

        wanted = form_of(form)
        document = reported(self._session, report_wish(self._session, **asked))
        if to is not None:
            write_report(rendered(document, wanted), Path(to))
        return document

    def send_report(self, **asked: Unpack[AskedOfReport]) -> Document:
        """Send a report to every receiver of alerts, in one attempt each; return who has it and who has not.

        Each word is as for `report`: `month="last"`. A receiver that does not take it raises nothing: it is named
        under `failed`. Of a month in which nothing was billed nothing is sent: `nothing_sent` says so. Raises
        InvalidRequest where none is set, MissingExtra without apprise.
        """
        from cloudgpu.control.report import reported
        from cloudgpu.control.report_asked import report_wish
        from cloudgpu.control.report_send import sent_report

        return sent_report(self._session, reported(self._session, report_wish(self._session, **asked)))
