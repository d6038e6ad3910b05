"""What a provider says of its zones counts where spot is tried first; where it says nothing, nothing changes."""

from __future__ import annotations

import pytest

from cloudgpu.control.spot.history import better_location
from cloudgpu.errors import AuthFailed
from cloudgpu.testing.fake.provider import FakeProvider
from tests.control.conftest import Lab

ASKED, SCORES = [], {}


class Scoring(FakeProvider):
    """A cloud with scores by zone, each of which may be None; without any it may not be asked."""

    def placement_scores(self, items):
        ASKED.append([item.zone for item in items])
        if not SCORES:
            raise AuthFailed("You may not ask that.", field="provider", value="lab", next="Ask for the right.")
        return [SCORES.get(item.zone) for item in items]


def make(settings):
    return Scoring(settings)


class ScoredLab(Lab):
    cloud_kind = "tests.control.spot.test_scores:make"


@pytest.fixture
def lab(tmp_path, monkeypatch):
    ASKED.clear()
    SCORES.clear()
    yield ScoredLab(tmp_path, monkeypatch)
    SCORES.clear()


def prepared(lab):
    found = lab.prepare(spot=True)
    return found, [one.configuration.zone for one in found.offers]


def test_the_zone_that_is_likeliest_is_tried_first_with_one_question(lab):
    found, zones = prepared(lab)
    SCORES.update(dict.fromkeys(zones, 3) | {zones[-1]: 9})
    place = better_location(lab.session, found)
    assert place.zone == zones[-1]
    assert len(ASKED) == 1


def test_scores_that_are_the_same_change_nothing(lab):
    found, zones = prepared(lab)
    SCORES.update(dict.fromkeys(zones, 1))
    assert better_location(lab.session, found) is None


def test_an_account_that_may_not_ask_launches_as_before_and_says_nothing(lab):
    found, _ = prepared(lab)
    said = list(lab.said)
    assert better_location(lab.session, found) is None
    assert len(ASKED) == 1
    assert lab.said == said
