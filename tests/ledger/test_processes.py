"""Several processes write at once, and some are killed while they do: nothing that was acknowledged is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.ledger.killing import check_whole, killed_while_writing, opened, started


def test_eight_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"writer-{number}" for number in range(8)]
    processes = [started(tmp_path, name, 0, 25) for name in names]
    try:
        acknowledged = {
            name: {int(line) for line in process.communicate(timeout=60)[0].split()}
            for name, process in zip(names, processes, strict=True)
        }
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert all(numbers == set(range(25)) for numbers in acknowledged.values())
    check_whole(tmp_path, acknowledged, killed=0)
    assert opened(tmp_path).head()[0] == 1 + 8 * 25 * 2


@pytest.mark.soak
def test_twenty_kills_while_writing_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(20)
    acknowledged: dict[str, set[int]] = {}
    for kill in range(20):
        name = f"victim-{kill}"
        acknowledged[name] = killed_while_writing(tmp_path, name, 0, chance)
        assert acknowledged[name], "a writer was killed before it wrote"
    check_whole(tmp_path, acknowledged, killed=20)
    ledger = opened(tmp_path)
    assert ledger.append([]) == ()
    assert ledger.integrity_problem() is None
    ledger.close()
