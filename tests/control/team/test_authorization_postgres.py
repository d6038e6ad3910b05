"""A team on a real PostgreSQL: two members and a payer, each with a database user, a role and a home of their own."""

from __future__ import annotations

import weakref
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from cloudgpu.config.files.user_files import zone_of
from cloudgpu.control.api.down import end_machines, machines_to_end
from cloudgpu.control.budgets.commands import BudgetOptions, set_budget_document
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.policies.resolve import limits_of
from cloudgpu.control.team.authorization import assign_owner
from cloudgpu.control.team.published import publish
from cloudgpu.core.budgets.budget import budget_from
from cloudgpu.core.events.general_events import budget_set, owner_claimed, policy_published
from cloudgpu.errors import CloudgpuError, RoleNeeded
from cloudgpu.ledger.log.teams import TeamRequest
from tests.control import conftest
from tests.control.team.colleagues import Colleague
from tests.postgres import PASSWORD, Server

PEOPLE = ("ada", "bo", "pia")


class Client(Colleague):
    """Somebody whose ledger is the database, as their own database user."""

    url = ""

    def opened(self):
        self.clock = self.shared_clock or self.clock
        self.home = self.root / self.name
        self.home.mkdir(exist_ok=True)
        self.settings(f'[accounts.lab]\nprovider = "fake"\nstate_file = "{self.root / "cloud.json"}"\n')
        environ = {"CLOUDGPU_HOME": str(self.home), "USER": self.name, "CLOUDGPU_LEDGER": self.url}
        session = open_session(environ, clock=self.clock, tell=self.said.append)
        session.pause = self.clock.advance
        conftest.OPENED.append(weakref.ref(session))
        return session


@pytest.fixture
def team(postgres: Server, tmp_path, monkeypatch):
    """Two members and a payer; each has made a first launch of their own."""
    url = postgres.schema()
    mark = url.rpartition("%3D")[2][:8]
    names = {name: f"{mark}{name}" for name in PEOPLE}
    with psycopg.connect(url, autocommit=True) as raw:
        for user in names.values():
            raw.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(sql.Identifier(user)))
    monkeypatch.setattr(Client, "url", url)
    owner = Client(tmp_path, monkeypatch, "root")
    roles = TeamRequest(f"{mark}members", f"{mark}payers", (names["ada"], names["bo"]), (names["pia"],))
    assert owner.session.ledger.share(roles).missing == ()
    found = {}
    for person in PEOPLE:
        monkeypatch.setattr(Client, "url", url.replace(f"ada:{quote(PASSWORD, safe='')}", f"{names[person]}:secret"))
        found[person] = Client(tmp_path, monkeypatch, person, owner.clock)
        found[person].user = names[person]
        found[person].up(name=f"{person}s")
    yield found
    for one in (owner, *found.values()):
        one.session.ledger.close()
    with psycopg.connect(postgres.url(), autocommit=True) as raw:
        for user in (*names.values(), f"{mark}members", f"{mark}payers"):
            raw.execute(sql.SQL("DROP OWNED BY {0} CASCADE; DROP ROLE {0}").format(sql.Identifier(user)))


@pytest.mark.soak
def test_members_and_a_payer_at_work_on_one_database(team, monkeypatch):
    ada, bo, pia = team.values()
    for ask in (
        lambda: stop(bo.session, bo.machine("adas"), why="asked"),
        lambda: set_budget_document(bo.session, BudgetOptions("lab", "100", "month"), overwrite=False),
        lambda: publish(bo.session, str(bo.write("limits", "lease: 1h\n")), ()),
        lambda: assign_owner(bo.session, "ada@lab.org", bo.user),
        lambda: bo.prepare(name="more", owner="ada@lab.org"),
    ):
        with pytest.raises(RoleNeeded) as caught:
            ask()
        assert caught.value.exit_code == 6
        assert pia.user in caught.value.next
    (bo.home / "policies" / "limits.yaml").unlink()
    set_budget_document(pia.session, BudgetOptions("lab", "100", "month"), overwrite=False)
    publish(pia.session, str(pia.write("limits", "lease: 6h\nstop: members\n")), ())
    (source,) = limits_of(ada.session).sources
    assert source.startswith(f"the ledger, published by {pia.user} at ")
    stop(bo.session, bo.machine("adas"), why="asked")
    assert ada.asked("adas") == [("stop_requested", bo.user, "ada@lab.org", "members")]
    document, gravest = end_machines(pia.session, machines_to_end(pia.session, [], all_=True))
    assert gravest is None
    assert [one["name"] for one in document["terminated"]] == ["pias"]
    assert {one["name"] for one in document["others"]} == {"adas", "bos"}


def test_the_database_refuses_a_member_who_goes_around_cloudgpus_rules(team):
    """A member's own program, with the ledger's own code: what only payers write is refused, and no claim is forged."""
    ada, bo, pia = team.values()
    set_budget_document(pia.session, BudgetOptions("lab", "100", "month"), overwrite=False)
    (line,) = [one for one in bo.session.ledger.events("budgets") if one.kind == "budget_set"]
    now, after = bo.clock(), bo.session.ledger.head()[0]
    budget = budget_from({**line.body, "nanos": 10**15}, zone_of)
    for draft in (budget_set(budget.body(), now, after), policy_published("limits", "lease: 9d\n", "UTC", now, after)):
        with pytest.raises(CloudgpuError):
            bo.session.ledger.append([draft])
    bo.session.ledger.append(
        [owner_claimed("eve@lab.org", ada.user, now, after)]
    )  # signed by bo: for ada it says nothing
    with pytest.raises(RoleNeeded):
        ada.prepare(name="more", owner="eve@lab.org")
    assert [one.body["nanos"] for one in ada.session.ledger.events("budgets")] == [line.body["nanos"]]
