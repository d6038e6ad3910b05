"""The lab's judge of outages: what waited in the members' outboxes stands in the ledger once, in its order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Waiting = Mapping[Path, Sequence[str]]  # an outbox, and what its lines are known by


def waiting(homes: Iterable[Path]) -> Waiting:
    """Return what waits in these homes, read from the files: each line is a hash and a JSON object."""
    files = sorted(path for home in homes for path in home.rglob("*.outbox"))
    return {path: [_dedupe(line) for line in path.read_text().splitlines()] for path in files}


def outbox_harm(before: Waiting, homes: Iterable[Path], events: Iterable[Any]) -> Iterator[str]:
    """Yield which outboxes are not empty now that the ledger is back, and which lines do not stand in it as they did.

    `events` are the ledger's lines; `before` is what waited.
    """
    for path, left in waiting(homes).items():
        yield f"{len(left)} lines still wait in {path}"
    places: dict[str, list[int]] = {}
    for event in events:
        places.setdefault(event.dedupe, []).append(event.seq)
    for path, lines in before.items():
        found = [places.get(line, []) for line in lines]
        for line, at in zip(lines, found, strict=True):
            if len(at) != 1:
                yield f"{line} of {path} stands in the ledger {len(at)} times"
        if found != sorted(found):
            yield f"the lines of {path} stand in the ledger in another order: {found}"


def ends_harm(events: Iterable[Any]) -> Iterator[str]:
    """Yield whose end stands in the ledger more than once."""
    ends = Counter(
        event.subject
        for event in events
        if event.kind == "instance_vanished"
        or (event.kind, event.body.get("state")) == ("instance_observed", "terminated")
    )
    yield from (f"{subject} ended {count} times" for subject, count in ends.items() if count > 1)


def _dedupe(line: str) -> str:
    return str(json.loads(line.partition(" ")[2])["dedupe"])
