"""A comparison with a desktop in either way: by the ledger, or by a price and a use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.control.compare_asked import AskedOfCompare, CompareWish, compare_wish

if TYPE_CHECKING:
    from typing import Unpack

    from cloudgpu.control.session import Session

Document = dict[str, Any]


def comparison(session: Session, **asked: Unpack[AskedOfCompare]) -> Document:
    """Return the comparison that was asked for; raise InvalidRequest that names the option of what cannot be."""
    return compared_as(session, compare_wish(session, **asked))


def compared_as(session: Session, wish: CompareWish) -> Document:
    """Return the comparison that a wish asks for: without a ledger where it says what is rented."""
    if wish.rented is not None:
        from cloudgpu.control.calculated import calculated

        return calculated(session, wish, wish.rented)
    from cloudgpu.control.compare import compared

    return compared(session, wish)
