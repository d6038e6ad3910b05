"""A team on one ledger: who may do what, what is published for all of them, and what passes do for the lab."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.authorized_keys import SharedPublicKey
from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.control.access.allowlist import allow
from cloudgpu.control.access.share import share, unshare
from cloudgpu.control.api.down import end_machines, machines_to_end
from cloudgpu.control.api.show import show_document as shown_machine
from cloudgpu.control.budgets.commands import BudgetOptions, remove_budget_of_name, set_budget_document
from cloudgpu.control.inventory.local_files import clean_up
from cloudgpu.control.launch.restore import plan_restore, restore_machine, start_machine
from cloudgpu.control.lifecycle.interruption import rehearse
from cloudgpu.control.lifecycle.lease import extend, plan_extension, set_hold
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.network.authorized_keys import own_key
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.policies.commands import list_policies, show_policy
from cloudgpu.control.policies.resolve import limits_of, policies_of
from cloudgpu.control.reaper.foreign import find_overdue
from cloudgpu.control.resources.cleanup import clean
from cloudgpu.control.resources.named import find_named, remove, save_image
from cloudgpu.control.session.accounts import is_forgotten
from cloudgpu.control.setup import rename_account
from cloudgpu.control.team.authorization import assign_owner, ownership_note
from cloudgpu.control.team.published import publish, withdraw
from cloudgpu.core.events.general_events import account_forgotten, owner_claimed
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.instances import TAG_RENEW_UNTIL
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.policies.policy import Rule
from cloudgpu.core.resources.orphan import Cleanup, Cost, Origin, Orphan
from cloudgpu.errors import CloudgpuError, InvalidRequest, RoleNeeded
from cloudgpu.views.history import history_lines
from tests.control.team.colleagues import Colleague, know_who_asks, team

__all__ = ["team"]
SPAN = timedelta(hours=1)
LIMITS = "lease: 6h\nrenew_until: 24h\n"
KEY = SharedPublicKey("ssh-ed25519 AAAA", "eve", "SHA256:x")
ASKED = {
    "stop": lambda session, row: stop(session, row, why="asked"),
    "end": lambda session, row: terminate_one(session, row, why="asked"),
    "start": lambda session, row: start(session, row, new_lease(session, row, SPAN)),
    "start again": lambda session, row: start_machine(session, row, SPAN),
    "come back": lambda session, row: plan_restore(session, row, SPAN),
    "hold": lambda session, row: set_hold(session, row, session.clock() + SPAN),
    "release": lambda session, row: set_hold(session, row, None),
    "extend": lambda session, row: plan_extension(session, row, SPAN),
    "share": lambda session, row: share(session, row, KEY),
    "unshare": lambda session, row: unshare(session, row, None),
    "allow": lambda session, row: allow(session, row.name, "192.0.2.1/32"),
    "save": lambda session, row: save_image(session, row, "mine"),
    "interrupt": rehearse,
    "down": lambda session, row: machines_to_end(session, [row.name]),
}


def budget(name="lab", **more):
    return BudgetOptions(name, "100", "month", **more)


def test_a_member_is_refused_what_is_a_colleagues_before_anything_happens(team):
    bo = team["bo"]
    row, head = bo.machine("adas"), bo.session.ledger.head()
    for ask in ASKED.values():
        with pytest.raises(RoleNeeded, match=r"adas is ada@lab\.org's \(ada\), and bo is a member") as caught:
            ask(bo.session, row)
        assert caught.value.exit_code == 6
        assert caught.value.next == "Ask its owner, or a payer: pia."
    assert bo.session.ledger.head() == head
    assert len(bo.machines()) == 3


@pytest.mark.parametrize("person", ["ada", "pia"])
def test_its_owner_and_a_payer_are_not_refused(team, person):
    refused = []
    for verb, ask in ASKED.items():
        try:
            ask(team[person].session, team[person].machine("adas"))
        except RoleNeeded:
            refused.append(verb)
        except CloudgpuError:  # for a reason of its own, as some verbs do not fit what the one before has left
            continue
    assert refused == []


def test_by_which_right_a_machine_was_stopped_is_said_before_and_stands_in_the_ledger(team):
    ada, pia = team["ada"], team["pia"]
    said = ownership_note(pia.session, pia.machine("adas"), "stop")
    assert said == " It is ada@lab.org's (ada); you have the payer's role."
    assert ownership_note(ada.session, ada.machine("adas"), "stop") == ""
    stop(pia.session, pia.machine("adas"), why="asked")
    assert ada.asked("adas") == [("stop_requested", "pia", "ada@lab.org", "payer")]
    lines = shown_machine(ada.session, "adas", history=True)["history"]
    assert "asked to stop: asked (it is ada@lab.org's; by the payer's role)" in history_lines(lines)


def test_published_limits_let_every_member_stop_a_machine_and_nothing_else(team):
    bo, pia = team["bo"], team["pia"]
    bo.write("limits", "stop: members\n")
    with pytest.raises(RoleNeeded):
        stop(bo.session, bo.machine("adas"), why="asked")
    publish(pia.session, str(pia.write("limits", "stop: members\n")), ())
    with pytest.raises(RoleNeeded):
        terminate_one(bo.session, bo.machine("adas"), why="asked")
    stop(bo.session, bo.machine("adas"), why="asked")
    assert bo.asked("adas") == [("stop_requested", "bo", "ada@lab.org", "members")]
    with pytest.raises(RoleNeeded):
        start(bo.session, bo.machine("adas"), new_lease(bo.session, bo.machine("adas"), SPAN))


def test_down_all_ends_ones_own_and_names_the_others(team):
    for person in ("bo", "pia"):
        one = team[person]
        document, gravest = end_machines(one.session, machines_to_end(one.session, [], all_=True))
        assert gravest is None
        assert [value["name"] for value in document["terminated"]] == [f"{person}s"]
        assert "adas" in [value["name"] for value in document["others"]]
    assert [one.tags["cloudgpu-name"] for one in team["ada"].machines()] == ["adas"]


def test_allow_without_a_name_leaves_the_machines_of_others(team):
    document, _ = allow(team["bo"].session, None, "192.0.2.1/32")
    whose = {one["name"]: one["why"] for one in document["skipped"]}
    assert (whose["adas"], whose["pias"]) == ("it is ada@lab.org's (ada)", "it is pia@lab.org's (pia)")


@pytest.mark.parametrize("ask", [
    lambda session: set_budget_document(session, budget(), overwrite=False),
    lambda session: set_budget_document(session, budget(), overwrite=True),
    lambda session: set_budget_document(session, BudgetOptions("lab", "no amount", "never"), overwrite=False),  # bad
    lambda session: remove_budget_of_name(session, "lab"),
])  # fmt: skip
def test_only_payers_set_and_remove_budgets(team, ask):
    set_budget_document(team["pia"].session, budget(), overwrite=False)
    head = team["bo"].session.ledger.head()
    with pytest.raises(RoleNeeded) as caught:
        ask(team["bo"].session)
    assert caught.value.next == "Ask a payer: pia."
    assert team["bo"].session.ledger.head() == head


def test_only_payers_override_a_budget_whatever_it_says(team):
    ada, pia = team["ada"], team["pia"]
    set_budget_document(pia.session, BudgetOptions("small", "0.01", "month"), overwrite=False)
    for ask in (
        lambda: ada.prepare(name="more", override="it is urgent"),
        lambda: start_machine(ada.session, ada.machine("adas"), SPAN, override="it is urgent"),
    ):
        with pytest.raises(RoleNeeded, match="Overriding a budget needs the payer's role, and ada is a member"):
            ask()
    pia.up(name="more", override="it is urgent")
    lines = [one for one in pia.session.ledger.events("budgets") if one.kind == "budget_overridden"]
    assert [(one.actor, one.body["reason"]) for one in lines] == [("pia", "it is urgent")]


def test_a_member_cannot_launch_for_somebody_else(team):
    bo = team["bo"]
    for owner in ("ada@lab.org", "ada", "nobody@lab.org"):
        with pytest.raises(RoleNeeded) as caught:
            bo.prepare(name="more", owner=owner)
        assert caught.value.field == "--owner"
        assert "bo is a member" in caught.value.message
    bo.owner = "ada@lab.org"
    bo.session = bo.opened()
    with pytest.raises(RoleNeeded, match=r"ada@lab\.org belongs to ada"):
        bo.prepare(name="more")


def test_what_a_payer_launches_for_a_member_is_the_members(team):
    team["pia"].up(name="gift", owner="bo@lab.org")
    stop(team["bo"].session, team["bo"].machine("gift"), why="asked")
    assert team["bo"].asked("gift") == [("stop_requested", "bo", "bo@lab.org", "owner")]


def test_a_payer_says_whose_a_name_is(team):
    with pytest.raises(RoleNeeded):
        assign_owner(team["bo"].session, "ada@lab.org", "bo")
    assign_owner(team["pia"].session, "ada@lab.org", "bo")
    stop(team["bo"].session, team["bo"].machine("adas"), why="asked")
    with pytest.raises(RoleNeeded):
        terminate_one(team["ada"].session, team["ada"].machine("adas"), why="asked")


def test_a_name_is_given_to_nobody_who_is_not_in_the_team(team):
    pia = team["pia"].session
    head = pia.ledger.head()
    with pytest.raises(InvalidRequest, match="adda is not in the team") as caught:
        assign_owner(pia, "ada@lab.org", "adda")
    assert (caught.value.exit_code, caught.value.next) == (2, "Name one of its database users: ada, bo, pia.")
    assert pia.ledger.head() == head


def test_only_payers_publish_and_withdraw(team):
    bo, pia = team["bo"], team["pia"]
    with pytest.raises(RoleNeeded, match="Publishing limits for the lab needs the payer's role"):
        publish(bo.session, "limits", ())
    publish(pia.session, str(pia.write("limits", LIMITS)), ())
    with pytest.raises(RoleNeeded):
        withdraw(bo.session, "limits")
    withdraw(pia.session, "limits")
    with pytest.raises(InvalidRequest, match="Nothing is published as 'limits'"):
        withdraw(pia.session, "limits")


def test_published_limits_hold_in_every_home_and_no_file_loosens_them(team):
    bo, pia = team["bo"], team["pia"]
    publish(pia.session, str(pia.write("limits", LIMITS)), ())
    bo.write("limits", "lease: 90d\nrenew_until: 90d\n")
    limits = limits_of(bo.session)
    assert (limits.lease, limits.renew_until) == (timedelta(hours=6), timedelta(hours=24))
    with pytest.raises(InvalidRequest, match=r"--lease is 10h, beyond the limit of 6h") as caught:
        bo.prepare(name="long", lease=timedelta(hours=10))
    assert "the ledger, published by pia" in caught.value.next
    with pytest.raises(InvalidRequest, match="beyond the limit of 6h"):
        plan_extension(bo.session, bo.machine("bos"), timedelta(hours=20))
    with pytest.raises(InvalidRequest, match="The hold of bos would last 7h, beyond the limit of 6h"):
        set_hold(bo.session, bo.machine("bos"), bo.clock() + timedelta(hours=7))
    assert bo.prepare(name="usual").plan.request.lease_s == 6 * 3600


def test_a_published_policy_wins_over_a_file_of_that_name_and_that_is_said(team):
    bo, pia = team["bo"], team["pia"]
    publish(pia.session, str(pia.write("nights", "lease: 2h\nrenew_until: 4h\n")), ())
    file = bo.write("nights", "lease: 9h\nrenew_until: 9d\n")
    assert bo.prepare(name="more", policy="nights").plan.request.lease_s == 2 * 3600
    assert any("published by pia" in said and f"{file} does not count" in said for said in bo.said)
    value = show_policy(bo.session, "nights")
    assert value["published"]["by"] == "pia"
    assert value["published"]["unused"] == str(file)
    (line,) = [one for one in list_policies(bo.session)["policies"] if one["name"] == "nights"]
    assert (line["lease_s"], line["source"]) == (7200, value["source"])


def test_a_file_with_a_fault_is_not_published(team):
    pia = team["pia"]
    head = pia.session.ledger.head()
    for name, text in (("nights", "lease: soon\nrenew_until: 4h\n"), ("limits", "lease: 2d\nrenew_until: 1d\n")):
        with pytest.raises(InvalidRequest, match=rf"{name}.yaml:1: lease"):
            publish(pia.session, str(pia.write(name, text)), ())
    assert pia.session.ledger.head() == head


def test_the_same_text_is_published_once(team):
    pia = team["pia"]
    file = str(pia.write("limits", LIMITS))
    assert [publish(pia.session, file, ())["changed"] for _ in range(2)] == [True, False]
    pia.write("limits", "lease: 1h\n")
    assert publish(pia.session, file, ())["replaced"]


def test_what_is_in_a_members_home_judges_no_machine_of_a_colleague(team):
    bo = team["bo"]
    bo.write("limits", "idle_after: 5m\n")
    bo.write("default", "lease: 1h\nrenew_until: 1h\n")
    held = policies_of(bo.session, bo.rows())
    by_name = {row.name: held[row.id].policy for row in bo.rows()}
    assert by_name["bos"].idle.after == timedelta(minutes=5)
    assert by_name["bos"].lease == SPAN
    assert by_name["adas"].idle.after == SPAN
    assert by_name["adas"].lease == timedelta(hours=8)


def test_a_pass_acts_for_the_lab_whoever_runs_it(team):
    bo = team["bo"]
    set_budget_document(team["pia"].session, BudgetOptions("tiny", "0.01", "total", action="stop"), overwrite=False)
    bo.later(hours=1)
    found = bo.pass_()
    assert {one.name for one in found.ended} == {"adas", "bos", "pias"}
    assert {one.rule for one in found.ended} == {Rule.BUDGET}
    (asked,) = [one for one in bo.asked("adas") if one[0] == "stop_requested"]
    assert asked == ("stop_requested", "bo", "ada@lab.org", "pass")
    assert not bo.session.as_reaper


def test_a_member_names_no_policy_for_a_pass(team):
    with pytest.raises(RoleNeeded):
        team["bo"].pass_(policy="throwaway")
    team["bo"].pass_(policy="throwaway", dry_run=True)
    team["pia"].pass_(policy="default")


def test_a_budget_in_a_members_file_stops_only_their_own_machines(team):
    bo = team["bo"]
    text = "amount: 0.01\nperiod: total\naction: [stop]\n"
    file = bo.home / "policies" / "budgets" / "tiny.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    bo.later(hours=1)
    assert [one.name for one in bo.pass_().ended] == ["bos"]


def test_who_shared_no_team_before_owns_what_their_settings_name(tmp_path, monkeypatch):
    """A ledger that somebody used alone, and that a team shares from now on: nobody has recorded whose names are."""
    alone = Colleague(tmp_path, monkeypatch, "ada")
    alone.up(name="early")
    know_who_asks(monkeypatch)
    ada, bo = (Colleague(tmp_path, monkeypatch, name, alone.clock) for name in ("ada", "bo"))
    with pytest.raises(RoleNeeded):
        stop(bo.session, bo.machine("early"), why="asked")
    stop(ada.session, ada.machine("early"), why="asked")
    assert [one.body for one in ada.session.ledger.events("people")] == [{"owner": "ada@lab.org", "person": "ada"}]


def test_nobodys_name_is_recorded_while_the_user_is_asked(tmp_path, monkeypatch):
    alone = Colleague(tmp_path, monkeypatch, "ada")
    alone.up(name="early")
    know_who_asks(monkeypatch)
    ada = Colleague(tmp_path, monkeypatch, "ada", alone.clock)
    assert ownership_note(ada.session, ada.machine("early"), "end") == ""
    assert machines_to_end(ada.session, ["early"]).machines == [ada.machine("early")]
    extension = plan_extension(ada.session, ada.machine("early"), SPAN)
    assert list(ada.session.ledger.events("people")) == []
    extend(ada.session, extension)
    assert [one.body for one in ada.session.ledger.events("people")] == [{"owner": "ada@lab.org", "person": "ada"}]


def test_nobodys_name_is_recorded_by_the_plan_of_a_restore_and_it_is_by_the_restore(tmp_path, monkeypatch):
    alone = Colleague(tmp_path, monkeypatch, "ada")
    alone.up(name="early", spot=True)
    alone.later(seconds=1)
    stop(alone.session, alone.machine("early"), why="asked")  # a spot machine is parked: it comes back from its image
    know_who_asks(monkeypatch)
    ada = Colleague(tmp_path, monkeypatch, "ada", alone.clock)
    plan = plan_restore(ada.session, ada.machine("early"), SPAN)
    assert list(ada.session.ledger.events("people")) == []
    restore_machine(ada.session, plan, wait=False)
    assert [one.body for one in ada.session.ledger.events("people")] == [{"owner": "ada@lab.org", "person": "ada"}]


def test_alone_nothing_says_who_or_by_which_right(lab):
    lab.up(name="fox")
    stop(lab.session, lab.session.find("fox"), why="asked")
    lines = list(lab.session.ledger.events())
    assert not [one for one in lines if one.subject == "people" or "right" in one.body]


def test_machines_of_another_ledger_are_stopped_by_a_payers_pass_alone(team):
    """They are 24 hours past their renew-until, and the limits name who may: the role is needed beside that."""
    other = team["ada"].cloud.list().instances[0]
    limits = 'payers: ["ada@lab.org", "pia@lab.org"]\n'
    publish(team["pia"].session, str(team["pia"].write("limits", limits)), ())
    late = replace(other, tags={**other.tags, TAG_RENEW_UNTIL: "1"})
    assert find_overdue(team["ada"].session, [late]) == []
    assert find_overdue(team["pia"].session, [late]) == [late]


def test_a_members_renaming_and_forgetting_hold_for_the_member_alone(team):
    """The database writes its user into the line, not the owner of config.toml."""
    ada, bo = team["ada"], team["bo"]
    environ = {"CLOUDGPU_HOME": str(ada.home), "USER": "ada"}
    rename_account.rename(ada.session, rename_account.plan(ada.session, environ, "lab", "desk"))
    session = open_session({**environ, "CLOUDGPU_LEDGER": f"sqlite://{ada.root}/shared.db"}, clock=ada.clock)
    assert session.names().account("lab") == "desk"
    session.ledger.append([account_forgotten("old", "fake", [], "host", ada.clock())])
    assert is_forgotten(session, "old")
    assert bo.session.names().account("lab") == "lab"
    assert not is_forgotten(bo.session, "old")


def test_a_payer_of_the_limits_is_not_taken_for_another_whose_name_no_tag_can_hold_either(make_lab):
    lab = make_lab("")
    lab.up()
    limits = lab.session.home.policies / "limits.yaml"
    limits.parent.mkdir(parents=True, exist_ok=True)
    limits.write_text('payers: ["李"]\n')
    late = replace(lab.cloud.list().instances[0], tags={TAG_RENEW_UNTIL: "1"})
    lab.later(hours=49)
    for owner, found in (("王", []), ("李", [late])):
        lab.session.settings = replace(lab.session.settings, owner=owner)
        assert find_overdue(lab.session, [late]) == found


def test_a_member_removes_no_image_of_a_colleague_and_cleans_nothing_up_after_them(team):
    ada, bo = team["ada"], team["bo"]
    save_image(ada.session, ada.machine("adas"), "keras")
    thing = find_named(bo.session, Kind.IMAGE, "keras", None)
    with pytest.raises(RoleNeeded, match=r"The image keras is ada-lab-org's \(ada\)"):
        remove(bo.session, thing)
    remove(ada.session, thing)
    row = ada.machine("adas")
    found = Orphan("disk", "d1", "adas", "fake", "lab", "r", "z", 10, Cost(None), Origin("", "", "ada-lab-org", "", ""),
                   None, "left", Cleanup.REMOVE, machine=row)  # fmt: skip
    (stays,) = clean(bo.session, [found])
    assert not stays.gone
    assert stays.orphan.stays == "it is ada@lab.org's (ada): its owner or a payer removes it"


def test_a_home_pins_no_host_key_from_a_share_of_a_member_whose_machine_it_is_not(team):
    ada, bo, pia = team.values()
    id, guest = ada.machine("adas").id, own_key(pia.session).fingerprint  # noqa: A001
    (launched, *_) = ada.session.ledger.events(id)

    def shared(person):
        ada.later(minutes=1)
        key = new_host_key().public_line.rsplit(" ", 1)[0]
        body = {"key": guest, "label": "pia", "from": None, "host_key": key, "host": "x"}
        person.session.ledger.append([Draft("machine_shared", id, body, ada.clock(), f"shared:{key}")])
        clean_up(pia.session)
        return key

    def pinned():
        return client_files.pinned(pia.session.home.known_hosts, id)

    shared(bo)
    assert pinned() is None
    body = launched.body | {"owner": bo.owner}
    bo.session.ledger.append([Draft("launch_intended", id, body, ada.clock(), "forged")])
    shared(bo)
    assert pinned() is None, "whose a machine is, its first line says"
    of_ada = shared(ada)
    assert pinned() == of_ada
    shared(bo)
    assert pinned() == of_ada
    again = shared(ada)
    assert pinned() == again, "the machine was brought back with another key, and shared anew"


def test_a_colleague_who_claims_the_name_of_ones_database_user_ends_nothing(team):
    ada, bo, pia = team.values()
    pia.up(name="adas-too", owner="ada")
    bo.session.ledger.append([owner_claimed("ada", "bo", bo.clock(), bo.session.ledger.head()[0])])
    with pytest.raises(RoleNeeded):
        terminate_one(bo.session, bo.machine("adas-too"), why="asked")
    with pytest.raises(RoleNeeded):
        bo.prepare(name="more", owner="ada")
    terminate_one(ada.session, ada.machine("adas-too"), why="asked")


def volume(name="data"):
    return Setup(volume=Volume(name, 20))


@pytest.mark.soak
def test_a_colleagues_volume_is_attached_to_nobodys_machine_but_a_payers(team):
    ada, bo, pia = team.values()
    ada.up(name="holder", setup=volume())
    terminate_one(ada.session, ada.machine("holder"), why="asked")
    head, asked = bo.session.ledger.head(), dict(bo.cloud.calls)
    with pytest.raises(RoleNeeded, match=r"The volume data is ada-lab-org's \(ada\), and bo is a member") as caught:
        bo.prepare(name="thief", setup=volume())
    assert (caught.value.exit_code, caught.value.field, caught.value.value) == (6, "--volume", "data")
    assert (bo.session.ledger.head(), dict(bo.cloud.calls)) == (head, asked)
    with pytest.raises(RoleNeeded, match="only its owner or a payer may remove it"):
        remove(bo.session, find_named(bo.session, Kind.VOLUME, "data", None))
    assert pia.prepare(name="keeper", setup=volume()).offers
    assert bo.prepare(name="own", setup=volume("mine")).offers
    back = ada.up(name="again", setup=volume()).machine
    (thing,) = [one for one in ada.cloud.resources().items if one.kind is Kind.VOLUME]
    assert thing.attached_to == back.provider_id


def test_a_volume_of_ones_own_is_meant_beside_a_colleagues_of_that_name_elsewhere(team):
    ada, bo, _ = team.values()
    bo.up(name="own", setup=volume())
    terminate_one(bo.session, bo.machine("own"), why="asked")
    (*_, line) = [one for one in bo.session.ledger.events() if one.kind == "resource_observed"]
    body = {**line.body, "id": "vol-of-ada", "region": "there", "zone": None, "owner": "ada-lab-org"}
    ada.session.ledger.append([Draft("resource_observed", "resource:x/vol-of-ada", body, ada.clock(), "of ada")])
    assert bo.prepare(name="again", setup=volume()).offers


def test_a_machine_is_launched_from_a_colleagues_image(team):
    """A name is given to an image for launches: to remove it needs its owner, to launch from it nobody."""
    ada, bo, _ = team.values()
    save_image(ada.session, ada.machine("adas"), "keras")
    assert bo.prepare(name="more", setup=Setup(image="keras")).offers
