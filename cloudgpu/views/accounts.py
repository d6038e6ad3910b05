"""Which accounts an answer is about, as the plain values that `-o json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudgpu.core.model.identity import QueriedAccount, Unanswered
    from cloudgpu.views.documents.parts import AccountAnswers


def queried_accounts_value(queried: Iterable[QueriedAccount] = (), closed: Iterable[Unanswered] = ()) -> AccountAnswers:
    """Return `asked`, the accounts that were asked, and `not_asked`: those a credential here names and does not open.

    Both are empty for an answer from the ledger alone.
    """
    return {
        "queried": [{"account": one.account, "provider": one.provider} for one in queried],
        "not_queried": [{"scope": gap.scope, "why": gap.why} for gap in closed],
    }
