"""Taking over a price list, for any answer: no date is ever mixed, what did not answer stays, nothing is made up."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from cloudgpu import catalog
from cloudgpu.catalog.location import use_directory
from cloudgpu.catalog.refreshed import (
    StoredPart,
    StoredPrices,
    price_index,
    price_list_file,
    stored_prices,
    write_price_list,
)
from cloudgpu.catalog.storage import embedded_storage
from cloudgpu.catalog.takeover import embedded_row, merge_prices, storage_row
from cloudgpu.control.catalog.prices import price_difference_document
from cloudgpu.core.catalog.pricelist import PER_HOUR, PartBuilder, PriceList, PricePart, PriceRow, RefusedRow, RowKey
from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money

EARLIER, NOW = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC)
ITEMS = ("g5.xlarge", "p3.2xlarge", "no.such", "gp3")
SCOPES = ("us-east-1 list", "us-west-2 list", "us-east-1 spot")


def row(item, scope, nanos, as_of):
    market = None if item == "gp3" else Market.SPOT if scope.endswith("spot") else Market.ON_DEMAND
    unit = "usd_per_gb_month" if market is None else PER_HOUR
    return PriceRow(RowKey(item, scope.split()[0], market), unit, Money(nanos), "a list", as_of, Basis.LISTED)


prices = st.dictionaries(st.sampled_from(ITEMS), st.integers(1, 10**11), max_size=4)
answers = st.dictionaries(st.sampled_from(SCOPES), st.none() | st.tuples(prices, st.booleans()), max_size=3)


def answer(said, as_of):
    parts = tuple(
        PricePart(
            scope,
            as_of,
            tuple(
                row(item, scope, nanos, as_of)
                for item, nanos in found[0].items()
                if not (item == "gp3" and "spot" in scope)
            ),
            (RefusedRow("a row", "is free"),) if found[1] else (),
        )
        for scope, found in said.items()
        if found is not None
    )
    return PriceList("aws", parts, tuple(Unanswered(scope, "silent") for scope, found in said.items() if found is None))


def by_key(kept):
    return {one.key: one for one in kept.rows()}


@given(answers, answers, st.booleans())
def test_what_stands_is_either_of_now_or_untouched(first, second, accept):
    before = merge_prices(StoredPrices("aws"), answer(first, EARLIER), 2.0, accept=True).stored
    after = merge_prices(before, answer(second, NOW), 2.0, accept=accept)
    was, stands = by_key(before), by_key(after.stored)
    said = {one.key: one for part in answer(second, NOW).parts for one in part.rows}
    for key, one in stands.items():
        assert one in (said.get(key), was.get(key))
        assert one.as_of == (NOW if one == said.get(key) else EARLIER)
        assert key.item != "no.such"
    for scope in {gap.scope for gap in after.unanswered}:
        assert after.stored.parts.get(scope) == before.parts.get(scope)
    for moved in after.changes:
        assert stands.get(moved.key) == (moved.new if moved.is_accepted else was.get(moved.key))
        assert moved.is_accepted or moved.new in after.stored.rejected_changes


@given(answers)
def test_a_list_that_says_the_same_again_moves_nothing(said):
    before = merge_prices(StoredPrices("aws"), answer(said, EARLIER), 2.0, accept=True).stored
    after = merge_prices(before, answer(said, NOW), 2.0, accept=False)
    assert not after.changes
    assert set(by_key(after.stored)) == set(by_key(before))


def test_only_prices_that_the_catalogue_knows_count_as_renewed():
    known_and_unknown = answer({SCOPES[0]: ({"g5.xlarge": 10**9, "no.such": 10**9}, False)}, NOW)
    found = merge_prices(StoredPrices("aws"), known_and_unknown, 2.0, accept=False)
    assert (found.renewed_count, found.unknown_types) == (1, ("no.such",))


def test_what_was_held_back_is_settled_when_the_price_comes_back():
    usual, far = answer({SCOPES[0]: ({"gp3": 80_000_000}, False)}, EARLIER), {SCOPES[0]: ({"gp3": 800_000_000}, False)}
    before = merge_prices(StoredPrices("aws"), usual, 2.0, accept=True).stored
    held = merge_prices(before, answer(far, NOW), 2.0, accept=False).stored
    assert [one.price.nanos for one in held.rejected_changes] == [800_000_000]
    silent = merge_prices(held, answer({SCOPES[0]: None}, NOW), 2.0, accept=False).stored
    assert silent.rejected_changes == held.rejected_changes
    back = merge_prices(held, answer({SCOPES[0]: ({"gp3": 81_000_000}, False)}, NOW), 2.0, accept=False).stored
    assert back.rejected_changes == ()


@pytest.fixture
def place(tmp_path):
    use_directory(tmp_path / "catalog")
    yield tmp_path / "catalog"
    use_directory(tmp_path / "nothing")


def kept(nanos):
    return merge_prices(
        StoredPrices("aws"), answer({SCOPES[0]: ({"g5.xlarge": nanos}, False)}, NOW), 2.0, accept=True
    ).stored


def test_what_is_written_is_read_again_to_the_last_nano(place):
    write_price_list(kept(1_006_000_001))
    assert stored_prices("aws") == kept(1_006_000_001)
    ((found,),) = (list(one.values()) for one in price_index("aws").machines.values())
    assert found.price == Money(1_006_000_001)
    write_price_list(kept(2))
    assert stored_prices("aws", before=True) == kept(1_006_000_001)
    assert price_index("aws").machines["g5.xlarge"]["us-east-1", Market.ON_DEMAND].price == Money(2)


def test_a_newer_price_of_a_newer_cloudgpu_counts_before_an_older_refreshed_one(place):
    on_demand = RowKey("g5.xlarge", "us-east-1", Market.ON_DEMAND)
    listed = embedded_row("aws", on_demand)
    (disk,) = (one for one in embedded_storage("aws", "gp3") if one.region == "us-east-1")
    twice = Money(listed.price.nanos * 2)

    def refresh(age):
        rows = (replace(listed, price=twice, as_of=listed.as_of - age),
                replace(storage_row(disk), price=Money(disk.price.nanos * 2), as_of=disk.as_of - age))  # fmt: skip
        write_price_list(StoredPrices("aws", {SCOPES[0]: StoredPart(rows[0].as_of, rows)}))
        return catalog.on_demand_price("aws", "g5.xlarge", "us-east-1"), catalog.disk_price("aws", "us-east-1", "gp3")

    machine, gp3 = refresh(-timedelta(1))
    assert (machine.per_hour, gp3.price) == (twice, Money(disk.price.nanos * 2))
    machine, gp3 = refresh(timedelta(1))  # refreshed long ago: cloudgpu has come with newer prices since
    assert (machine, gp3.price, gp3.as_of) == (listed.hourly_price(), disk.price, disk.as_of)
    assert price_difference_document("aws", 2.0, last=False)["changes"] == [], "no price that was refreshed is in use"
    nanos = listed.price.nanos * 5 // 2  # 2.5 times the price in use, and 1.25 times the one that is in no use
    found = merge_prices(
        stored_prices("aws"), answer({SCOPES[0]: ({"g5.xlarge": nanos}, False)}, NOW), 2.0, accept=False
    )
    assert [(one.old, one.is_accepted) for one in found.changes] == [(listed, False)]


def test_a_newer_embedded_price_that_is_less_reliable_replaces_no_listed_one(place):
    spot = next(
        RowKey(one.type.name, one.listed.region, Market.SPOT)
        for one in catalog.offers("aws", market=Market.SPOT)
        if one.listed.price.basis is Basis.DERIVED
    )
    derived = embedded_row("aws", spot)
    row_before = replace(derived, price=Money(7), as_of=derived.as_of - timedelta(1), basis=Basis.LISTED)
    write_price_list(StoredPrices("aws", {"a": StoredPart(row_before.as_of, (row_before,))}))
    assert catalog.listed_price("aws", spot.item, spot.region, Market.SPOT).per_hour == Money(7)


def test_whoever_reads_while_it_is_written_sees_one_or_the_other(place):
    write_price_list(kept(1))
    seen, over = set(), threading.Event()

    def look():
        while not over.is_set():
            seen.add(next(iter(stored_prices("aws").rows())).price.nanos)

    reader = threading.Thread(target=look)
    reader.start()
    for turn in range(60):
        write_price_list(kept(1 + turn % 2))
    over.set()
    reader.join()
    assert seen <= {1, 2}
    assert {one.name for one in place.iterdir()} == {"aws.json", "aws.before.json"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"format": 2, "provider": "aws", "parts": {}, "held": []}',
        '{"format": 1, "provider": "gcp", "parts": {}, "held": []}',
        '{"format": 1, "provider": "aws", "parts": {"a": {"asked_at": "yesterday", "rows": []}}, "held": []}',
        '{"format": 1, "provider": "aws", "parts": {}, "held": [["g5.xlarge", "us-east-1", "spot", "u", 0, "s", "x"]]}',
    ],
)
def test_a_file_that_cannot_be_meant_prices_nothing(place, text):
    place.mkdir()
    price_list_file("aws").write_text(text)
    assert not price_index("aws").machines
    with pytest.raises(Exception, match="cannot be read"):
        stored_prices("aws")


def test_a_row_is_named_when_it_is_refused_and_its_twin_too():
    rows = PartBuilder("a scope", NOW)
    key = RowKey("g5.xlarge", "us-east-1", Market.ON_DEMAND)
    for usd in ("1", "1.0", "2", "1"):
        rows.add(key, PER_HOUR, usd, source="a list", name=f"row {usd}")
    assert rows.part().rows == ()
    assert [one.name for one in rows.part().refused] == ["row 2"]


def test_a_factor_counts_both_ways_and_its_edge_is_still_near():
    first = merge_prices(
        StoredPrices("aws"), answer({SCOPES[0]: ({"gp3": 100}, False)}, EARLIER), 2.0, accept=True
    ).stored
    for nanos, is_taken in ((200, True), (201, False), (50, True), (49, False)):
        found = merge_prices(first, answer({SCOPES[0]: ({"gp3": nanos}, False)}, NOW + timedelta(1)), 2.0, accept=False)
        assert [one.is_accepted for one in found.changes] == [is_taken]


def test_a_region_in_which_nothing_was_known_to_be_sold_is_no_gap():
    new, known = (
        PricePart("ap-southeast-9 spot", NOW, (), region="ap-southeast-9"),
        PricePart("x", NOW, (), (), "us-east-1"),
    )
    found = merge_prices(
        StoredPrices("aws"), PriceList("aws", (new, known, PricePart("all", NOW, ()))), 2.0, accept=False
    )
    assert [gap.scope for gap in found.unanswered] == ["x", "all"]
    assert found.stored == StoredPrices("aws")
