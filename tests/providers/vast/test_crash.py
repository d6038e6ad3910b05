"""A command that is killed after a launch that nobody wrote down, and before an end. All other moments: soak."""

from __future__ import annotations

import pytest

from tests.cli.many import Many
from tests.soak.crash_cloud import Moment
from tests.soak.crash_vast import HEADLINE, SDK, VastLife


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*SDK)
    yield many
    many.close()


def test_up_killed_after_its_launch_is_known_and_found_by_the_same_up(vast, tmp_path, forks):
    life = VastLife(vast, tmp_path / "home", forks)
    assert life.killed(*HEADLINE, at=Moment("rent", 1, "after"))
    assert len(life.ids()) == 1
    life.check_one_or_uncertain()
    life.check_known()


def test_up_killed_before_its_launch_is_not_sent_again_as_long_as_nobody_knows(vast, tmp_path, forks):
    life = VastLife(vast, tmp_path / "home", forks)
    assert life.killed(*HEADLINE, at=Moment("rent", 1, "before"))
    life.check_one_or_uncertain()
    assert life.ids() == []


def test_down_killed_before_its_end_is_finished_by_the_next(vast, tmp_path, forks):
    life = VastLife(vast, tmp_path / "home", forks)
    life.done(*HEADLINE)
    assert life.killed("down", "--all", "--yes", at=Moment("destroy", 1, "before"))
    life.check_down_leaves_nothing()


def test_up_killed_before_it_ends_what_a_refusal_left_is_finished_by_the_next_look(vast, tmp_path, forks):
    life = VastLife(vast, tmp_path / "home", forks)
    vast.refuse_with_contract()
    assert life.killed(*HEADLINE, at=Moment("destroy", 1, "before"))
    life.check_refusal_leaves_nothing()
