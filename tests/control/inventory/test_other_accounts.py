"""Two members of a lab on one ledger, whose accounts have one name and are two: no look at one speaks of the other."""

from __future__ import annotations

import weakref
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.control.budgets.commands import BudgetOptions, budget_of_options
from cloudgpu.control.budgets.store import set_budget
from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.inventory.listing import list_machines, oldest_synced_at
from cloudgpu.control.inventory.settle import settle, settle_abandoned_launches
from cloudgpu.control.inventory.sync import refresh, sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_with_resources
from cloudgpu.control.lifecycle.lost import record_as_lost
from cloudgpu.control.lifecycle.timers import repair_timers
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.resources.named import find_named, remove_named, save_image
from cloudgpu.control.resources.orphans import survey
from cloudgpu.control.scheduler.jobs import reap_once
from cloudgpu.control.session.identity import machines_to_evaluate
from cloudgpu.control.setup.ledger_admin import verify_document
from cloudgpu.control.setup.retire_account import forget, plan
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.offers import Requirements
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.resources.orphan import CleanupOptions as Sweep
from cloudgpu.core.resources.retention import is_parking_complete
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import (
    AuthFailed,
    BudgetRefused,
    LaunchUncertain,
    LedgerUnavailable,
    NotReachableHere,
    ProviderUnavailable,
)
from cloudgpu.testing import FAKE, ManualClock, write_plugin
from tests.control.conftest import OPENED

DAY = timedelta(days=1)


class Two:
    """Homes of ada and bob: one ledger, and a cloud each, which both call `lab` where nothing else is said."""

    def __init__(self, tmp_path, monkeypatch, url):
        monkeypatch.syspath_prepend(write_plugin(tmp_path / "plugin", {"fake": FAKE}))
        self.root, self.url, self.clock, self.said = tmp_path, url, ManualClock(), []
        self.ada, self.bob = self.home("ada"), self.home("bob")

    def home(self, who, *, cloud=None, account="lab", more=""):
        """Return a new session of this home, with its account at a cloud."""
        home = self.root / who
        home.mkdir(exist_ok=True)
        state = self.root / f"{cloud or who}.json"
        table = f'provider = "fake"\n[accounts.{account}]\nprovider = "fake"\nstate_file = "{state}"\n{more}'
        (home / "config.toml").write_text(table)
        environ = {"CLOUDGPU_HOME": str(home), "USER": who, "CLOUDGPU_LEDGER": self.url}
        session = open_session(environ, clock=self.clock, tell=self.said.append)
        session.pause = self.clock.advance
        OPENED.append(weakref.ref(session))
        return session

    def up(self, session, name="fox", **more):
        want = Requirements(gpu="v100", instance_type=more.pop("instance_type", None))
        return launch(session, prepare(session, UpRequest(want, name=name, **more)), wait=False).machine

    def later(self, minutes=10):
        self.clock.advance(minutes * 60)

    def machine(self, name="fox"):
        (row,) = [row for row in self.ada.ledger.billable_machines() if row.name == name]
        return row

    def running(self, session, account="lab"):
        return [one for one in session.provider(account).list().instances if one.billed]

    def check_untouched(self):
        """Ada's machine runs, is billed, and its row says so."""
        assert (len(self.running(self.ada)), self.machine().billed, self.machine().terminated_at) == (1, True, None)
        kinds = {line.kind for line in self.ada.ledger.events(self.machine().id)}
        assert not kinds & {"instance_vanished", "stop_requested", "terminate_requested", "machine_adopted"}


@pytest.fixture
def two(tmp_path, monkeypatch):
    return Two(tmp_path, monkeypatch, f"sqlite:///{tmp_path}/lab.db")


def test_a_look_at_another_account_of_the_same_name_calls_nothing_gone(two):
    two.up(two.ada)
    two.later()
    look = sync_all(two.bob)
    (gap,) = look.unanswered
    assert gap.scope == "fake account ada"
    assert gap.why == ("not reachable from here: fox is a machine of ada's `lab`; `lab` here is fake account bob.")
    two.check_untouched()
    assert sync_all(two.ada).unanswered == []


@pytest.mark.soak
def test_on_a_server_of_postgresql_too_each_member_tells_of_the_own_machines_alone(tmp_path, monkeypatch, postgres):
    two = Two(tmp_path, monkeypatch, postgres.schema())
    two.up(two.ada)
    two.up(two.bob, "owl")
    two.later()
    for session, other in ((two.bob, "ada"), (two.ada, "bob")):
        assert [gap.scope for gap in sync_all(session).unanswered] == [f"fake account {other}"]
        assert reap(session, ReapOptions()).exit_code == 8
    two.check_untouched()
    assert two.machine("owl").billed
    terminate_with_resources(two.ada, two.machine(), why="typed")
    assert (len(two.running(two.ada)), len(two.running(two.bob))) == (0, 1)


def test_a_pass_from_another_account_judges_nothing_there_and_says_so(two):
    two.up(two.ada)
    two.later()
    for dry in (True, False):
        found = reap(two.bob, ReapOptions(dry_run=dry))
        assert (found.exit_code, [gap.scope for gap in found.unanswered]) == (8, ["fake account ada"])
        assert (found.ended, found.unconfirmed) == ((), ())
    assert two.bob.ledger.last("reaper").body["ok"], "all that this computer can reach was judged"
    two.check_untouched()


def test_cron_is_silent_of_a_colleagues_account_until_nobody_has_asked_it_for_a_day(two):
    two.up(two.ada)
    for hours, told in ((25, []), (2, ["fake account ada"])):
        two.later(hours * 60)
        found = reap(two.bob, ReapOptions(cron=True)).without_accounts_queried_elsewhere()
        assert ([gap.scope for gap in found.unanswered], found.exit_code) == (told, 8 if told else 0)
    sync_all(two.ada)
    assert reap(two.bob, ReapOptions(cron=True)).without_accounts_queried_elsewhere().exit_code == 0


def test_watch_says_nothing_of_a_colleagues_account_until_nobody_has_asked_it_for_a_day(two):
    every = timedelta(minutes=10)
    two.up(two.ada)
    two.later()
    reap_once(two.bob, every)  # the first one makes the night's sweep, too, and says so
    two.later()
    assert reap_once(two.bob, every) == ""
    two.later(26 * 60)
    assert "fake account ada" in reap_once(two.bob, every)


@pytest.mark.parametrize(
    "verb",
    [
        lambda session, row: terminate_with_resources(session, row, why="typed"),
        lambda session, row: stop(session, row, why="typed"),
        refresh,
        lambda session, row: save_image(session, row, None),
    ],
    ids=["down", "stop", "show --refresh", "image save"],
)
def test_a_verb_on_a_machine_of_another_account_is_refused_with_whose_it_is(two, verb):
    row = two.up(two.ada)
    two.later()
    with pytest.raises(NotReachableHere, match="fox belongs to fake account ada; `lab` here is fake account bob") as no:
        verb(two.bob, row)
    assert (no.value.exit_code, no.value.next) == (8, "Ask ada, or run this where an account is fake account ada.")
    two.check_untouched()


def test_an_account_whose_name_is_not_configured_here_is_its_owners_alone(two):
    two.ada = two.home("ada", account="lab-ada")
    two.up(two.ada)
    two.later()
    (gap,) = sync_all(two.bob).unanswered
    assert gap.why.endswith("fox is a machine of ada's `lab-ada`, and config.toml here has no account lab-ada.")
    with pytest.raises(NotReachableHere, match=r"no account here is that one \(there it is called `lab-ada`\)"):
        terminate_with_resources(two.bob, two.machine(), why="typed")
    assert len(two.running(two.ada, "lab-ada")) == 1


def test_one_account_under_two_names_is_one(two):
    two.bob = two.home("bob", cloud="ada", account="shared")
    two.up(two.ada)
    two.later()
    look = sync_all(two.bob)
    assert (look.unanswered, look.sentences) == ([], [])
    assert [row.name for row in two.bob.ledger.machines()] == ["fox"]
    assert oldest_synced_at(two.bob, two.bob.ledger.machines()) is not None
    assert terminate_with_resources(two.bob, two.machine(), why="typed").machine.terminated_at is not None
    assert two.running(two.ada) == []


def test_credentials_that_were_exchanged_between_two_commands_reach_nothing_of_before(two):
    two.up(two.ada)
    two.later()
    changed = two.home("ada", cloud="other")
    with pytest.raises(NotReachableHere):
        terminate_with_resources(changed, two.machine(), why="typed")
    assert [gap.scope for gap in sync_all(changed).unanswered] == ["fake account ada"]
    two.check_untouched()


def test_an_account_of_another_provider_under_the_same_name_is_not_asked(two):
    two.up(two.ada)
    (two.root / "bob" / "config.toml").write_text('[accounts.lab]\nprovider = "ssh"\n')
    environ = {"CLOUDGPU_HOME": str(two.root / "bob"), "USER": "bob", "CLOUDGPU_LEDGER": two.url}
    bob = open_session(environ, clock=two.clock, tell=two.said.append)
    OPENED.append(weakref.ref(bob))
    with pytest.raises(NotReachableHere, match="no account here is that one"):
        terminate_with_resources(bob, two.machine(), why="typed")
    two.check_untouched()


def test_an_identity_that_nobody_says_now_proves_nothing(two):
    two.up(two.ada)
    two.later()
    again = two.home("ada")
    again.provider("lab").fail_next("identity", ProviderUnavailable("STS is down."), times=99)
    again.provider("lab").terminate(two.machine().provider_id)
    assert [(gap.scope, gap.why) for gap in sync_all(again).unanswered] == [("lab", "STS is down.")]
    assert two.machine().terminated_at is None
    with pytest.raises(ProviderUnavailable, match="STS is down"):
        refresh(again, two.machine())
    assert two.machine().terminated_at is None
    sync_all(two.ada)
    assert two.machine().terminated_at is not None


def test_a_machine_of_a_cloud_that_is_merely_silent_is_not_lost_by_anybodys_word(two):
    two.up(two.ada)
    two.later()
    again = two.home("ada")
    again.provider("lab").fail_next("identity", ProviderUnavailable("STS is down."), times=99)
    with pytest.raises(ProviderUnavailable, match="STS is down"):
        record_as_lost(again, two.machine(), "I saw it")
    two.check_untouched()
    record_as_lost(two.home("ada", cloud="other"), two.machine(), "that account was closed")
    assert two.machine().terminated_at is not None


def test_the_saved_call_of_an_unsettled_launch_in_a_lost_cloud_stays(two):
    two.ada.provider("lab").fail_next("launch", LaunchUncertain("no answer"))
    with pytest.raises(LaunchUncertain):
        two.up(two.ada)
    two.later()
    other = two.home("ada", cloud="other")
    record_as_lost(other, two.machine(), "that account was closed")
    assert list(other.home.attempts.glob(f"{two.machine().token}.*.json"))


def test_an_identity_is_asked_once_a_command(two):
    two.up(two.ada)
    two.later()
    calls = two.ada.provider("lab").calls["identity"]
    again = two.home("ada")
    reap(again, ReapOptions())
    terminate_with_resources(again, two.machine(), why="typed")
    assert again.provider("lab").calls["identity"] == calls + 1


def test_a_launch_that_another_account_could_not_see_stays_open(two):
    two.ada.provider("lab").fail_next("launch", LaunchUncertain("no answer"))
    with pytest.raises(LaunchUncertain):
        two.up(two.ada)
    two.later(minutes=60)
    sync_all(two.bob)
    settle_abandoned_launches(two.bob)
    assert two.machine().launch_status == "open"
    changed = two.home("ada", cloud="other")
    with pytest.raises(NotReachableHere):  # a replay would launch a second machine, in the wrong account
        settle(changed, two.machine(), deadline=two.clock())
    assert (changed.provider("lab").list().instances, two.machine().launch_status) == ((), "open")


def test_a_reservation_holds_whoever_looks(two):
    nanos = two.up(two.ada, lease=DAY, renew_until=DAY).price.nanos_per_hour
    limit = str(nanos * 36 / 10**9)  # a day and a half of one
    set_budget(two.ada, budget_of_options(two.ada, BudgetOptions("lab", limit, "month")), overwrite=True)
    two.later()
    with pytest.raises(BudgetRefused):
        two.up(two.bob, "owl", lease=DAY, renew_until=DAY)
    sync_all(two.bob)
    with pytest.raises(BudgetRefused):
        two.up(two.bob, "owl", lease=DAY, renew_until=DAY)
    two.check_untouched()
    assert two.running(two.bob) == []


def test_what_another_account_keeps_by_name_is_not_gone(two):
    row = two.up(two.ada)
    save_image(two.ada, row, "keras")
    two.later()
    sync_all(two.bob)
    assert two.machine("keras").terminated_at is None
    survey(two.bob, Sweep())
    reap(two.bob, ReapOptions(sweep=True))
    assert two.machine("keras").terminated_at is None
    with pytest.raises(NotReachableHere, match="keras belongs to fake account ada"):
        find_named(two.bob, Kind.IMAGE, "keras", None)
    with pytest.raises(NotReachableHere, match="keras belongs to fake account ada"):
        remove_named(two.bob, two.machine("keras"))


def test_a_sweep_sets_and_drops_no_timer_of_another_account(two):
    two.ada, two.bob = two.home("ada", more='timer = "moves"\n'), two.home("bob", more='timer = "moves"\n')
    two.up(two.ada)
    two.later()
    before = two.machine().timer
    done = repair_timers(two.bob, two.bob.ledger.machines(), sweep=True)
    assert (done.set, done.moved, done.dropped, done.errors) == ([], [], [], [])
    assert two.machine().timer == before


@pytest.mark.soak
def test_a_parking_that_was_left_half_done_goes_on_whatever_the_account_is_called_here(two):
    two.ada = two.home("ada", more="image_s = 3600\n")
    two.bob = two.home("bob", cloud="ada", account="shared", more="image_s = 3600\n")
    two.up(two.ada, spot=True)
    two.later()
    with pytest.raises(ProviderUnavailable, match="costs no compute"):
        stop(two.ada, two.machine(), why="typed")
    two.later(60)
    for _ in range(3):  # the first learns who the account is, then the image is made, then the disk is removed
        reap(two.bob, ReapOptions())
        two.later()
    assert is_parking_complete(two.machine())


def test_looks_of_two_accounts_do_not_make_each_others_view_fresh(two):
    two.up(two.ada)
    sync_all(two.ada)
    seen = oldest_synced_at(two.ada, two.ada.ledger.machines())
    two.later()
    sync_all(two.bob)
    assert oldest_synced_at(two.bob, two.bob.ledger.machines()) == seen
    assert list_machines(two.bob)["unanswered"] == [], "without --refresh nobody was to be judged"


def test_forgetting_an_account_ends_no_look_of_another_of_that_name(two):
    two.up(two.ada)
    two.later()
    environ = {"CLOUDGPU_HOME": str(two.root / "bob"), "CLOUDGPU_LEDGER": two.url, "USER": "bob"}
    (two.root / "bob" / "config.toml").open("a").write('[accounts.local]\nprovider = "local"\n')
    forget(two.bob, plan(two.bob, environ, "lab"))
    assert sync_all(two.ada).unanswered == []
    terminate_with_resources(two.ada, two.machine(), why="typed")
    assert two.running(two.ada) == []


def test_an_account_found_here_where_a_colleague_alone_launched_can_be_forgotten(two, monkeypatch):
    two.up(two.ada)
    two.later()
    (two.root / "bob" / "config.toml").write_text('provider = "local"\n')
    environ = {"CLOUDGPU_HOME": str(two.root / "bob"), "CLOUDGPU_LEDGER": two.url, "USER": "bob"}
    monkeypatch.setattr("cloudgpu.control.setup.retire_account.detected_accounts", lambda session: {"lab"})
    made = plan(two.bob, environ, "lab")
    assert (made.provider, made.machines) == ("fake", ())
    two.check_untouched()


def test_an_account_whose_identity_is_lost_after_the_look_is_not_forgotten(two, monkeypatch):
    two.up(two.ada)
    two.later()
    environ = {"CLOUDGPU_HOME": str(two.root / "ada"), "CLOUDGPU_LEDGER": two.url, "USER": "ada"}
    (two.root / "ada" / "config.toml").open("a").write('[accounts.local]\nprovider = "local"\n')
    again = two.home("ada", more='[accounts.local]\nprovider = "local"\n')
    monkeypatch.setattr("cloudgpu.control.setup.retire_account._find_cost_reasons", lambda *_, **__: [])
    again.provider("lab").fail_next("identity", ProviderUnavailable("STS is down."), times=9)
    with pytest.raises(ProviderUnavailable, match="STS is down"):
        plan(again, environ, "lab")


def test_a_doubt_is_settled_once_every_account_was_looked_at_from_where_it_is(two):
    two.up(two.ada)
    two.later()
    sync_all(two.ada)
    body = {"why": "It was restored.", "seq": 0}
    two.bob.ledger.append([Draft("ledger_doubted", "ledger", body, two.clock(), "doubt")])
    with pytest.raises(LedgerUnavailable, match="until somebody has queried fake account ada") as no:
        verify_document(two.bob, agree=two.said.append)
    assert (no.value.exit_code, no.value.next) == (8, "Ask ada to run: cloudgpu ls --refresh; then run it again.")
    two.check_untouched()
    with pytest.raises(LedgerUnavailable, match="may be incomplete"):
        two.up(two.bob, "owl")
    two.later()
    sync_all(two.ada)
    assert verify_document(two.bob, agree=two.said.append)["settled"]
    two.check_untouched()


def test_a_machine_of_another_account_is_billed_on_to_its_own_end(two):
    two.up(two.ada)
    begun = two.clock()
    two.later(minutes=60)
    reap(two.bob, ReapOptions())
    two.later(minutes=60)
    terminate_with_resources(two.ada, two.machine(), why="typed")
    ended = from_iso(two.machine().terminated_at)
    assert (ended - begun).total_seconds() >= 2 * 3600
    (use,) = [
        one for one in two.ada.ledger.read(lambda view: list(view.ended_usages())) if one[1].resource == "instance"
    ]
    assert from_iso(use[1].end) >= ended


def bob_with_both(two, fault):
    """Return bob's session: his own `lab` cannot say who it is, and what ada calls `lab` is his `shared`."""
    more = f'[accounts.shared]\nprovider = "fake"\nstate_file = "{two.root / "ada.json"}"\n'
    bob = two.home("bob", more=more)
    bob.provider("lab").fail_next("identity", fault, times=99)
    return bob


def test_an_account_that_cannot_log_in_hides_no_other_account_from_its_machines(two):
    row = two.up(two.ada)
    two.up(two.ada, "owl")
    two.later()
    bob = bob_with_both(two, AuthFailed("The login has expired."))
    with two.ada.provider("lab")._store.open() as cloud:
        del cloud.machines[row.provider_id]
        cloud.resources.clear()
    assert sync_all(bob).unanswered == []
    assert two.machine().terminated_at is not None, "a machine that is missing was judged"
    assert terminate_with_resources(bob, two.machine("owl"), why="typed").machine.terminated_at is not None
    assert two.running(two.ada) == []


def test_an_account_of_any_name_that_cannot_say_who_it_is_may_be_a_machines(two):
    two.ada = two.home("ada", account="work")
    two.up(two.ada)
    two.later()
    two.bob.provider("lab").fail_next("identity", AuthFailed("The login has expired."), times=99)
    with pytest.raises(AuthFailed):
        terminate_with_resources(two.bob, two.machine(), why="typed")
    assert [(gap.scope, gap.why) for gap in sync_all(two.bob).unanswered] == [("lab", "The login has expired.")]
    assert two.machine().billed


def test_an_account_that_said_before_that_it_is_another_one_is_not_asked_for(two):
    two.ada = two.home("ada", account="work")
    two.up(two.ada)
    two.later()
    sync_all(two.bob)
    bob = two.home("bob")
    bob.provider("lab").fail_next("identity", AuthFailed("The login has expired."), times=99)
    with pytest.raises(NotReachableHere):
        terminate_with_resources(bob, two.machine(), why="typed")
    assert [gap.scope for gap in sync_all(bob).unanswered] == ["fake account ada"]


def test_a_pass_whose_own_account_is_silent_judges_no_machine_of_a_colleague(two):
    two.up(two.ada)
    two.up(two.bob, "owl")
    two.later()
    sync_all(two.bob)
    bob = two.home("bob")
    bob.provider("lab").fail_next("identity", AuthFailed("The login has expired."), times=99)
    assert [row.name for row in machines_to_evaluate(bob, [two.machine("fox"), two.machine("owl")])] == ["owl"]


def test_a_pass_from_another_home_clears_no_alert_that_it_cannot_judge(two):
    """A budget in a file of ada's home stops her machine; bob's home has no such file, and cannot reach the machine."""
    row = two.up(two.ada, lease=DAY, renew_until=DAY)
    directory = two.root / "ada" / "policies" / "budgets"
    directory.mkdir(parents=True)
    (directory / "mine.yaml").write_text("amount: 0.01\nperiod: month\naction: notify,stop\n")
    two.later(minutes=120)
    reap(two.ada, ReapOptions())
    keys = [line.body["key"] for line in two.ada.ledger.events("alerts")]
    assert any(key.startswith("budget@") for key in keys)
    assert f"reaper:{row.id}:budget:stop" in keys
    two.later()
    reap(two.bob, ReapOptions())
    assert [line for line in two.ada.ledger.events("alerts") if line.kind == "alert_cleared"] == []
    two.later()
    reap(two.ada, ReapOptions())
    raised = [line.body["key"] for line in two.ada.ledger.events("alerts") if line.kind == "alert_raised"]
    assert len(raised) == len(set(raised))


def prices_of(two, name="fox"):
    return [line for line in two.ada.ledger.events(two.machine(name).id) if line.kind == "price_observed"]


def test_spot_prices_are_asked_of_the_own_machines_alone_and_from_their_own_last_time_on(two, monkeypatch):
    row, cloud = two.up(two.ada, spot=True), two.ada.provider("lab")
    two.up(two.bob, "owl", spot=True)
    real, asked = cloud.price_history, []
    monkeypatch.setattr(cloud, "price_history", lambda items, since: asked.append(len(items)) or real(items, since))
    two.later()
    cloud.set_spot_price("fake.v100.1", row.zone, "1.5")
    two.later()
    sync_all(two.ada)
    assert (asked, len(prices_of(two)), prices_of(two, "owl")) == ([1], 1, [])
    terminate_with_resources(two.ada, two.machine(), why="typed")
    two.later()
    sync_all(two.ada)
    calls = len(asked)
    two.later()
    sync_all(two.ada)
    assert len(asked) == calls, "nobody has asked bob's account yet, and that is nothing to ada's"


def test_spot_prices_of_one_account_are_asked_whatever_it_is_called_where_the_machine_was_launched(two):
    two.bob = two.home("bob", cloud="ada", account="shared")
    row = two.up(two.ada, spot=True)
    two.later()
    two.ada.provider("lab").set_spot_price("fake.v100.1", row.zone, "1.5")
    two.later()
    assert sync_all(two.bob).sentences == []
    assert (len(prices_of(two)), two.bob.provider("shared").calls["price_history"]) == (1, 1)
    terminate_with_resources(two.bob, two.machine(), why="typed")


def test_a_second_computer_may_call_the_same_account_by_another_name(two):
    two.up(two.ada)
    two.later()
    (two.root / "desk").mkdir()
    desk = two.home("desk", cloud="ada", account="work")
    desk.settings = replace(desk.settings, owner="ada")
    found = reap(desk, ReapOptions())
    assert (found.unanswered, found.exit_code) == ((), 0)
    assert desk.ledger.last("reaper").body["ok"]
    assert "lab" not in [one.account for one in sync_all(desk).queried]
    two.check_untouched()


def test_a_budget_of_the_ledger_and_of_a_file_here_is_a_fault_of_a_pass_that_judges_all_machines(two):
    two.up(two.ada, lease=DAY, renew_until=DAY)
    set_budget(two.bob, budget_of_options(two.bob, BudgetOptions("mine", "0.01", "month", action="notify,stop")))
    directory = two.root / "ada" / "policies" / "budgets"
    directory.mkdir(parents=True)
    (directory / "mine.yaml").write_text("amount: 900\nperiod: month\n")
    two.later(minutes=120)
    found = reap(two.ada, ReapOptions())
    assert (found.exit_code, len(found.ended)) == (8, 1)
    assert found.faults[0].startswith("the budget mine is in the ledger and in ")
