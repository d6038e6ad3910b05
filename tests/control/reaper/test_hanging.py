"""A cloud that takes a question and never answers: what it delays, what it does not, and what is said of it."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from cloudgpu import parallel
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle import lifecycle
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import AnswerTimeout, ProviderUnavailable, StopUnproved
from cloudgpu.testing.fake.store import Fault

BOUND_S = 20  # against a test that hangs
MOVES = 'timer = "moves"\n'  # a timer of the cloud's that can be taken away
SILENT = AnswerTimeout("The cloud did not answer.", field="provider")


class Hanging:
    """Whoever calls it waits until it is released, at the end of the test."""

    def __init__(self):
        self.begun, self.released = threading.Event(), threading.Event()
        self.is_left = lambda: False

    def __call__(self):
        part = parallel._THIS_THREAD.part
        self.is_left = lambda: part.is_abandoned
        self.begun.set()
        self.released.wait(BOUND_S)
        self.released.set()
        return ProviderUnavailable("the connection was closed")

    @property
    def is_on(self):
        return self.begun.is_set() and not self.released.is_set()


@pytest.fixture
def hanging():
    made = Hanging()
    yield made
    made.released.set()


@pytest.fixture
def two(make_lab, tmp_path, monkeypatch):
    """A lab with a second account, `far`, and clouds that may be silent for a moment only."""
    monkeypatch.setenv("CLOUDGPU_PATIENCE", "0.1")
    far = f'[accounts.far]\nprovider = "fake"\nstate_file = "{tmp_path / "far.json"}"\n'
    return make_lab(f"{MOVES}{far}{MOVES}")


def let_all_be_over(lab):
    """Let all machines be past their renew-until, without a timer of the cloud's that would have ended them."""
    for row in lab.rows():
        lab.session.provider(row.account).drop_timer(row.provider_id)
    lab.later(hours=80)


def far_of(lab):
    return lab.session.provider("far")


def witness(cloud, method, hanging, *, left=False):
    """Return a list that gets, at the next call of a method, whether the other side hung then; it is released by that.

    `left`: it is waited for no more; else it still is.
    """
    seen = []

    def note():
        hanging.begun.wait(BOUND_S)
        seen.append(hanging.is_on and hanging.is_left() is left)
        hanging.released.set()

    cloud.fail_next(method, note)
    return seen


@pytest.mark.parametrize("method", ["list", "resources"])
def test_a_due_stop_is_sent_while_another_account_hangs(two, hanging, method):
    two.up(name="fox", account="lab")
    let_all_be_over(two)
    far_of(two).fail_next(method, hanging, times=9)
    seen = witness(two.cloud, "stop_many", hanging, left=True)
    found = reap(two.session, ReapOptions(sweep=method == "resources"))
    assert seen == [True]
    assert (found.exit_code, [one.name for one in found.ended]) == (8, ["fox"])
    assert "far" in [gap.scope for gap in found.unanswered]


def test_a_look_at_all_accounts_names_the_one_that_hangs(two, hanging):
    two.up(name="fox", account="lab")
    far_of(two).fail_next("list", hanging, times=9)
    look = sync_all(two.session)
    assert hanging.is_on
    assert ([gap.scope for gap in look.unanswered], len(look.answered)) == (["far"], 1)


def test_a_region_that_does_not_say_whose_it_is_hides_no_other_one(two, hanging):
    two.up(name="fox", account="lab", region="north")
    two.up(name="owl", account="lab", region="south", key="b")
    session = two.opened()
    session.provider("lab").fail_next("identity", hanging)
    look = sync_all(session)
    assert (hanging.is_on, len(look.answered)) == (True, 1)


def test_an_account_that_was_left_hanging_writes_nothing_later(two, hanging):
    two.up(name="fox", account="lab")
    far_of(two).fail_next("list", hanging, times=9)
    sync_all(two.session)
    length = two.session.ledger.head()
    hanging.released.set()
    assert two.session.ledger.head() == length


def test_an_end_elsewhere_does_not_wait_for_the_look_at_an_account_that_hangs(two, hanging, monkeypatch):
    two.up(name="fox", account="lab")
    two.up(name="owl", account="far", key="b")
    let_all_be_over(two)
    monkeypatch.setenv("CLOUDGPU_PATIENCE", str(BOUND_S))
    far_of(two).hide("south")
    far_of(two).fail_next("get_many", hanging)
    seen = witness(two.cloud, "stop_many", hanging)
    found = reap(two.session, ReapOptions())
    assert seen == [True]
    assert ("fox" in [one.name for one in found.ended], found.exit_code) == (True, 8)


def test_a_machine_is_asked_for_by_itself_where_its_account_cannot_list(two):
    """Which regions there are is not said, say; the machine's own region answers."""
    two.up(name="fox", account="lab")
    let_all_be_over(two)
    two.cloud.fail_next("list", SILENT, times=2)
    found = reap(two.session, ReapOptions())
    assert ([one.name for one in found.ended], found.exit_code) == (["fox"], 8)


def test_a_machine_is_asked_for_by_itself_also_where_its_account_has_another_name_here(two):
    """A colleague with the same ledger has called it so, or it was renamed."""
    two.up(name="fox", account="lab")
    let_all_be_over(two)
    config = two.home / "config.toml"
    config.write_text(config.read_text().replace("[accounts.lab]", "[accounts.ours]"))
    two.session = two.opened()
    sync_all(two.session)
    two.session.provider("ours").fail_next("list", SILENT, times=2)
    found = reap(two.session, ReapOptions())
    assert ([one.name for one in found.ended], found.exit_code) == (["fox"], 8)


def raises_key_error():
    raise KeyError("State")


def test_a_defect_in_the_stop_of_one_account_keeps_no_other_one_on(two):
    two.up(name="fox", account="lab")
    two.up(name="owl", account="far", key="b")
    let_all_be_over(two)
    far_of(two).fail_next("stop_many", raises_key_error, times=9)
    found = reap(two.session, ReapOptions())
    assert ([one.name for one in found.ended], found.exit_code) == (["fox"], 9)
    assert [(one.name, one.why) for one in found.unconfirmed] == [
        ("owl", "Internal error: KeyError: 'State'. Please report it.")
    ]


@pytest.mark.parametrize("times", [1, 9])
def test_a_defect_in_the_sync_of_one_account_before_the_stop_keeps_no_other_one_on(two, times):
    two.up(name="fox", account="lab")
    two.up(name="owl", account="far", key="b")
    let_all_be_over(two)
    far_of(two).fail_next("get_many", raises_key_error, times=times)
    found = reap(two.session, ReapOptions())
    ended = {one.name for one in found.ended}
    assert ("fox" in ended, "owl" in ended) == (True, times == 1)
    if times > 1:
        assert ("owl", "Internal error: KeyError: 'State'. Please report it.") in [
            (one.scope, one.why) for one in found.unanswered
        ]
        assert found.exit_code == 8


def test_an_answer_that_lacks_a_machine_keeps_no_other_account_on(two):
    two.up(name="fox", account="lab")
    owl = two.up(name="owl", account="far", key="b").machine
    let_all_be_over(two)
    provider = two.session.provider("far")
    get_many = provider.get_many
    provider.get_many = lambda ids: {id_: one for id_, one in get_many(ids).items() if id_ != owl.provider_id}
    found = reap(two.session, ReapOptions())
    assert [one.name for one in found.ended] == ["fox"]
    why = f"Internal error: LookupError: the answer lacks {owl.provider_id}. Please report it."
    assert ("owl", why) in [(one.scope, one.why) for one in found.unanswered]
    assert found.exit_code == 8


def test_a_defect_in_the_renewal_of_one_lease_lets_no_other_one_end(lab):
    for name in ("fox", "owl"):
        lab.up(name=name, key=name)
    expires = min(from_iso(row.expires) for row in lab.rows())
    lab.clock.advance((expires - lab.clock()).total_seconds() - 300)
    lab.cloud.fail_next("tag", raises_key_error)
    found = reap(lab.session, ReapOptions())
    assert (len(found.renewed), len(found.skipped)) == (1, 1)
    assert (
        found.skipped[0].why == "its lease could not be renewed: Internal error: KeyError: 'State'. Please report it."
    )


def test_a_defect_in_the_end_of_one_machine_keeps_no_other_one_on(make_lab):
    lab = make_lab(f'{MOVES}lacks = ["Pausable", "Imageable"]\n')
    for name in ("fox", "owl"):
        lab.up(name=name, key=name)
    let_all_be_over(lab)
    lab.cloud.fail_next("terminate", raises_key_error)
    found = reap(lab.session, ReapOptions())
    assert (len(found.ended), len(lab.machines()), found.exit_code) == (1, 1, 9)
    assert [one.why for one in found.unconfirmed] == ["Internal error: KeyError: 'State'. Please report it."]


def test_an_end_that_nobody_answers_is_given_up_soon_and_may_still_be_billed(lab):
    lab.up(name="fox")
    lab.cloud.fail_next("terminate", SILENT, times=99)
    lab.cloud.fail_next("get", SILENT, times=99)
    begun = lab.clock.now
    with pytest.raises(StopUnproved, match=r"fox has stopped .*It may still be billed"):
        lifecycle.terminate_one(lab.session, lab.rows()[0], why="a test")
    assert lab.clock.now - begun < timedelta(minutes=1)


def test_an_end_that_is_not_taken_while_the_machine_is_seen_says_both(lab):
    lab.up(name="fox")
    lab.cloud.fail_next("terminate", SILENT, times=99)
    with pytest.raises(StopUnproved, match="running; The cloud did not answer"):
        lifecycle.terminate_one(lab.session, lab.rows()[0], why="a test")


def test_an_end_that_was_done_and_not_answered_is_proved(lab):
    lab.up(name="fox")
    lab.cloud._add_fault(Fault.from_error("terminate", SILENT, times=9999, after=True))
    row = lifecycle.terminate_one(lab.session, lab.rows()[0], why="a test")
    assert (bool(row.terminated_at), lab.machines()) == (True, [])


def test_a_cloud_that_answers_with_errors_is_asked_on(lab):
    lab.up(name="fox")
    lab.cloud.fail_next("terminate", ProviderUnavailable("503"), times=30)
    assert lifecycle.terminate_one(lab.session, lab.rows()[0], why="a test").terminated_at


def test_stops_that_nobody_answers_are_left_to_the_next_pass(make_lab):
    lab = make_lab(MOVES)
    lab.up(name="fox")
    let_all_be_over(lab)
    lab.cloud.fail_next("stop_many", SILENT, times=99)
    begun = lab.clock.now
    found = reap(lab.session, ReapOptions())
    assert lab.clock.now - begun < timedelta(minutes=1)
    assert (found.exit_code, [one.name for one in found.unconfirmed]) == (9, ["fox"])
    lab.cloud.fail_next("stop_many", lambda: None)
    with lab.cloud._store.open() as cloud:
        cloud.faults.clear()
    assert [one.name for one in reap(lab.session, ReapOptions()).ended] == ["fox"]
