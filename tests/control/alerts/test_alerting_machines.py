"""What a pass finds in the ledger of real machines of the fake cloud, and the dead-man's address."""

from __future__ import annotations

import json

import pytest

from cloudgpu.catalog.refreshed import StoredPrices, write_price_list as write_list
from cloudgpu.cli.money.budget_text import check_text
from cloudgpu.control.alerts.alerts import deliver, ping, topic_of_home
from cloudgpu.control.budgets.commands import BudgetOptions, check_budgets, set_budget_document
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.core.catalog.pricelist import PriceRow, RowKey
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.instances import TAG_RENEW_UNTIL
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import InvalidRequest
from tests.core.machines import machine
from tests.receivers.web import DRIP, HANG


def write(lab, kind, row, /, **body):
    now = lab.session.clock()
    lab.session.ledger.append([Draft(kind, row.id, body, now, f"{kind}:{row.id}:{now}")])


def test_a_machine_whose_lease_is_taken_away_is_told_until_it_has_one_again(lab):
    lab.up(name="fox")
    (row,) = lab.rows()
    assert deliver(lab.session, []).raised == ()
    write(lab, "lease_set", row, expires=None, renew_until=None, why="a test")
    assert deliver(lab.session, []).raised == (f"lease:{row.id}",)
    assert deliver(lab.session, []).active == ("fox runs without a lease",)
    lab.later(minutes=1)
    write(lab, "lease_set", row, expires=row.expires, renew_until=row.renew_until, why="a test")
    assert deliver(lab.session, []).cleared == (f"lease:{row.id}",)


def test_a_stop_without_proof_is_told_after_a_quarter_of_an_hour_and_until_the_proof(lab):
    lab.up(name="fox")
    (row,) = lab.rows()
    lab.later(minutes=1)
    write(lab, "terminate_requested", row, why="a test")
    lab.later(minutes=14)
    assert deliver(lab.session, []).raised == ()
    lab.later(minutes=2)
    assert deliver(lab.session, []).raised == (f"stop:{row.id}",)
    lab.cloud.terminate(row.provider_id)
    lab.later(minutes=2)
    sync_all(lab.session)
    assert deliver(lab.session, []).cleared == (f"stop:{row.id}",)


def test_a_machine_that_outlives_its_renew_until_is_told_though_every_look_finds_it_unchanged(lab):
    lab.up(name="fox")
    (row,) = lab.rows()
    kept = json.loads((lab.home.parent / "cloud.json").read_text())
    kept["machines"][0]["tags"].pop(TAG_RENEW_UNTIL)  # as on a cloud without a timer of its own
    (lab.home.parent / "cloud.json").write_text(json.dumps(kept))
    sync_all(lab.session)
    lab.clock.advance((from_iso(row.renew_until) - lab.clock()).total_seconds())
    sync_all(lab.session)
    assert deliver(lab.session, []).raised == ()
    lab.later(minutes=16)
    assert deliver(lab.session, []).raised == (), "nobody has looked since"
    sync_all(lab.session)
    assert deliver(lab.session, []).raised == (f"overdue:{row.id}",)


def test_a_spot_price_that_leapt_is_told_once(lab):
    lab.up(name="fox", spot=True)
    (row,) = lab.rows()
    for minutes, factor in ((10, 1.4), (20, 4.2)):
        lab.later(minutes=minutes)
        price = row.price.record() | {"nanos_per_hour": int(row.price.nanos_per_hour * factor)}
        write(lab, "price_observed", row, price=price)
        found = deliver(lab.session, [])
    (key,) = found.raised
    assert key == f"price:{row.provider}/{row.zone}/{row.instance_type}/spot"
    assert deliver(lab.session, []).raised == ()


def test_a_kept_volume_without_a_price_is_told(lab):
    thing = {
        "id": "vol-1", "kind": "volume", "name": "data", "provider": "fake", "account": "lab", "region": "here",
        "identity": None,
        "zone": "here-1", "size_gb": 20, "stored_as": "nosuch", "made_at": None, "ready": True, "owner": "ada",
        "project": "default", "attached_to": None, "nanos_per_month": None, "per": None, "nanos": None,
        "by_size": True, "why_maybe_less": "", "source": None, "as_of": None, "basis": None,
    }  # fmt: skip
    write(lab, "resource_observed", machine(id="resource:vol-1"), **thing)
    assert deliver(lab.session, []).active == ("There is no price for data",)


def test_prices_that_a_refresh_held_back_are_told_until_they_are_taken(lab):
    def held(name):
        key = RowKey(name, "us-east-1", Market.ON_DEMAND)
        return PriceRow(key, "usd_per_hour", Money.usd(99), "a list", lab.clock(), Basis.LISTED)

    key = topic_of_home(lab.session, "price") + ":list:aws"
    assert deliver(lab.session, []).raised == ()
    lab.session.home.price_lists.mkdir(parents=True)
    write_list(StoredPrices("aws", {}, tuple(map(held, ("p2.xlarge", "p3.2xlarge", "p3.8xlarge", "p3.16xlarge")))))
    assert deliver(lab.session, []).raised == (key,)
    assert deliver(lab.session, []).active == ("4 prices of aws changed too much at the last refresh",)
    line = [line for line in lab.session.ledger.events("alerts") if line.kind == "alert_raised"][-1]
    assert "p2.xlarge in us-east-1, p3.2xlarge in us-east-1, p3.8xlarge in us-east-1 and 1 more" in line.body["text"]
    (lab.session.home.price_lists / "aws.json").write_text("{")
    assert deliver(lab.session, []).cleared == (key,), "what cannot be read holds nothing back"
    write_list(StoredPrices("aws", {}, ()))
    assert deliver(lab.session, []).raised == ()


def deadman(make_lab, address):
    return make_lab(f'[alerts]\ndeadman = "{address}"\n')


def test_the_dead_mans_address_is_called_and_told_of_failures(make_lab, web):
    lab = deadman(make_lab, f"http://{web.place}/ping/uuid?rid=1")
    assert ping(lab.session, ok=True) is None
    assert ping(lab.session, ok=False) is None
    assert [(method, path) for method, path, _ in web.got] == [
        ("GET", "/ping/uuid?rid=1"),
        ("GET", "/ping/uuid/fail?rid=1"),
    ]


def test_without_a_dead_mans_address_nobody_is_called(lab):
    assert ping(lab.session, ok=True) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [(404, "answered 404"), (HANG, "did not answer within 0.3 seconds"), (DRIP, "did not answer within 0.3 seconds")],
)
def test_a_dead_mans_address_that_does_not_hear_us_becomes_an_alert(make_lab, web, answer, why):
    lab = deadman(make_lab, f"http://{web.place}/secret-uuid")
    web.answer = answer
    assert ping(lab.session, ok=True, wait_s=0.3) == why
    assert deliver(lab.session, []).active == ("The dead-man's address does not hear us",)
    assert not any("secret-uuid" in str(line.body) for line in lab.session.ledger.events("alerts"))
    web.answer = 200
    assert ping(lab.session, ok=True) is None
    assert deliver(lab.session, []).active == ()


def test_a_dead_mans_address_that_is_down_is_no_error(make_lab, web):
    lab = deadman(make_lab, f"http://{web.place}/x")
    web.end()
    assert ping(lab.session, ok=True) == "could not be reached"


def test_a_pass_over_the_budgets_calls_it_at_its_end(make_lab, web):
    lab = deadman(make_lab, f"http://{web.place}/uuid")
    assert check_budgets(lab.session, None)["deadman"] is None
    assert paths(web) == ["/uuid"]


def test_what_is_told_of_one_budget_is_no_pass(make_lab, web):
    lab = deadman(make_lab, f"http://{web.place}/uuid")
    set_budget_document(lab.session, BudgetOptions("lab", "300", "month"), overwrite=False)
    assert check_budgets(lab.session, "lab")["deadman"] is None
    assert paths(web) == []


def test_a_pass_that_breaks_off_tells_it_so_and_ends_as_it_would_have(make_lab, web):
    lab = deadman(make_lab, f"http://{web.place}/uuid")
    place = lab.session.home.policies / "budgets"
    place.mkdir(parents=True)
    (place / "lab.yaml").write_text("amount: free\nperiod: month\n")
    with pytest.raises(InvalidRequest, match="free"):
        check_budgets(lab.session, None)
    assert paths(web) == ["/uuid/fail"]


@pytest.mark.soak
def test_a_pass_whose_alert_nobody_takes_tells_it_so(make_lab, web):
    lab = make_lab(f'[alerts]\nto = ["json://127.0.0.1:1/x"]\ndeadman = "http://{web.place}/uuid"\n')
    lab.up(name="fox")
    (row,) = lab.rows()
    write(lab, "lease_set", row, expires=None, renew_until=None, why="a test")
    assert check_budgets(lab.session, None)["alerts"]["failed"]
    assert paths(web) == ["/uuid/fail"]


def test_check_says_when_it_was_not_heard(make_lab, web):
    lab = deadman(make_lab, f"http://{web.place}/secret-uuid")
    web.answer = 404
    said = check_text(check_budgets(lab.session, None), "15m")
    assert "The dead-man's address did not get this run's report: it answered 404." in said
    assert "secret-uuid" not in said


def paths(web):
    return [path for _, path, _ in web.got]
