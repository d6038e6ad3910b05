"""Which ledger a URL names, and how a wrong URL is answered."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger.open import open_ledger, public_url
from cloudgpu.ledger.postgresql.address import address_of
from tests.ledger.lines import Clock, note


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_no_url_means_the_directory(tmp_path: Path) -> None:
    ledger = open_ledger(None, tmp_path, actor="somebody", clock=Clock())
    ledger.append([note(1)])
    ledger.close()
    assert files(tmp_path) == ["ledger.db", "ledger.head"]


@pytest.mark.parametrize("slashes", ["sqlite://", "sqlite:///", "SQLite://"])
def test_a_url_names_a_file_and_the_head_record_stays_at_home(tmp_path: Path, slashes: str) -> None:
    ledger = open_ledger(f"{slashes}{tmp_path}/far/my.db", tmp_path / "home", actor="somebody", clock=Clock())
    ledger.append([note(1)])
    ledger.close()
    found = files(tmp_path)
    assert found[0] == "far/my.db"
    assert len(found) == 2
    assert found[1].startswith("home/ledger-")
    assert found[1].endswith(".head")


def test_two_ledgers_at_two_urls_do_not_doubt_each_other(tmp_path: Path) -> None:
    urls = (None, f"sqlite://{tmp_path}/a.db", f"sqlite://{tmp_path}/b.db")
    for _ in range(2):
        for url in urls:
            ledger = open_ledger(url, tmp_path / "home", actor="somebody", clock=Clock())
            ledger.append([note(1)])
            assert ledger.integrity_problem() is None
            ledger.close()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://ada:sec%ret@db/ledger", "cannot be read"),
        ("postgresql://ada:secret@db/ledger?no_such=option", "cannot be read"),
        ("postgresql+asyncpg://ada:secret@db/ledger", "starts with sqlite:///"),
        ("mysql://ada:secret@db/ledger", "starts with sqlite:///"),
        ("ledger.db", "starts with sqlite:///"),
        ("", "starts with sqlite:///"),
        ("sqlite:/tmp/x.db", "starts with sqlite:///"),
        ("sqlite://relative/x.db", "absolute path"),
        ("sqlite://", "absolute path"),
        ("sqlite:///", "absolute path"),
        ("sqlite:///tmp/", "absolute path"),
        ("sqlite:///tmp/x.db?mode=ro", "absolute path"),
        ("sqlite:///tmp/a\0b", "absolute path"),
        ("sqlite:///:memory:", "memory"),
        ("sqlite:///tmp", "is a directory"),
    ],
)
def test_a_wrong_url_is_refused_with_the_way_out_and_without_its_password(
    tmp_path: Path, url: str, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence) as caught:
        open_ledger(url, tmp_path, actor="somebody", clock=Clock())
    assert caught.value.field == "CLOUDGPU_LEDGER"
    assert "CLOUDGPU_LEDGER" in (caught.value.next or "")
    assert "`ledger` in config.toml" in (caught.value.next or "") or url.startswith("postgres")
    assert not re.search(r"sec%?ret", str(caught.value.as_dict()))


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "PostgreSQL", "postgresql+psycopg"])
def test_a_database_is_named_without_its_password_and_no_connection_is_made(tmp_path: Path, scheme: str) -> None:
    ledger = open_ledger(f"{scheme}://ada:secret@127.0.0.1:1/lab", tmp_path, actor="somebody", clock=Clock())
    assert getattr(ledger, "location", None) == "postgresql://ada@127.0.0.1:1/lab"
    assert "secret" not in repr(ledger) + repr(vars(ledger)) + repr(vars(ledger._store))
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("postgresql://ada:secret@db:5433/lab", "postgresql://db:5433/lab"),
        ("postgresql://ada@/lab?host=/var/run/postgresql", "postgresql://%2Fvar%2Frun%2Fpostgresql/lab"),
        ("postgresql://ada@[::1]:5433/lab", "postgresql://[::1]:5433/lab"),
        ("postgresql://ada@a:1,b:2/lab", "postgresql://a:1,b:2/lab"),
        ("postgresql://a,b/lab?target_session_attrs=any", "postgresql://a,b/lab?target_session_attrs=any"),
        ("postgresql://a,b/lab?port=5433", "postgresql://a:5433,b:5433/lab"),
        ("postgresql://ada@db/our%20lab%2F1", "postgresql://db/our%20lab%2F1"),
    ],
)
def test_the_url_for_others_names_the_same_database(url: str, public: str) -> None:
    found = public_url(url)
    assert found == public
    if "port=" not in url:  # one port for all is written out
        assert address_of(found).identity == address_of(url).identity


def test_without_its_library_a_database_names_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None; from pathlib import Path\n"
        "from cloudgpu.errors import MissingExtra; from cloudgpu.ledger.open import open_ledger\n"
        "try: open_ledger('postgresql://ada:secret@db/lab', Path(sys.argv[1]), actor='a', clock=None)\n"
        "except MissingExtra as fault: print(fault.exit_code, fault.message, fault.next)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("2 A ledger in PostgreSQL needs the extra cloudgpu[postgresql]"), done.stderr
    assert "pip install 'cloudgpu[postgresql]'" in done.stdout
    assert "secret" not in done.stdout + done.stderr


def test_reading_imports_nothing_that_only_writing_needs(tmp_path: Path) -> None:
    ledger = open_ledger(None, tmp_path, actor="somebody", clock=Clock())
    ledger.append([note(1)])
    ledger.close()
    program = (
        "import sys; from pathlib import Path; from cloudgpu.ledger.open import open_ledger\n"
        "ledger = open_ledger(None, Path(sys.argv[1]), actor='a', clock=None)\n"
        "assert ledger.machines() == [] and ledger.last('scope:fake/main').seq == 2\n"
        "print(*sorted({'hashlib', 'cloudgpu.core.events.projection', 'cloudgpu.core.values.money',"
        " 'decimal', 'random', 'subprocess'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
