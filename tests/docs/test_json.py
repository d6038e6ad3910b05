"""docs/reference/json.md says what the verbs print: one life of a real machine, every document compared."""

from __future__ import annotations

import os
import re
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import cloudgpu
from cloudgpu.access.keys import new_host_key
from cloudgpu.control.outage import opening as sessions
from cloudgpu.control.setup.team_ledger import document
from cloudgpu.core.team.rights import Role
from cloudgpu.ledger.log.teams import Missing, Sharing, Team
from cloudgpu.views.reaper import pass_value
from tests.cli import gcp_line
from tests.cli.automation.test_cron import CRONTAB
from tests.cli.aws_line import Line
from tests.cli.conftest import many
from tests.cli.many import QuickProgram
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.core.past import a_backtest, a_why
from tests.receivers.web import WebReceiver
from tests.views.a_comparison import a_comparison
from tests.views.a_pass import a_pass

__all__ = ["aws", "aws_process", "gcp", "gcp_process", "many"]

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
from pages import read_page, unquoted  # noqa: E402  (docs/ is no package)

PLAIN = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "true or false": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
}


@pytest.fixture(scope="module")
def written() -> dict[str, dict[str, str]]:
    """Heading -> key -> type, as the page says."""
    page = read_page(DOCS, DOCS / "reference" / "json.md")
    return {heading: {unquoted(row[0]): row[1] for row in rows} for heading, _, _, rows in page.tables()}


def faults(written: dict[str, dict[str, str]], heading: str, value: Any, path: str = "") -> list[str]:
    """Return what in this value is not as the page says under this heading."""
    keys = written[heading]
    if not isinstance(value, dict):
        return [f"{path or heading}: {value!r} is no {heading}"]
    wrong = [f"{path}{key}: only {'printed' if key in value else 'written'}" for key in set(keys) ^ set(value)]
    for key in set(keys) & set(value):
        wrong += _type_faults(written, keys[key], value[key], f"{path}{key}")
    return wrong


def _type_faults(written, kind, value, path) -> list[str]:
    if kind.endswith(" or null") and value is None:
        return []
    kind = kind.removesuffix(" or null")
    if kind.startswith("list of "):
        if not isinstance(value, list):
            return [f"{path}: {value!r} is no list"]
        return [one for item in value for one in _type_faults(written, kind.removeprefix("list of "), item, path)]
    part = re.fullmatch(r"\[(\w+)\]\(#\1\)", kind)
    if part:
        return faults(written, part[1], value, f"{path}.")
    return [] if PLAIN[kind](value) else [f"{path}: {value!r} is no {kind}"]


def _set_budgets(run):
    run("budget set", "budget", "set", "lab", "--amount", "400", "--period", "month")
    won = ("--amount", "9000", "--currency", "KRW", "--rate", "1385.2", "--period", "rolling:7d")
    run("budget set", "budget", "set", "lab", *won, "--replace")


def _budgets(run, root):
    run("budget ls", "budget", "ls")
    file = root / "home" / "policies" / "budgets" / "tiny.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("amount: .000000001\nperiod: day\naction: [stop]\n")
    run("budget check", "budget", "check")
    run("budget check", "budget", "check", "lab")
    file.unlink()
    run("budget rm", "budget", "rm", "lab", "--yes")


def _refreshed(run, root):
    run("ls", "ls", "--refresh")
    run("reap", "reap", "--dry-run", "--explain")
    _policies(run, root)


def _policies(run, root):
    home = root / "home" / "policies"
    home.mkdir(parents=True, exist_ok=True)
    run("policy explain", "policy", "explain", "one")
    (home / "broken.yaml").write_text("lease: soon\n")
    run("policy list", "policy", "list")
    (home / "broken.yaml").unlink()
    run("why", "show", "--why")
    run("policy backtest", "policy", "backtest", "default")
    (home / "limits.yaml").write_text("renew_until: 6d\npayers: [ada]\n")
    run("policy list", "policy", "list")
    run("policy check", "policy", "check")
    run("ledger owner", "ledger", "owner")
    run("policy publish", "policy", "publish", "limits")
    (home / "own.yaml").write_text("lease: 1h\nrenew_until: 2h\n")
    run("policy publish", "policy", "publish", "own")
    run("policy show", "policy", "show", "own")
    for name in ("own", "limits"):
        run("policy withdraw", "policy", "withdraw", name)
    (home / "own.yaml").unlink()
    run("policy show", "policy", "show", "classroom")
    run("policy show", "policy", "show", "never")
    (home / "limits.yaml").unlink()


def _estimates(run):
    won = ("--currency", "KRW", "--rate", "1385.2", "--rate-date", "2026-11-20")
    run("estimate", "estimate", "--gpu", "t4", "--address", "static", "--all", *won)
    run("estimate", "estimate", "--flops", "1e21", "--gpu", "a100-80gb", "--spot")
    run("estimate", "estimate", "--type", "p5.48xlarge", "--region", "eu-west-3")


def _ledgers(run, root):
    run("ledger backup", "ledger", "backup", str(root / "copy"))
    run("ledger restore", "ledger", "restore", str(root / "copy"), "--yes")
    run("ledger move", "ledger", "move", f"sqlite://{root}/moved.db", "--yes")


def _costs(run):
    run("cost", "cost")
    run("compare", "compare")
    run("report", "report")
    won = ("--currency", "KRW", "--rate", "1385.2", "--rate-date", "2026-11-20")
    run("cost", "cost", "--by", "day", "--since", "1d", *won)
    _estimates(run)


@pytest.fixture(scope="module")
def printed(tmp_path_factory, many) -> dict[str, list[Any]]:
    """Heading -> the documents that were printed in one life of a machine."""
    root = tmp_path_factory.mktemp("json")
    cloudgpu = QuickProgram(root / "home", many=many)
    cloudgpu.config(
        '[accounts.local]\ninterruption_notice = "1s"\n[[credits]]\nname = "trial"\namount = 1\nprovider = "local"\n'
    )
    (root / "file").write_text("x")
    found: dict[str, list[Any]] = {}

    def run(heading: str, *words: str) -> None:
        done = cloudgpu(*words, "-o", "json", timeout=90)
        assert done.out, done.err
        found.setdefault(heading, []).append(done.json)

    try:
        _set_budgets(run)
        run("up --dry-run", "up", "--dry-run")
        run("ls", "ls")
        run("up", "up", "--yes", "--name", "one", "--spot")
        run("up --dry-run", "up", "--dry-run", "--name", "one", "--spot")
        run("up", "up", "--yes", "--name", "one", "--spot")
        for words in (("show",), ("extend", "one", "1h", "--yes"), ("hold", "one", "1h", "--yes")):
            run("machine", *words)
        run("cp", "cp", str(root / "file"), "one:")
        (root / "ada.pub").write_text(new_host_key().public_line)
        run("share", "share", "--key", str(root / "ada.pub"))
        run("share", "share", "--remove")
        run("allow", "allow")
        run("tunnel", "tunnel", "--background")
        run("tunnel --stop", "tunnel", "--stop")
        _refreshed(run, root)
        run("machine", "stop", "--yes")
        run("machine", "start", "--yes")
        _costs(run)
        run("export", "export", "--out", str(root / "bill.csv"))
        run("cost reconcile", "cost", "reconcile", str(root / "bill.csv"))
        run("cost --verify", "cost", "--verify")
        _budgets(run, root)
        _ledgers(run, root)
        run("history", "show", "--history")
        run("doctor", "doctor")
        run("doctor --live", "doctor", "--live", "--provider", "local", "--yes")
        (root / ".aws").mkdir()
        (root / ".aws" / "credentials").write_text("[lab]\n")
        run("init", "init", "--yes", "--owner", "ada")
        run("spot", "spot", "interrupt", "one", "--yes")
        run("down", "down", "one", "--yes")
        run("ls", "ls", "--all")
        run("error", "stop", "one", "--yes")
        run("error", "up", "--lease", "8x")
        run("demo", "demo")
    finally:
        cloudgpu("down", "--all", "--yes", timeout=120)
    return found


def test_every_document_is_as_the_page_says(printed, written):
    wrong = {
        heading: found
        for heading, documents in printed.items()
        if heading not in ("history", "why")
        and (found := [one for document in documents for one in faults(written, heading, document)])
    }
    assert not wrong


def test_the_history_is_a_machine_with_lines(printed, written):
    (machine,) = printed["history"]
    history = machine.pop("history")
    assert len(history) > 5
    assert not faults(written, "machine", machine)
    assert not [one for line in history for one in faults(written, "line", line)]


def test_why_is_a_part_of_a_machine(printed, written):
    (machine,) = printed["why"]
    assert not faults(written, "why", machine.pop("why"))
    assert not faults(written, "machine", machine)


def test_a_backtest_with_ends_and_work_in_it_is_as_the_page_says(written):
    value = a_backtest()
    assert value["stops"][0]["work"]
    assert not faults(written, "policy backtest", value)


def test_a_pass_in_which_all_of_it_happens_is_as_the_page_says(written):
    value = pass_value(a_pass(), explain=True)
    assert all(value[key] for key in set(value) - {"busy", "dry_run", "took_s"})
    assert not faults(written, "reap", value)


def test_why_with_every_signal_is_as_the_page_says(written):
    value = a_why()
    assert len(value["signals"]) == 9
    assert not faults(written, "why", value)


def test_a_comparison_with_all_that_can_be_said_is_as_the_page_says(written):
    value = a_comparison()
    assert all(value[key] for key in set(value) - {"until"})
    assert not faults(written, "compare", value)


ON_A_CLOUD = {
    "init aws": "init aws --yes",
    "init --forget": "init --forget lab --yes",
    "init --rename": "init --rename lab mine --yes",
    "regions": "regions --gpu v100 --ping",
    "quota": "quota --gpu v100",
    "quota --request": "quota --request enough --gpu v100 --count 20 --region us-east-1 --yes",
    "up --dry-run": "up --gpu v100 --spot --ssh-from 203.0.113.7 --volume data:20 --dry-run",
}


@pytest.mark.parametrize("heading", ON_A_CLOUD)
def test_what_is_printed_about_a_cloud_is_as_the_page_says(heading, written, own_home, capsys, aws):
    said = Line(own_home, capsys, aws)(ON_A_CLOUD[heading], "-o", "json")
    assert said.code == 0, said.out
    assert not faults(written, heading, said.json)


ON_GOOGLE = {
    "init aws": "init gcp --account other --yes",  # all clouds print the same document
    "up --dry-run": "up --provider any --gpu t4 --ssh-from 203.0.113.7 --dry-run",
}


def test_what_is_printed_about_google_is_as_the_page_says(written, own_home, capsys, gcp):
    line = gcp_line.Line(own_home, capsys, gcp)
    said = {heading: line(words, "-o", "json") for heading, words in ON_GOOGLE.items()}
    for heading, one in said.items():
        assert one.code == 0, one.out
        assert not faults(written, heading, one.json)
    assert said["init aws"].json["findings"]
    assert said["up --dry-run"].json["plan"]["of_accounts"]


LEFT = (
    ("orphans", "orphans"),
    ("orphans", "orphans --clean --snapshot --yes"),
)


def test_what_is_left_over_is_printed_as_the_page_says(written, own_home, capsys, aws, monkeypatch):
    line = Line(own_home, capsys, aws)
    assert line("up --gpu v100 --spot --ssh-from 203.0.113.7 --name otter --no-wait --yes").code == 0
    aws.interrupt(aws.instances(live=True)[0].id)
    line("ls --refresh")
    opened = sessions.open_session
    later = partial(opened, clock=lambda: sessions.utc_now() + timedelta(days=1))
    monkeypatch.setattr(sessions, "open_session", later)
    for heading, words in LEFT:
        said = line(words, "-o", "json")
        assert said.code == 0, said.out
        assert not faults(written, heading, said.json)
    assert {one["what"] for one in said.json["removed"]} == {"disk", "key_pair", "security_group"}


KEPT = (
    ("up", "up --gpu v100 --spot --ssh-from 203.0.113.7 --volume data:20 --name otter --no-wait --yes"),
    ("cost", "cost"),
    ("thing", "image save otter --name mine --yes"),
    ("image ls", "image ls"),
    ("volume ls", "volume ls"),
    ("machine", "stop otter --yes"),
    ("ls", "ls"),
    ("down", "down otter --yes"),
    ("image rm, volume rm", "image rm mine --yes"),
    ("image rm, volume rm", "volume rm data --yes"),
)


def test_what_is_kept_is_printed_as_the_page_says(written, own_home, capsys, aws):
    line = Line(own_home, capsys, aws)
    for heading, words in KEPT:
        said = line(words, "-o", "json")
        assert said.code == 0, said.out
        assert not faults(written, heading, said.json)


BY_ITSELF = (
    ("cron install, cron remove", "cron install --yes"),
    ("cron show", "cron show"),
    ("cron install, cron remove", "cron remove --yes"),
    ("cron test", "cron test"),
    ("watch --status", "watch --status"),
)


def test_what_goes_on_by_itself_is_printed_as_the_page_says(written, many, tmp_path):
    (tmp_path / "crontab").write_text(CRONTAB)
    (tmp_path / "crontab").chmod(0o755)
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TABLE": str(tmp_path / "table")}
    cloudgpu = QuickProgram(tmp_path / "home", own, many)
    cloudgpu.config("")
    assert cloudgpu("reap").code == 0
    for heading, words in BY_ITSELF:
        assert not faults(written, heading, cloudgpu(*words.split(), "-o", "json").json)


ADVICE = (
    ("fine-tuning", {"parameters": "7b", "method": "lora", "hours_per_week": 5}),
    ("research", {"cards": 4, "budget": 4000, "currency": "KRW", "rate": "1385.2", "rate_date": "2026-11-20"}),
    (None, {"memory": 5000}),
)


def test_a_recommendation_is_printed_as_the_page_says(written, tmp_path):
    with cloudgpu.connect(home=tmp_path / "home") as gpu:
        for work, asked in ADVICE:
            assert not faults(written, "recommend", gpu.recommend(work, **asked)), work


CALCULATED = (
    {"gpu": "v100", "price": "2.14", "utilization": "15%"},
    {"gpu": "k80", "utilization": "personal", "desktop": "rtx3090x2", "work": "training"},
    {"price": "0.01", "hours_per_day": 0, "currency": "KRW", "rate": "1400", "rate_date": "2026-11-20"},
)


def test_a_price_and_a_use_are_compared_as_the_page_says(written, tmp_path):
    with cloudgpu.connect(home=tmp_path / "home") as gpu:
        for asked in CALCULATED:
            assert not faults(written, "compare --utilization", gpu.compare(**asked)), asked
        assert not faults(written, "compare --desktops", gpu.desktops())


def test_a_report_that_is_sent_is_as_the_page_says(written, tmp_path):
    receiver = WebReceiver()
    (tmp_path / "config.toml").write_text(f"[alerts]\nto = ['json://{receiver.place}/', 'json://127.0.0.1:9/']\n")
    with cloudgpu.connect(home=tmp_path) as gpu:
        value, nothing = gpu.send_report(), gpu.send_report(month="last")
    receiver.end()
    assert nothing["nothing_sent"]
    assert not faults(written, "report --send", nothing)
    assert (len(value["sent"]), len(value["failed"])) == (1, 1)
    assert not faults(written, "report --send", value)


def test_a_team_is_printed_as_the_page_says(written):
    lacks = Missing("The role m does not exist.", "CREATE ROLE m NOLOGIN;", "the administrator")
    ways = (None, ()), (Team("m", "p"), (lacks,))
    for team, missing in ways:
        found = Sharing(
            "postgresql://h/d", "bo", "lab", Role.MEMBER, team, True, ("bo",), ("ada",), missing, ("x",), True
        )
        assert not faults(written, "ledger init", document(found))


def test_every_document_of_the_page_was_printed(printed, written):
    parts = {"finding", "account_offers", "setup", "volume", "network", "extra", "door", "skipped"}
    parts |= {"machine", "plan", "gpu", "price", "address", "desktop", "line", "gap", "check", "fault", "credential"}
    parts |= {"standing", "budget", "budgeted", "stopping", "told", "budget test", "report --send"}
    parts |= {
        "group",
        "sum",
        "rate",
        "uncounted",
        "lost",
        "burn",
        "projected",
        "projection",
        "fees",
        "lasting",
        "sustained",
    }
    parts |= {"job", "passed", "login", "watcher", "guards", "planned_ends", "guarded"}
    parts |= {"credits", "credit", "live", "asked", "trial", "stage", "resource", "reason"}
    parts |= {"difference", "identity", "ledger init", "lacking"}
    parts |= {
        "rule",
        "listing",
        "limits",
        "idleness",
        "schedule",
        "allowance",
        "unlabelled",
        "retention",
        "publication",
    }
    parts |= {"source", "signal", "verdict", "ends", "replayed", "stop", "work", "amount"}
    parts |= {"beside", "kept", "thing", "need", "limit", "region"}
    parts |= {"profile", "quoted", "rented", "sale", "usage", "ratio", "outcomes", "outcome", "scaled_outcomes", "mark"}
    parts |= {"compare --utilization", "compare --desktops"}
    parts |= {"report", "about", "dated", "project_sum", "reported", "rest", "kept_sum", "idled", "savings"}
    parts |= {"saved_stops", "saved_by", "saved_spot", "leftover", "ages"}
    parts |= {"decision", "done", "renewal", "warning", "left", "orphan", "launch", "saved"}
    parts |= {"wish", "past", "estimated", "paid_beside", "times_as_fast", "split", "unknown", "obstacle"}
    parts |= {
        "recommend",
        "memory_part",
        "rests_on",
        "other_way",
        "rentable",
        "pace",
        "buildable",
        "met",
        "supply",
        "advised",
    }
    parts |= {"profile", "quoted", "scaled", "clouds", "owned", "owning", "even", "paces", "daily", "worth", "own"}
    parts |= {"counterpart", "both", "relapse", "stale"}
    elsewhere = {heading for heading, _ in (*KEPT, *BY_ITSELF, *LEFT)} | set(ON_A_CLOUD)
    assert set(written) - parts - set(printed) - elsewhere == set()


def test_a_page_that_says_otherwise_is_noticed(written):
    broken = {**written, "cp": {"files": "text", "bytes": "number", "seconds": "number"}}
    said = faults(broken, "cp", {"files": 1, "bytes": 2, "speed": 3})
    assert sorted(said) == ["files: 1 is no text", "seconds: only written", "speed: only printed"]
