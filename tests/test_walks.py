"""A walk through the code is counted as benchmarks/walks.py says, and the same walk has the same figures."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.walks import Walk, table, walks

FILES = {
    "room/control/one.py": """
from room.control.two import carry
from room.core.rule import judge

def walk():
    judge()
    carry(lambda: judge())
    return [judge() for _ in range(2)]
""",
    "room/control/two.py": """
from room.control import session
from room.core.rule import judge

def carry(do):
    do()
    return session.lock(judge)
""",
    "room/control/session.py": "def lock(do):\n    return do()\n",
    "room/core/rule.py": "def judge():\n    return 1\n\nRULES = judge()\n",
}


# What a walk may count at most: files, changes of file inside control, climbs. Lower a figure where a walk is shorter.
MOST = {"stop": (53, 32, 28), "up": (98, 132, 69), "cost": (36, 9, 32), "reap": (102, 171, 110)}


@pytest.fixture
def room(tmp_path, monkeypatch):
    """The folder of a small package that stands for cloudgpu."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield f"{tmp_path / 'room'}{os.sep}"
    for name in [name for name in sys.modules if name.partition(".")[0] == "room"]:
        del sys.modules[name]


def test_a_walk_is_counted_without_imports_and_without_the_session(room):
    def walk():
        from room.control.one import walk

        walk()

    found = Walk(room, frozenset({"control/session.py"})).of(walk)
    # one, rule, two (a climb), the lambda of one (no climb, a change), rule, back to two, rule, back to one, rule, rule
    assert found == {"files": 4, "control": 3, "core": 1, "ledger": 0, "changes": 4, "climbs": 1}


@pytest.fixture(scope="module")
def both():
    """The figures of this checkout, counted twice."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda _: walks(), range(2)))


@pytest.fixture
def figures(both):
    return both[0]


def test_the_same_walk_has_the_same_figures(both):
    first, again = both
    assert first == again
    assert list(first) == ["stop", "up", "cost", "reap"]
    for figures in first.values():
        assert figures["files"] > figures["control"] + figures["core"] + figures["ledger"] > 0
        assert figures["changes"] > 0 < figures["climbs"]
    assert len({len(line) for line in table(first).splitlines()}) == 1


def test_no_walk_is_longer_than_it_was(figures):
    counted = {verb: (one["files"], one["changes"], one["climbs"]) for verb, one in figures.items()}
    longer = {verb: found for verb, found in counted.items() if any(map(int.__gt__, found, MOST[verb]))}
    assert longer == {}
