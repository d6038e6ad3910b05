"""Which accounts an answer is about, as the plain values that `-o json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudgpu.core.model.identity import Asked, Unanswered


def asked_value(asked: Iterable[Asked] = (), closed: Iterable[Unanswered] = ()) -> dict[str, list[dict[str, Any]]]:
    """Return `asked`, the accounts that were asked, and `not_asked`: those a credential here names and does not open.

    Both are empty for an answer from the ledger alone.
    """
    return {
        "asked": [{"account": one.account, "provider": one.provider} for one in asked],
        "not_asked": [{"scope": gap.scope, "why": gap.why} for gap in closed],
    }
