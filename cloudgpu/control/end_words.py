"""Says what an end takes away, machine by machine, before anybody is asked whether to end them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.abilities import LeavesFiles

if TYPE_CHECKING:
    from cloudgpu.control.session import Session
    from cloudgpu.providers.base import Provider

Row = dict[str, Any]


def end_words(session: Session, rows: Sequence[Row]) -> str:
    """Return, in whole sentences, what ending these machines deletes and what it leaves. Asks nobody."""
    said: dict[str, list[Row]] = {}
    for row in rows:
        said.setdefault(_left(session, row), []).append(row)
    if len(said) == 1:
        (means,) = said
        return " ".join((means or _deleted(["it" if len(rows) == 1 else "them"]), *_volumes(rows)))
    each = (
        f"{_names(some)}: {means}" if means else _deleted([row["name"] for row in some]) for means, some in said.items()
    )
    return " ".join((*each, *_volumes(rows)))


def _left(session: Session, row: Row) -> str:
    """Return what its provider says that an end leaves; empty where all that is on the machine goes."""
    for name in (row["account"], *session.settings.accounts, row["provider"]):
        with suppress(CloudgpuError):
            provider: Provider = session.provider(name)
            if provider.kind == row["provider"]:
                return provider.end_means if isinstance(provider, LeavesFiles) else ""
    return ""


def _deleted(names: Sequence[str]) -> str:
    return f"What is on {' and '.join(names)} is deleted."


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(row["name"] for row in rows)


def _volumes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield that volumes stay, where a machine has one."""
    names = sorted({row["setup"]["volume"]["name"] for row in rows if (row["setup"] or {}).get("volume")})
    if names:
        yield f"The volume{'s'[: len(names) > 1]} {' and '.join(names)} stay{'s'[: len(names) == 1]}."
