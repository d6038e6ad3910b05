"""Two and five people on one ledger in PostgreSQL for weeks, with two accounts of AWS under one name.

Real system users where we are root, commands as forks of their own, models of AWS with account numbers of their own,
own machines behind SSH servers, and a server that is killed, frozen, away for a while and put back to an older copy.
`lab.py` says what happens; `lab_truth.py`, `lab_outbox.py` and `lab_totals.py` what must hold. `-s` prints the run. A
failure names its seed.
"""

from __future__ import annotations

import pytest

from tests.soak.lab_opened import opened

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1400)]


@pytest.mark.parametrize(
    ("seed", "people", "steps"), [(1, "pia ben", 32), (2, "pia ben eve dan kim", 24)], ids=["two", "five"]
)
def test_the_ledgers_word_is_the_clouds_truth_whoever_does_what(seed, people, steps):
    with opened(seed, people.split()) as lab:
        try:
            lab.live(steps)
        finally:  # `-s` shows what was lived through
            print("\n".join(lab.log), sorted(lab.seen.items()), sep="\n")  # noqa: T201
        gaps = [gap for cloud in lab.clouds.values() for gap in cloud.ask("gaps") or []]
    assert gaps == []
    assert not lab.faults, "\n".join([f"seed {seed}:", *lab.faults[:20]])
    lived = "restored|server frozen|server away|host off|sums compared|up|reap|ls|quiet moments"
    assert min(lab.seen[what] for what in lived.split("|")) > 0
