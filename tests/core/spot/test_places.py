"""Where a spot launch is tried first: by price, and by what was seen at each place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cloudgpu.core.spot.places import PlaceOffer, Sighting, SpotLocation, life_h, order_places

NOW = datetime(2026, 11, 1, 9, tzinfo=UTC)
A, B, C = (SpotLocation("lab", "north", zone, "v100") for zone in "abc")


def ago(**span):
    return NOW - timedelta(**span)


def order(offers, *seen):
    return [one.place for one in order_places(offers, seen, NOW, 0.25)]


def test_the_cheapest_place_is_first_where_nothing_was_seen():
    assert order([PlaceOffer(A, 100), PlaceOffer(B, 90), PlaceOffer(C, 100)]) == [B, A, C]


def test_a_place_that_had_no_capacity_is_last_for_half_an_hour():
    offers = [PlaceOffer(A, 90), PlaceOffer(B, 100)]
    assert order(offers, Sighting(ago(minutes=29), A, "refused")) == [B, A]
    assert order(offers, Sighting(ago(minutes=30), A, "refused")) == [A, B]
    assert order(offers, Sighting(ago(minutes=20), A, "refused"), Sighting(ago(minutes=1), A, "made")) == [A, B]


def test_a_place_that_takes_machines_often_is_worth_its_price_less():
    offers = [PlaceOffer(A, 100), PlaceOffer(B, 102)]
    losses = [Sighting(ago(hours=number), A, "taken", hours=0.3) for number in range(1, 20)]
    assert order(offers, *losses) == [B, A]
    assert order([PlaceOffer(A, 100), PlaceOffer(B, 400)], *losses) == [A, B]


def test_a_move_that_costs_more_than_the_price_saves_is_not_made():
    assert order([PlaceOffer(A, 100), PlaceOffer(B, 95, move_cost=1000)]) == [A, B]


def test_a_place_that_its_provider_thinks_unlikely_comes_later():
    assert order([PlaceOffer(A, 100, score=1), PlaceOffer(B, 110, score=9)]) == [B, A]


def test_scores_that_all_places_share_say_nothing_about_one():
    assert order([PlaceOffer(A, 100, score=2), PlaceOffer(B, 105)]) == [A, B]
    assert order([PlaceOffer(A, 105, score=1), PlaceOffer(B, 100, score=1), PlaceOffer(C, 104)]) == [B, C, A]


def test_long_lives_and_old_losses_make_a_place_better():
    losses = [Sighting(ago(hours=1), A, "taken", hours=1.0)] * 5
    old = [Sighting(ago(days=30), A, "taken", hours=1.0)] * 5
    assert life_h(losses, NOW) < life_h(old, NOW) <= 6.01
    assert life_h([Sighting(ago(hours=1), A, "ended", hours=40.0)], NOW) > 6
