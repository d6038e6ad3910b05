"""`cloudgpu cost` on a ledger of many kinds of charges: 80 columns, CSV and JSON, and what is never zero."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from benchmarks.cli_start import fill
from cloudgpu.cli.app import run
from cloudgpu.cli.money.cost_text import _marked_amounts
from cloudgpu.cli.render import AmountFormatter
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.billing.cost_groups import Grouping
from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.open import open_ledger

NOW = datetime.now(UTC).replace(microsecond=0)
BEGIN = NOW - timedelta(days=10)
LONG = "=the-longest-name-that-anybody-has-ever-given-to-a-machine-of-theirs"


def price(nanos, basis="listed", as_of=BEGIN):
    return {"nanos_per_hour": nanos, "source": "a list", "as_of": iso(as_of), "basis": basis}


def beside(nanos, **more):
    found = {"what": "system disk of 100 GB", "resource": "disk", "stored_as": "gp3", "quantity": 100, "per": "month"}
    found |= {"nanos": nanos, "nanos_per_month": nanos and 100 * nanos, "at_most": False, "why_maybe_less": ""}
    found |= {"running": True, "kept": True, "named": False}
    return [found | {"source": "a list", "as_of": iso(BEGIN), "basis": "derived"} | more]


def launch(number, name, project, nanos=1_000_000_000, **more):
    body = {"attempt": 1, "seq": 1, "token": f"t{number}", "key": f"k{number}", "request": "0", "name": name}
    body |= {"provider": "aws", "account": "lab", "region": "us-east-1", "zone": "us-east-1a", "owner": "ada"}
    body |= {"instance_type": "p3.2xlarge", "market": "spot", "accelerators": [], "project": project}
    body |= {"price": nanos and price(nanos), "on_demand": price(3_060_000_000), "max_price": None}
    body |= {"policy": "default", "template": "jupyter", "stoppable": True, "stop_effect": "", "setup": None}
    body |= {"expires": iso(NOW + timedelta(hours=2)), "renew_until": iso(NOW + timedelta(hours=5)), "renew_s": 60}
    return Draft("launch_intended", f"cg-{number}", body | {"attached_costs": None} | more, BEGIN, f"launch:{number}")


def seen(number, state, at, reason=None):
    body = dict.fromkeys("launched_at address expires renew_until hold_until last_active".split())
    body |= {"provider_id": f"i-{number}", "state": state, "billed": state == "running", "reason": reason}
    body |= {"since": iso(at) if state == "running" else None}
    return Draft("instance_observed", f"cg-{number}", body, at, f"seen:{number}:{iso(at)}")


def gone(number, at):
    body = {"provider_id": f"i-{number}", "proof": "not found", "alive_at": None, "ended_at": None}
    return Draft("instance_vanished", f"cg-{number}", body, at, f"gone:{number}")


def lines():
    yield launch(1, "otter", "thesis", attached_costs=beside(80_000_000))
    yield launch(2, LONG, "@course", nanos=123_456_789_000_000)
    yield launch(3, "taken", "thesis", price=price(500_000_000, "unverified", BEGIN - timedelta(days=400)))
    yield launch(4, "unknown", "thesis", nanos=None, on_demand=None)
    yield launch(5, "lost", "-secret", attached_costs=beside(None))
    yield from (seen(number, "running", BEGIN + timedelta(hours=number)) for number in range(1, 6))
    yield seen(2, "stopped", BEGIN + timedelta(days=2))
    yield seen(3, "terminated", BEGIN + timedelta(days=1), "interrupted")
    yield seen(4, "terminated", BEGIN + timedelta(days=1))
    yield gone(5, BEGIN + timedelta(days=3))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("cost")
    ledger = open_ledger(None, home / "ledger", actor="ada", clock=lambda: NOW)
    ledger.append(list(lines()))
    ledger.close()
    return home


@pytest.fixture
def cost(home, monkeypatch, capsys):
    """The verb in this process: what it printed, and how it ended."""
    monkeypatch.setenv("CLOUDGPU_HOME", str(home))
    monkeypatch.setitem(open_session.__kwdefaults__, "clock", lambda: NOW)  # however long the suite runs before this

    def said(*words):
        code = run(["cost", *words])
        return code, capsys.readouterr()

    return said


def document(cost, *words):
    code, said = cost(*words, "-o", "json")
    assert code == 0, said
    return json.loads(said.out)


@pytest.mark.parametrize("by", list(Grouping))
@pytest.mark.parametrize("more", [(), ("--currency", "KRW", "--rate", "1385.2", "--rate-date", "2026-11-20")])
def test_no_line_is_wider_than_80_columns(cost, by, more):
    code, said = cost("--by", by, *more)
    assert code == 0, said
    assert [line for line in said.out.splitlines() if len(line) > 80] == []
    assert "total" in said.out


def test_a_long_name_is_cut_and_numbers_are_aligned(cost):
    _, said = cost()
    head, first, second = said.out[said.out.index("MACHINE") :].splitlines()[:3]
    assert "…" in first
    assert "$5,679,012.29" in first
    hours, cents = head.index("HOURS") + len("HOURS"), first.index(".29") + len(".29")
    assert (first[:hours].split()[-1], second[:hours].split()[-1]) == ("46.00", "239.00")
    assert second[:cents].split()[-1].startswith("$241.")
    assert second[cents] == "~"  # behind the last digit, so that the digits are under one another


def test_what_has_no_price_is_named_and_never_zero(cost):
    _, said = cost()
    (line,) = [line for line in said.out.splitlines() if line.startswith("unknown ")]
    assert "?" in line
    assert "$0" not in line
    assert "+ 2 without a price, in no sum: lost (disk), unknown (instance)." in " ".join(said.out.split())
    group = next(one for one in document(cost)["groups"] if one["name"] == "unknown")
    assert (group["usd"], group["low_usd"], group["without_price"]) == (None, None, 1)


def test_idle_time_without_a_known_price_is_never_zero_in_a_report(tmp_path, monkeypatch, capsys):
    ledger = open_ledger(None, tmp_path / "ledger", actor="ada", clock=lambda: NOW)
    ended = seen(4, "terminated", BEGIN + timedelta(days=1))
    ledger.append([launch(4, "unknown", "thesis", nanos=None, on_demand=None), seen(4, "running", BEGIN), ended])
    ledger.close()
    monkeypatch.setenv("CLOUDGPU_HOME", str(tmp_path))
    monkeypatch.setitem(open_session.__kwdefaults__, "clock", lambda: NOW)
    assert run(["report", "--format", "json", "--to", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    (machine,) = report["machines"]
    amounts = [machine["usd"], machine["idle_usd"], *(report["idle"][key] for key in ("usd", "low_usd", "high_usd"))]
    assert (amounts, report["idle"]["unknown_hours"]) == ([None] * 5, "24")
    assert not any(line.startswith("Projected at") for line in report["comparison"]["assumptions"])
    assert run(["cost"]) == 0
    assert capsys.readouterr().out.startswith("? (no price is known) so far; ")
    assert run(["report", "--format", "md", "--to", "-"]) == 0
    assert capsys.readouterr().out.count("- Without a price, and in no sum: unknown (instance).") == 1
    assert run(["report", "--to", "-"]) == 0
    assert "if none was, an amount that is not known went into them" in capsys.readouterr().out


def test_an_hour_of_what_runs_without_a_known_price_is_never_zero(tmp_path, monkeypatch, capsys):
    ledger = open_ledger(None, tmp_path / "ledger", actor="ada", clock=lambda: NOW)
    ledger.append([launch(4, "unknown", "thesis", nanos=None, on_demand=None), seen(4, "running", BEGIN)])
    monkeypatch.setenv("CLOUDGPU_HOME", str(tmp_path))
    monkeypatch.setitem(open_session.__kwdefaults__, "clock", lambda: NOW)
    assert run(["cost", "-v"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("? (no price is known) so far; ? an hour now.")
    assert "Now ? an hour (nothing known; 1 without a price)." in said
    assert run(["report", "--to", "-"]) == 0
    assert "<dt>An hour, as things stand</dt><dd>not known</dd>" in capsys.readouterr().out
    ledger.append([launch(1, "otter", "thesis"), seen(1, "running", BEGIN)])
    ledger.close()
    assert run(["cost"]) == 0
    assert "; at least $1.0000 an hour now." in capsys.readouterr().out


def test_what_follows_from_an_unknown_cost_is_never_zero(tmp_path, monkeypatch, capsys):
    """Projections, fees, credits, days and the month of `cost`; owners, and the spending, of a report."""
    ledger = open_ledger(None, tmp_path / "ledger", actor="ada", clock=lambda: NOW)
    ledger.append([launch(4, "unknown", "thesis", nanos=None, on_demand=None, owner="bob"), seen(4, "running", BEGIN)])
    (tmp_path / "config.toml").write_text('[fees]\ntax_percent = "10"\n[[credits]]\namount = 300\nname = "grant"\n')
    monkeypatch.setenv("CLOUDGPU_HOME", str(tmp_path))
    monkeypatch.setitem(open_session.__kwdefaults__, "clock", lambda: NOW)
    assert run(["cost"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "At this rate" not in said
    assert "left): ?. ? with tax (10%), and without" in said
    assert run(["cost", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["fees"]["total_usd"], found["this_month_usd"], found["days"][-2]["usd"]) == (None, None, None)
    assert {found["projected"]["end_of_month"][name] for name in ("usd", "low_usd", "high_usd", "more_usd")} == {None}
    assert run(["report", "--to", "-"]) == 0
    page = capsys.readouterr().out
    assert "What was spent in this time is not known" in page
    assert "Nothing was spent" not in page
    ledger.append([launch(1, "otter", "thesis"), seen(1, "running", BEGIN)])
    ledger.close()
    assert run(["cost"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "At this rate: at least $" in said
    assert "left): at least $" in said
    assert "At least $264.00 with tax (10%)" in said
    assert run(["report", "--format", "md", "--to", "-"]) == 0
    text = capsys.readouterr().out
    assert "| bob | not known | not known | not known |" in text
    assert "Now it costs at least $1.0000 an hour; at that rate the sum is at least $" in text


def test_bytes_out_that_nobody_has_read_are_named(cost):
    _, said = cost()
    assert f"bytes out that nobody has read, of otter, {LONG}, taken, unknown, lost;" in " ".join(said.out.split())
    found = {one["name"]: one for one in document(cost)["unmetered"]}
    assert found["otter"] | {"since": ""} == {"machine": "cg-1", "name": "otter", "since": "", "until": None}
    assert found["lost"]["until"] == iso(BEGIN + timedelta(days=3))
    later = (NOW - timedelta(days=2)).strftime("%Y-%m-%dT%H:%MZ")
    assert {one["name"] for one in document(cost, "--since", later)["unmetered"]} == {"otter", LONG}


def test_marks_ranges_and_reasons_are_shown(cost):
    found = {one["name"]: one for one in document(cost)["groups"]}
    assert found["otter"]["marks"] == "~"
    assert found["taken"]["marks"] == "?!"
    lost = found["lost"]
    assert Decimal(lost["low_usd"]) <= Decimal(lost["usd"]) < Decimal(lost["high_usd"])
    assert lost["reasons"]
    text = " ".join(cost("-v")[1].out.split())
    assert "* BETWEEN AT LEAST AT MOST lost" in text
    assert "Because: lost (instance): it ended between" in text
    assert "Prices: ~ derived, ? unverified, ! dated more than 180 days before." in text
    cells = [re.search(r"\d([+*?~^!]*)(?=\s|$)", line.split("$")[-1]) for line in cost()[1].out.splitlines()[1:7]]
    assert all(len(cell[1]) <= 1 for cell in cells if cell)  # one mark a line


def test_a_range_that_no_shown_digit_tells_has_no_mark():
    shown = {"usd": "0.02", "without_price": 0, "marks": ""}
    alike, wide = ("0.019998", "0.020002"), ("0.0106", "0.02")
    sums = [shown | {"low_usd": low, "high_usd": high} for low, high in (alike, wide)]
    assert [cell.strip() for cell in _marked_amounts(sums, AmountFormatter(None, 2))] == ["$0.0200", "$0.0200*"]


def test_without_v_a_range_is_a_mark_and_its_reasons_are_left_out(cost):
    text = " ".join(cost()[1].out.split())
    assert "* not known exactly; -v says between what, and why. Prices: ~ derived" in text
    assert "BETWEEN" not in text
    assert "Because" not in text


def test_the_first_line_says_what_it_has_cost_and_what_an_hour_costs_now(cost):
    text = " ".join(cost()[1].out.split())
    assert re.match(r"\$5,679,2\S+\+ \(at most \$5,679,3\S+\) so far; \$1\.0111 an hour now\. MACHINE ", text), text
    over = cost("--since", iso(NOW - timedelta(days=9)), "--until", iso(NOW - timedelta(days=8)))[1].out
    words = " ".join(over.partition("\n\n")[0].split())
    assert re.fullmatch(r"\$\S+ \(at most \S+\) from \S+Z until \S+Z\.", words), words  # what is over costs nothing now
    assert " so far for ada; $1.0111 an hour now." in " ".join(cost("--owner", "ada")[1].out.split())
    month = " ".join(cost("--by", "project", "-v")[1].out.split())
    named = re.match(r"(\$\S+) so far this month, \$\S+ \(at most \$\S+\) in all; ", month)
    assert bool(named) == (BEGIN.month != NOW.month), month


def test_what_goes_on_costing_is_a_line_and_with_v_a_table_with_its_grounds(cost):
    brief, full = cost()[1].out, cost("-v")[1].out
    assert "At this rate: at least $5,679," in brief
    assert "PROJECTED" not in brief
    assert "PROJECTED" in full
    assert "Assumes that running machines stay up until renew-until" in full


def test_days_are_read_where_they_are_shown_and_add_up(cost):
    found = document(cost)
    days = found["days"]
    assert len(days) == 31
    assert days[-1]["day"] == NOW.date().isoformat()
    assert sum(Decimal(one["usd"]) for one in days) == Decimal(found["total"]["usd"])
    in_month = [Decimal(one["usd"]) for one in days if one["day"][:7] == NOW.strftime("%Y-%m")]
    assert sum(in_month) == Decimal(found["this_month_usd"])
    day = iso(NOW - timedelta(days=9))[:10]
    short = document(cost, "--since", day, "--until", (NOW - timedelta(days=6)).date().isoformat())
    assert short["days"][0]["day"] == day
    assert (len(short["days"]), short["this_month_usd"]) == (3, None)
    theirs = document(cost, "--owner", "ada")["days"]
    assert theirs == days


def test_a_line_of_days_is_shown_with_v_and_none_in_a_pipe(cost):
    full = cost("-v")[1].out
    (line,) = [line for line in full.splitlines() if line.startswith("31 days  ")]
    assert len(line.split("  ")[1]) == 31
    assert "at most $5,6" in full
    assert "31 days" not in cost()[1].out


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_a_chart_takes_the_place_of_the_table_at_every_width(cost, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, said = cost("--chart")
    assert code == 0
    assert "Spending by day, " in said.out
    assert "MACHINE" not in said.out
    assert "2 without a price, in no sum" in " ".join(said.out.split())  # money that is in no sum is never left out
    assert [line for line in said.out.splitlines() if len(line) > columns and LONG not in line] == []
    assert "\x1b" not in said.out


@pytest.mark.parametrize("beside", [("--verify",), ("-o", "csv"), ("-o", "json")])
def test_a_chart_is_refused_where_it_would_be_left_out(cost, beside):
    code, said = cost("--chart", *beside)
    assert code == 2
    assert "--chart draws in the terminal" in said.out + said.err


def test_of_many_groups_the_dearest_are_shown_and_the_others_are_one(tmp_path, monkeypatch, capsys):
    fill(tmp_path, machines=20, lines=80)
    monkeypatch.setenv("CLOUDGPU_HOME", str(tmp_path))
    assert run(["cost"]) == 0
    brief = capsys.readouterr().out
    assert run(["cost", "-v"]) == 0
    full = capsys.readouterr().out
    assert [len(re.findall(r"(?m)^machine-\d+ ", text.partition("BETWEEN")[0])) for text in (brief, full)] == [
        10,
        20,
    ]
    (others,) = [line.split() for line in brief.splitlines() if "others" in line]
    assert others[:3] == ["10", "others", "(-v)"]
    total = next(line.split() for line in brief.splitlines() if line.startswith("total"))
    hours = sum(float(line.split()[1]) for line in brief.splitlines() if re.match(r"machine-\d+ ", line))
    assert float(total[1]) == pytest.approx(hours + float(others[3]), abs=0.06)


def test_interrupted_runs_have_a_line_of_their_own(cost):
    found = document(cost)["interrupted"]
    assert (found["usd"], found["number"]) == ("10.5", 1)  # 21 hours at half a dollar
    assert "In it: 1 run that the provider interrupted: $10.50." in cost()[1].out


def test_the_sum_of_the_days_is_the_total_in_every_zone(cost):
    whole = document(cost, "--since", iso(BEGIN), "--until", iso(NOW))["total"]
    for zone in ("UTC", "Asia/Seoul", "America/New_York"):
        for by in ("day", "week", "month", "market"):
            found = document(cost, "--by", by, "--tz", zone, "--since", iso(BEGIN), "--until", iso(NOW))
            assert sum(Decimal(one["usd"] or 0) for one in found["groups"]) == Decimal(found["total"]["usd"])
            assert found["total"] == whole


def test_what_goes_on_costing_is_told_with_its_assumption(cost):
    found = document(cost)
    burn = found["burn"]
    assert Decimal(burn["machines_usd_per_hour"]) > 1  # otter, with its disk
    assert (burn["stopped_usd_per_hour"], burn["without_price"]) == ("0", 0)
    projected = found["projected"]
    assert Decimal("2.0") < Decimal(projected["leases_end"]["more_usd"]) < Decimal("2.1")
    assert Decimal("5.0") < Decimal(projected["renew_until"]["more_usd"]) < Decimal("5.1")
    over = document(cost, "--until", iso(NOW - timedelta(days=1)))
    assert over["projected"] is None


def test_csv_is_plain_numbers_and_no_formula(cost):
    code, said = cost("--by", "instance", "-o", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(said.out, newline="")))
    assert {row["name"] for row in rows} == {"otter", f"'{LONG}", "taken", "unknown", "lost"}
    assert all("," not in row["usd"] for row in rows)
    assert next(row for row in rows if row["name"] == "unknown")["usd"] == ""
    assert rows[0]["as_of"].endswith("Z")
    projects = csv.DictReader(io.StringIO(cost("--by", "project", "-o", "csv")[1].out, newline=""))
    assert {row["group"] for row in projects} == {"'@course", "thesis", "'-secret"}


def test_a_currency_is_shown_with_its_rate_and_date(cost):
    words = ("--by", "project", "--currency", "KRW", "--rate", "1385.2", "--rate-date", "2026-11-20")
    assert "1 USD = 1385.2 KRW, rate of 2026-11-20, for every amount." in cost(*words)[1].out
    found = document(cost, *words)
    for one in (*found["groups"], found["total"]):
        assert Decimal(one["amount"]) == Decimal(one["usd"]) * Decimal("1385.2")


def test_what_was_spent_is_said_though_a_budgets_file_cannot_be_read(cost, home):
    file = home / "policies" / "budgets" / "lab.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("amount: free\nperiod: month\n")
    code, said = cost()
    file.unlink()
    assert (code, "total" in said.out) == (0, True)
    assert "how long the budgets last is not known" in said.err
    assert "lab.yaml" in said.err


def test_fees_are_in_a_line_of_their_own(cost, home):
    assert "Tax, support and marketplace fees are not in it." in cost()[1].out
    settings = home / "config.toml"
    settings.write_text('[fees]\ntax_percent = 10\nlabel = "VAT"\n')
    found = document(cost)
    said = cost()[1].out
    settings.unlink()
    assert abs(Decimal(found["fees"]["total_usd"]) - Decimal(found["total_usd"]) * Decimal("1.1")) < Decimal("1e-8")
    assert "with tax (10%) [VAT], and without support and marketplace fees." in " ".join(said.split())


def test_credits_come_off_below_the_total(cost, home):
    settings = home / "config.toml"
    settings.write_text('[[credits]]\nname = "trial"\nprovider = "aws"\namount = 100\nuntil = 2030-01-01\n')
    whole, late = document(cost)["credits"], document(cost, "--since", "day")["credits"]
    said = cost()[1].out
    settings.unlink()
    assert whole["applied"] == [{"name": "trial", "used_usd": "100", "remaining_usd": "0"}]
    assert Decimal(whole["before_usd"]) - Decimal(whole["after_usd"]) == 100
    assert late["applied"][0]["used_usd"] == "0"  # it was used up before
    assert "After credits (trial $100.00, $0.00 left):" in " ".join(said.split())


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("--by projcet", "--by"),
        ("--since 2026-02-30", "--since"),
        ("--since 2d --until 3d", "--until"),
        ("--tz Mars", "--tz"),
        ("--currency XYZ", "--currency"),
        ("--currency EUR", "--currency"),
        ("--currency KRW --rate 1385.2 --rate-date 2999-01-01", "--rate-date"),
        ("--verify --by day", "--by"),
        ("--verify --since 7d", "--since"),
    ],
)
def test_bad_input_is_exit_2_with_field_value_and_way_out(cost, words, field):
    code, said = cost(*words.split(), "-o", "json")
    error = json.loads(said.out)["error"]
    assert (code, error["field"]) == (2, field)
    assert error["value"]
    assert error["next"]


def test_an_empty_ledger_has_spent_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CLOUDGPU_HOME", str(tmp_path))
    assert run(["cost"]) == 0
    assert capsys.readouterr().out == "Nothing has been spent yet, as far as this ledger knows; no cloud was queried.\n"
    assert run(["cost", "--since", "7d"]) == 0
    assert capsys.readouterr().out.startswith("Nothing was spent since ")
