"""Asks for machines' own word of when they were last in use, where a listing does not tell it: no SSH is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cloudgpu.control.identity import by_account
from cloudgpu.control.observe import has_moved_on, not_before, told_itself
from cloudgpu.core.reaper.evidence import AHEAD
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import TellsActivity

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

Row = dict[str, Any]
Word = datetime | CloudgpuError | None  # when it was in use, why that is not known, or that it has said nothing yet


def heard_of(session: Session, rows: Sequence[Row], *, keep: bool = True) -> dict[str, Word]:
    """Return what these machines say of their use, by id: one call for each; without those whose listing tells it.

    What is news is written into the ledger, unless `keep` is false. Raises LedgerUnavailable, and nothing else.
    """
    accounts, _ = by_account(session, rows)  # the look has named the others
    askers = [(session.provider(name), some) for name, some in accounts.items()]
    groups = [(asker, some) for asker, some in askers if isinstance(asker, TellsActivity)]
    if not groups:
        return {}
    with Pool(len(groups)) as pool:
        answers = pool.map(lambda group: _words(*group), groups)
    words = {machine: _plausible(session, word) for answer in answers for machine, word in answer.items()}
    if keep:
        _write(session, rows, words)
    return words


def _words(asker: TellsActivity, rows: Sequence[Row]) -> dict[str, Word]:
    answers = _answers(asker, [row["provider_id"] for row in rows])
    return {row["id"]: answers.get(row["provider_id"]) for row in rows}


def _answers(asker: TellsActivity, ids: Sequence[str]) -> Mapping[str, Word]:
    try:
        return asker.activity(ids)
    except CloudgpuError as fault:
        return dict.fromkeys(ids, fault)
    except Exception as bug:  # noqa: BLE001  (one provider's defect keeps no machine of another from its end)
        why = f"it could not be asked ({type(bug).__name__}: {bug})"
        return dict.fromkeys(ids, ProviderUnavailable(why, field="provider"))


def _plausible(session: Session, word: Word) -> Word:
    """Return the word; none where the machine's clock is so far ahead that it says nothing."""
    return None if isinstance(word, datetime) and word - session.clock() > AHEAD else word


def _write(session: Session, rows: Sequence[Row], words: Mapping[str, Word]) -> None:
    drafts = []
    for row in rows:
        word, known = words.get(row["id"]), row["last_active"]
        if isinstance(word, datetime) and has_moved_on(from_iso(known) if known else None, word):
            drafts.append(told_itself(row, word, not_before(row, session.clock())))
    if drafts:
        session.ledger.append(drafts)
