"""A server that is gone, refuses, or whose answer is lost: one clear sentence, no password, no line written twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerDenied, LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.log.storage_errors import LedgerAway
from cloudgpu.ledger.open import open_ledger
from cloudgpu.ledger.postgresql import silence
from cloudgpu.ledger.postgresql.address import address_of
from cloudgpu.ledger.postgresql.store import PostgresLedger
from tests.ledger.lines import OTHER_FORMATS, Clock, intended, note
from tests.ledger.wire import Wire
from tests.postgres import PASSWORD, Server

Open = Callable[..., PostgresLedger]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    made: list[PostgresLedger] = []

    def make(url: str, *, lock_timeout_s: float = 10.0, head: str = "head") -> PostgresLedger:
        ledger = PostgresLedger(
            address_of(url), tmp_path / head, actor="somebody", clock=Clock(), lock_timeout_s=lock_timeout_s
        )
        made.append(ledger)
        return ledger

    yield make
    for ledger in made:
        ledger.close()


@pytest.fixture
def wire(postgres: Server) -> Iterator[Wire]:
    found = Wire(postgres.port)
    yield found
    found.close()


def through(wire: Wire, server: Server) -> str:
    return server.schema().replace(f":{server.port}/", f":{wire.port}/")


def notes(ledger: PostgresLedger) -> list[int]:
    return [line.body["machines"] for line in ledger.events("scope:fake/main")]


def check_secret(fault: CloudgpuError) -> None:
    said = f"{fault.as_dict()} {fault} {fault!r} {fault.__cause__} {fault.__context__!r}"
    assert PASSWORD not in said
    assert quote(PASSWORD, safe="") not in said


@pytest.mark.parametrize("cut", ["request", "reply"])
def test_an_append_whose_commit_is_not_heard_of_finds_out_what_became_of_it(
    opened: Open, wire: Wire, postgres: Server, cut: str
) -> None:
    ledger = opened(through(wire, postgres))
    ledger.append([note(1)])
    wire.cut = cut
    if cut == "reply":
        assert [line.dedupe for line in ledger.append([note(2)])] == ["note:scope:fake/main:2"]
    else:
        with pytest.raises(LedgerUnavailable, match="nothing was written") as caught:
            ledger.append([note(2)])
        check_secret(caught.value)
    assert wire.cuts == 1
    assert notes(ledger) == ([1, 2] if cut == "reply" else [1])
    ledger.append([note(2)])
    assert notes(ledger) == [1, 2]
    assert (ledger.integrity_problem(), ledger.verify().faults) == (None, ())


def test_where_nobody_can_tell_the_same_again_is_written_once(opened: Open, wire: Wire, postgres: Server) -> None:
    url = postgres.schema()
    ledger = opened(url.replace(f":{postgres.port}/", f":{wire.port}/"), lock_timeout_s=0.3)
    ledger.append([note(1)])
    wire.cut, wire.refuses = "reply", True
    with pytest.raises(LedgerUnavailable, match="whether the entries were recorded is not known") as caught:
        ledger.append([note(2)])
    assert "no entry is written twice" in (caught.value.next or "")
    check_secret(caught.value)
    again = opened(url)
    assert again.append([note(2)]) == ()
    assert notes(again) == [1, 2]
    assert (again.integrity_problem(), again.verify().faults) == (None, ())


def test_a_connection_that_was_lost_is_opened_anew(opened: Open, wire: Wire, postgres: Server) -> None:
    ledger = opened(through(wire, postgres))
    ledger.append([intended()])
    reads = (ledger.machines, ledger.head, ledger.integrity_problem, ledger.verify)
    for look in (*reads, lambda: ledger.append([note(1)])):
        wire.break_all()
        look()
    assert notes(ledger) == [1]


@pytest.mark.soak
def test_a_server_that_dies_under_a_decision_leaves_nothing_of_it(opened: Open, postgres: Server) -> None:
    ledger = opened(postgres.schema())
    ledger.append([note(1)])

    def decision(_view: object) -> list[object]:
        postgres.kill()
        return [note(2)]

    try:
        with pytest.raises(LedgerUnavailable, match="cannot be reached") as caught:
            ledger.decide(decision)
        check_secret(caught.value)
        with pytest.raises(LedgerUnavailable, match="cannot be reached"):
            ledger.machines()
    finally:
        postgres.start()
    assert notes(ledger) == [1]
    ledger.append([note(2)])
    assert (notes(ledger), ledger.verify().faults) == ([1, 2], ())


def test_what_the_server_refuses_is_told_without_the_password(opened: Open, postgres: Server) -> None:
    wrong = postgres.url().replace("ada:", "ada:nobody-knows")
    for url, what, away in (
        (wrong, "does not let this user in", False),
        (postgres.url("no_such_database"), "does not exist on that server", False),
        (postgres.url(port=1), "cannot be reached", True),
    ):
        ledger = opened(url)
        for attempt in (
            ledger.machines,
            lambda one=ledger: one.append([note(1)]),
            lambda one=ledger: one.is_locked("x"),
        ):
            with pytest.raises(LedgerUnavailable, match=what) as caught:
                attempt()
            assert isinstance(caught.value, LedgerAway) is away, "nobody goes on with a wrong password"
            check_secret(caught.value)
            assert "nobody-knows" not in str(caught.value.as_dict())
            assert "CLOUDGPU_LEDGER" in (caught.value.next or "")


@pytest.mark.parametrize("code", ["53000", "53200", "53400", "58000", "58030"])
def test_a_server_without_memory_or_with_a_broken_disk_is_an_outage(opened: Open, postgres: Server, code: str) -> None:
    """Stops and terminations go on without it, and are written later (classes 53 and 58 of PostgreSQL's codes)."""
    url = postgres.schema()
    opened(url).append([note(1)])
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(
            "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$BEGIN RAISE EXCEPTION 'out of something' USING ERRCODE = '{code}'; END$$"
        )
        raw.execute("CREATE TRIGGER a_fault BEFORE INSERT ON line FOR EACH ROW EXECUTE FUNCTION fails()")
    with pytest.raises(LedgerAway, match=r"out of something") as caught:
        opened(url, head="another").append([note(2)])
    assert "server" in caught.value.message
    assert "server's log" in (caught.value.next or "")
    check_secret(caught.value)


def test_a_lock_that_another_client_keeps_is_told_after_the_wait(opened: Open, postgres: Server) -> None:
    url = postgres.schema()
    first, second = opened(url), opened(url, lock_timeout_s=0.2, head="another")

    def decision(_view: object) -> list[object]:
        with pytest.raises(LedgerUnavailable, match="locked by another client"):
            second.append([note(2)])
        assert second.head()[0] == 2, "who reads does not wait"
        return []

    first.append([note(1)])
    first.decide(decision)
    assert second.append([note(2)])


def test_a_wait_for_a_lock_is_as_long_as_ours_whatever_timeouts_the_server_has(opened: Open, postgres: Server) -> None:
    """A role or a database often has a `statement_timeout`: a stop would fail by it, and the machine run on."""
    url = postgres.schema()
    first = opened(url)
    second = opened(f"{url}%20-cstatement_timeout%3D100", lock_timeout_s=0.4, head="another")

    def decision(_view: object) -> list[object]:
        with pytest.raises(LedgerAway, match="locked by another client"):
            second.append([note(2)])
        return []

    first.append([note(1)])
    first.decide(decision)
    assert second.append([note(2)])
    with first.lock("fox", wait=False), pytest.raises(ProviderUnavailable, match="at work on 'fox'"):
        second.lock("fox", wait=0.4).__enter__()


def test_another_programs_tables_are_left_alone(opened: Open, postgres: Server) -> None:
    url = postgres.schema()
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("CREATE TABLE cookies (value text)")
    for attempt in (opened(url).machines, lambda: opened(url).append([note(1)])):
        with pytest.raises(InvalidRequest, match="another program") as caught:
            attempt()
        assert "search_path" in (caught.value.next or "")


def test_a_schema_that_does_not_exist_is_told(opened: Open, postgres: Server) -> None:
    with pytest.raises(InvalidRequest, match="no schema for the ledger") as caught:
        opened(postgres.url(schema="nowhere")).append([note(1)])
    assert "CREATE SCHEMA" in (caught.value.next or "")


def test_a_user_who_may_not_write_is_told_and_may_read(opened: Open, postgres: Server) -> None:
    url = postgres.schema()
    schema = url.rpartition("%3D")[2]
    opened(url).append([intended()])
    with psycopg.connect(postgres.url(), autocommit=True) as raw:
        raw.execute(f"CREATE ROLE r{schema} LOGIN PASSWORD 'x'")
        raw.execute(f"GRANT USAGE ON SCHEMA {schema} TO r{schema}")
        raw.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO r{schema}")
    user = opened(url.replace(f"ada:{quote(PASSWORD, safe='')}", f"r{schema}:x"))
    assert [row.id for row in user.machines()] == ["cg-1"]
    with pytest.raises(LedgerDenied, match="no team shares it"):
        user.append([note(1)])


def test_a_ledger_of_a_newer_schema_is_left_alone(opened: Open, postgres: Server) -> None:
    url = postgres.schema()
    opened(url).append([note(1)])
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("UPDATE ledger_schema SET version = version + 1")
    for attempt in (lambda: opened(url).append([note(2)]), lambda: opened(url).machines()):
        with pytest.raises(LedgerUnavailable, match="newer cloudgpu"):
            attempt()


@pytest.mark.parametrize(("body", "sentence", "way"), OTHER_FORMATS, ids=["without", "before", "newer"])
def test_a_ledger_of_another_format_is_refused_in_one_sentence_and_left_alone(
    opened: Open, postgres: Server, body: str, sentence: str, way: str
) -> None:
    url = postgres.schema()
    opened(url).append([note(1)])
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("ALTER TABLE line DISABLE TRIGGER line_is_never_changed")
        raw.execute("UPDATE line SET body = %s WHERE seq = 1", (body,))
        raw.execute("ALTER TABLE line ENABLE ALWAYS TRIGGER line_is_never_changed")
    for attempt in (
        lambda: opened(url).append([note(2)]),
        lambda: opened(url).machines(),
        lambda: opened(url).verify(),
        lambda: opened(url).settle("It is whole."),
    ):
        with pytest.raises(LedgerUnavailable, match=sentence) as caught:
            attempt()
        assert (caught.value.exit_code, type(caught.value)) == (8, LedgerUnavailable)
        assert (caught.value.next or "").startswith(way)
        check_secret(caught.value)
    with psycopg.connect(url) as raw:
        assert raw.execute("SELECT max(seq) FROM line").fetchone() == (2,)


def test_an_older_schema_is_brought_up_to_date_by_whoever_comes(
    opened: Open, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloudgpu.ledger.postgresql import schema

    url = postgres.schema()
    opened(url).append([intended()])
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, ("ALTER TABLE machine ADD COLUMN colour text",)])
    assert [row.id for row in opened(url).machines()] == ["cg-1"]
    with psycopg.connect(url) as raw:
        assert raw.execute("SELECT colour FROM machine").fetchall() == [(None,)]
    assert opened(url).verify().faults == ()


def test_the_head_record_of_another_spelling_of_the_url_is_the_same(postgres: Server, tmp_path: Path) -> None:
    url = postgres.schema()
    for spelling in (url, url.replace("postgresql://", "postgres://"), url + "&application_name=mine"):
        ledger = open_ledger(spelling, tmp_path, actor="somebody", clock=Clock())
        ledger.append([note(1)])
        ledger.close()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_frozen_server_is_noticed_on_an_open_connection_and_a_long_wait_for_a_lock_is_not_taken_for_it(
    opened: Open, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SILENT_S", 0.2)
    monkeypatch.setattr(silence, "REMEMBERED_S", 600.0)  # one connection that does not come is waited for, not three
    url = postgres.schema().replace("connect_timeout=60", "connect_timeout=5")
    first, second = opened(url), opened(url, lock_timeout_s=1.0, head="another")

    def decision(_view: object) -> list[object]:
        with pytest.raises(LedgerUnavailable, match="locked by another client"):
            second.append([note(2)])
        return []

    first.append([note(1)])
    first.decide(decision)
    postgres.freeze()
    try:
        for attempt in (first.machines, lambda: first.append([note(3)]), lambda: first.is_locked("x")):
            with pytest.raises(LedgerAway, match="cannot be reached") as caught:
                attempt()
            check_secret(caught.value)
    finally:
        postgres.thaw()
        silence._timed_out_servers.clear()
    assert notes(first) == [1]
    assert second.append([note(2)])
