"""Calls something for several machines, or groups of them, in parallel, each in a session of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cloudgpu.control.session.session import Session
from cloudgpu.parallel import Pool

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def call_for_each(
    session: Session, call: Callable[[Session, Item], Answer], items: Sequence[Item], max_parallel: int, what: str = ""
) -> list[Answer]:
    """Return what `call` returns for each item, in their order; `max_parallel` at a time, each in its own session.

    A single item needs no thread, and no session of its own. `what` names the items in the plural. Raises the first
    error.
    """
    if len(items) < 2:  # noqa: PLR2004
        return [call(session, item) for item in items]

    def call_in_own_session(item: Item) -> Answer:
        with session.for_thread() as thread_session:
            return call(thread_session, item)

    with Pool(max_parallel, what) as pool:
        return list(pool.map(call_in_own_session, items))
