"""A ledger that moves: nothing is lost, never are both places written, and whoever is killed runs it again."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cloudgpu.core.events.log import Draft
from cloudgpu.errors import InvalidRequest, LedgerMoved, LedgerUnavailable
from cloudgpu.ledger.book import Book
from cloudgpu.ledger.log.storage_errors import LedgerMovedAway
from cloudgpu.ledger.moving import MovePlaces, follow, move
from cloudgpu.ledger.open import open_ledger
from cloudgpu.ledger.sqlite.backup import restore, write_backup
from tests.ledger.lines import NOON, Clock, intended, note
from tests.ledger.suite import LIFE, Store

STORES = ("sqlite_store", "postgres_store")
NUMBERS = itertools.count(1000)


@pytest.fixture(params=itertools.product(STORES, STORES), ids=lambda pair: f"{pair[0][:6]}-{pair[1][:6]}")
def ways(request: pytest.FixtureRequest) -> tuple[Store, Store]:
    one, other = (request.getfixturevalue(name) for name in request.param)
    return lambda: one("old"), lambda: other("new")  # type: ignore[return-value]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    return request.getfixturevalue(request.param)


def nothing() -> None:
    pass


def carried(source: Any, target: Any, check: Callable[[], None] = nothing) -> None:
    """Move as `ledger move` does: the first time, or once more."""
    places = MovePlaces(source, target, target.location)
    if source.moved() is None:
        move(places, check, NOON)
    else:
        follow(places)


def takes(ledger: Any) -> bool:
    """Say whether a line can be written; every other error than that the ledger is elsewhere is one."""
    try:
        ledger.append([note(next(NUMBERS))])
    except LedgerMoved:
        return False
    return True


def test_all_that_was_stands_at_the_new_place_and_the_old_one_is_only_read(ways: Any) -> None:
    old, new = ways
    source = old()
    source.append([*LIFE, intended("cg-2", "brave-fox", seconds=3), note(1)])
    events, machines, bills = list(source.events()), source.machines(), source.billable_machines()
    carried(source, new())
    target = new()
    lines = list(target.events())
    assert lines[: len(events)] == events
    assert [line.kind for line in lines[len(events) :]] == ["ledger_moving", "ledger_arrived"]
    assert (target.machines(), target.billable_machines(), target.id) == (machines, bills, source.id)
    assert (target.verify().faults, target.integrity_problem(), target.moved()) == ((), None, None)
    assert (source.verify().faults, source.integrity_problem(), source.machines()) == ((), None, machines)
    assert source.remembered_head().moved == target.location
    assert takes(target)
    for write in (
        lambda: source.append([note(2)]),
        lambda: source.decide(lambda _view: [note(3)]),
        lambda: source.settle("why"),
        source.rebuild,
        source.check_in_use,
    ):
        with pytest.raises(LedgerMoved, match=r"moved to .* Nothing is written here any more") as caught:
            write()
        assert (caught.value.exit_code, caught.value.next) == (2, "To work there: cloudgpu ledger move --follow")
    assert source.head()[0] == len(events) + 1


def test_whoever_has_the_old_one_open_cannot_write_a_line_past_the_database_either(store: Store) -> None:
    ledger = store()
    ledger.append([note(1)])
    carried(ledger, store("new"))
    with ledger.read_connection() as found:
        seq, digest, _ = ledger.head()
        values = (seq + 1, *["x"] * 7, digest, "{}", "h")
    raw = ledger._store.begin()
    with pytest.raises(Exception, match=r"is only appended|is not at this place"):
        raw.execute("INSERT INTO line VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    ledger._store.rollback()
    assert found is not None


class Killed(BaseException):
    """The process ends here."""


def after(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the process end right behind a step, once; a generator's step is its first part."""
    real = getattr(Book, method)

    def stepped(self: Book, *args: Any) -> None:
        monkeypatch.setattr(Book, method, real)
        real(self, *args)
        raise Killed

    monkeypatch.setattr(Book, method, stepped)


def before(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(Book, method)

    def stepped(self: Book, *_: Any) -> None:
        monkeypatch.setattr(Book, method, real)
        raise Killed

    monkeypatch.setattr(Book, method, stepped)


KILLS = {
    "before the copy": (lambda patch: before("fill", patch), "old"),
    "while nobody can write": (None, "old"),
    "before the old one is closed": (lambda patch: after("fill", patch), "old"),
    "before the new one is opened": (lambda patch: before("open_here", patch), "neither"),
    "before the head record": (lambda patch: before("record_new_place", patch), "neither"),
    "behind the head record": (lambda patch: after("record_new_place", patch), "neither"),
    "at the end": (lambda patch: after("open_here", patch), "new"),
}


@pytest.mark.parametrize("ways", [STORES, STORES[::-1]], indirect=True, ids=["sqlite-postgr", "postgr-sqlite"])
@pytest.mark.parametrize("moment", KILLS)
def test_a_move_that_is_killed_leaves_one_ledger_and_is_finished_by_the_same_again(
    ways: Any, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = ways
    kill, left = KILLS[moment]
    old().append([*LIFE, note(1)])
    if kill:
        kill(monkeypatch)

    def check() -> None:
        if kill is None:
            raise Killed

    with pytest.raises(Killed):
        carried(old(), new(), check)
    was_open = old()
    begun = new().head()[0] > 0
    assert (takes(was_open), begun and takes(new())) == (left == "old", left == "new")
    lines = [line for line in was_open.events() if line.kind != "ledger_moved"]
    carried(was_open, new())
    assert list(new().events())[: len(lines)] == lines
    assert (takes(was_open), takes(new()), new().verify().faults, new().integrity_problem()) == (False, True, (), None)
    assert old().head()[0] == len(lines) + 1


def test_what_is_appended_while_it_moves_is_in_one_of_both_and_none_is_lost(ways: Any) -> None:
    old, new = ways
    old().append([note(0)])
    written: list[int] = []
    enough = threading.Event()

    def writer() -> None:
        mine = old()
        with suppress(LedgerMoved):
            for number in range(1, 120):  # one who writes without a pause starves all others of the head record's lock
                mine.append([note(number)])
                written.append(number)
                if number == 10:
                    enough.set()

    thread = threading.Thread(target=writer)
    thread.start()
    assert enough.wait(60)
    carried(old(), new())
    thread.join(60)
    assert not thread.is_alive()
    found = [line.body["machines"] for line in new().events() if line.kind == "account_synced"]
    assert found == [0, *written]


def test_a_place_that_holds_another_ledger_is_refused_and_nothing_changes(ways: Any) -> None:
    old, new = ways
    old().append([note(1)])
    new().append([note(2)])
    before = list(new().events())
    with pytest.raises(InvalidRequest, match="holds another ledger"):
        carried(old(), new())
    assert list(new().events()) == before
    assert takes(old())


def test_a_place_with_lines_that_this_one_lacks_is_refused(ways: Any, tmp_path: Path) -> None:
    old, new = ways
    old().append([note(1)])
    write_backup(old(), tmp_path / "copy")
    restore(new(), tmp_path / "copy")  # in doubt, by a line of its own
    with pytest.raises(InvalidRequest, match="lines that the present one lacks"):
        carried(old(), new())
    assert takes(old())


def test_an_older_copy_of_the_same_ledger_is_gone_on_with(sqlite_store: Store, tmp_path: Path) -> None:
    ledger = sqlite_store()
    ledger.append([*LIFE, note(1)])
    (tmp_path / "new").mkdir()
    write_backup(ledger, tmp_path / "new" / "ledger.db")
    ledger.append([intended("cg-2", "brave-fox", seconds=3)])
    machines = ledger.machines()
    carried(ledger, sqlite_store("new"))
    target = sqlite_store("new")
    assert (target.machines(), target.verify().faults, target.integrity_problem()) == (machines, (), None)


def test_a_ledger_moves_back_to_where_it_was(ways: Any) -> None:
    old, new = ways
    old().append([note(1)])
    carried(old(), new())
    new().append([*LIFE])
    machines = new().machines()
    carried(new(), old())
    assert (takes(old()), takes(new()), old().machines()) == (True, False, machines)
    assert (old().verify().faults, old().integrity_problem(), old().moved()) == ((), None, None)
    assert new().moved() is not None


def test_an_old_copy_that_is_put_back_where_the_ledger_was_does_not_act_again(
    sqlite_store: Store, tmp_path: Path
) -> None:
    ledger = sqlite_store()
    ledger.append([note(1)])
    copy = tmp_path / "copy"
    write_backup(ledger, copy)
    carried(ledger, sqlite_store("new"))
    with pytest.raises(LedgerMoved):
        restore(ledger, copy, even_if_older=True)
    ledger.close()
    (tmp_path / "one" / "ledger.db").write_bytes(copy.read_bytes())
    again = sqlite_store()
    assert again.head()[0] == 2
    assert not takes(again)
    with pytest.raises(LedgerMoved, match="an old copy"):
        again.settle("I say so")
    again.close()
    (tmp_path / "one" / "ledger.db").unlink()
    with pytest.raises(LedgerMovedAway):
        sqlite_store().machines()
    assert not takes(sqlite_store())


def test_a_copy_of_a_retired_ledger_is_brought_back_at_another_place_by_its_owners_word(
    store: Store, tmp_path: Path
) -> None:
    ledger = store()
    ledger.append([*LIFE])
    machines = ledger.machines()
    carried(ledger, store("new"))
    write_backup(ledger, tmp_path / "copy")
    third = store("third")
    restore(third, tmp_path / "copy")
    assert (third.machines(), takes(third), third.verify().faults) == (machines, True, ())
    kinds = [line.kind for line in third.events()]
    assert "ledger_moved" not in kinds
    assert "ledger_doubted" in kinds


def test_a_new_place_that_lost_lines_is_not_followed(sqlite_store: Store, tmp_path: Path) -> None:
    ledger = sqlite_store()
    ledger.append([note(1)])
    (tmp_path / "new").mkdir()
    write_backup(ledger, tmp_path / "new" / "copy")
    ledger.append([note(2)])
    carried(ledger, target := sqlite_store("new"))
    target.close()
    (tmp_path / "new" / "ledger.db").write_bytes((tmp_path / "new" / "copy").read_bytes())
    with pytest.raises(InvalidRequest, match="is not at"):
        carried(ledger, sqlite_store("new"))
    with pytest.raises(InvalidRequest, match="is not at"):
        carried(ledger, sqlite_store("empty"))
    assert not (tmp_path / "empty" / "ledger.db").exists()


def test_a_ledger_that_is_not_whole_is_not_moved(sqlite_store: Store, tmp_path: Path) -> None:
    from tests.ledger.sqlite.test_backup import forged

    ledger = sqlite_store()
    ledger.append([note(1), note(2)])
    forged(tmp_path / "one" / "ledger.db")
    with pytest.raises(LedgerUnavailable, match=r"was not moved: .*Line 2 was changed"):
        carried(ledger, sqlite_store("new"))
    assert takes(ledger)
    assert sqlite_store("new").head()[0] == 0


def test_a_mark_that_does_not_say_where_to_closes_the_ledger_and_breaks_no_look(sqlite_store: Store) -> None:
    ledger = sqlite_store()
    ledger.append([Draft("ledger_moving", "ledger", {}, NOON, "x")])
    assert ledger.moved() is not None
    with pytest.raises(LedgerMoved):
        ledger.append([note(1)])


class Homes:
    """Two homes on one ledger in a file at `old`; each remembers for itself what it has seen of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.at("old", "ada").append([*LIFE])
        self.at("old", "bob").append([note(1)])

    def file(self, place: str) -> Path:
        return self.root / f"{place}.db"

    def at(self, place: str, home: str) -> Book:
        return open_ledger(f"sqlite://{self.file(place)}", self.root / home, actor=home, clock=Clock())

    def places(self, home: str, old: str, new: str) -> MovePlaces:
        names = (f"sqlite://{self.file(one)}" for one in (new, old))
        return MovePlaces(self.at(old, home), self.at(new, home), *names)

    def move(self, old: str, new: str, home: str = "ada") -> None:
        move(self.places(home, old, new), nothing, NOON)

    def follow(self, new: str, home: str = "bob") -> None:
        follow(self.places(home, "old", new))

    def lose(self, place: str = "old") -> None:
        """Take the place away, as a server that never answers again."""
        for path in self.root.glob(f"{place}.db*"):
            path.unlink()

    def copy(self, place: str, name: str) -> None:
        write_backup(self.at(place, "ada"), self.file(name))


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return Homes(tmp_path)


@pytest.mark.parametrize("has_heard", [True, False])
def test_a_home_follows_without_the_old_place_by_the_chain_at_the_new_one(homes: Homes, has_heard: bool) -> None:
    homes.at("old", "ada").append([note(2)])
    homes.move("old", "new")
    assert takes(homes.at("new", "ada"))
    if has_heard:
        assert homes.at("old", "bob").moved() is not None
    homes.lose()
    if has_heard:
        bob = homes.at("old", "bob")
        assert bob.moved().to.endswith("new.db")
        assert not takes(bob)
        with pytest.raises(LedgerMovedAway, match=r"moved to sqlite:.*new.db on 2026-11-20 at 12:00 UTC") as caught:
            bob.machines()
        assert caught.value.next == "To work there: cloudgpu ledger move --follow"
    homes.follow("new")
    mine = homes.at("new", "bob")
    assert (takes(mine), mine.verify().faults, mine.integrity_problem()) == (True, (), None)
    assert not takes(homes.at("old", "bob"))
    assert not homes.file("old").exists()


@pytest.mark.parametrize("kill", [before, after])
@pytest.mark.parametrize("step", ["record_new_place", "open_here"])
@pytest.mark.parametrize("has_heard", [True, False])
def test_whoever_is_killed_as_they_follow_without_the_old_place_runs_it_again(
    homes: Homes, kill: Any, step: str, has_heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes.move("old", "new")
    if has_heard:
        homes.at("old", "bob").moved()
    homes.lose()
    kill(step, monkeypatch)
    with pytest.raises(Killed):
        homes.follow("new")
    count = homes.at("new", "ada").head()[0]
    homes.follow("new")
    assert not takes(homes.at("old", "bob"))
    assert homes.at("new", "ada").head()[0] == count
    assert takes(homes.at("new", "bob"))


def test_a_copy_or_an_unfinished_move_is_not_followed_without_the_old_place(homes: Homes, tmp_path: Path) -> None:
    homes.copy("old", "copy")
    homes.move("old", "new")
    homes.move("new", "old")
    homes.at("old", "ada").append([note(2)])
    homes.copy("old", "back")
    homes.lose()
    for name, why in (("copy", "is not at"), ("back", "holds a copy"), ("new", r"moved to .*old.db")):
        before = homes.file(name).read_bytes()
        with pytest.raises(InvalidRequest, match=why):
            homes.follow(name)
        assert homes.at("old", "bob").remembered_head().moved == "", "nothing was learned by it"
        assert homes.file(name).read_bytes() == before
    with pytest.raises(InvalidRequest, match="does not know the ledger"):
        homes.follow("back", home="eve")


@pytest.mark.parametrize("has_heard", [True, False])
def test_a_move_that_died_with_the_old_place_is_finished_by_whoever_knows_that_it_was_closed(
    homes: Homes, has_heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before("record_new_place", monkeypatch)
    with pytest.raises(Killed):
        homes.move("old", "new")
    if has_heard:
        homes.at("old", "bob").moved()
    homes.lose()
    if has_heard:
        homes.follow("new")
    else:
        with pytest.raises(LedgerMoved, match="has begun and not ended"):
            homes.follow("new")
    assert takes(homes.at("new", "bob")) == has_heard


@pytest.mark.parametrize("is_there", [True, False])
def test_what_an_earlier_move_has_left_is_not_opened_beside_the_ledger(
    homes: Homes, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    after("fill", monkeypatch)
    with pytest.raises(Killed):
        homes.move("old", "left")
    homes.move("old", "new")
    homes.at("old", "bob").moved()
    if not is_there:
        homes.lose()
    with pytest.raises(InvalidRequest, match="is not at"):
        homes.follow("left")
    assert not takes(homes.at("left", "bob"))
    assert takes(homes.at("new", "ada"))


def test_a_home_that_heard_of_a_move_works_where_the_ledger_has_come_back_to(homes: Homes) -> None:
    homes.move("old", "new")
    homes.at("old", "bob").moved()
    homes.move("new", "old")
    assert not takes(homes.at("old", "bob"))
    homes.follow("old")
    assert takes(homes.at("old", "bob"))
    assert not takes(homes.at("new", "bob"))


def test_a_head_record_that_contradicts_the_lines_is_not_replaced_by_a_look(homes: Homes) -> None:
    homes.copy("old", "copy")
    homes.at("old", "bob").append([note(2)])
    homes.lose()
    homes.file("copy").rename(homes.file("old"))
    homes.at("old", "ada").settle("an older copy")
    homes.move("old", "new")
    bob = homes.at("old", "bob")
    assert bob.moved() is not None
    assert bob.remembered_head().moved == ""
    assert bob.integrity_problem() is not None
    homes.follow("new")
    assert not takes(homes.at("old", "bob"))
