"""The ledger's server is down: machines are ended all the same, and the ledger is told once, when it is back."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloudgpu.cli.app import run
from cloudgpu.control.api.down import end_machines, machines_to_end
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.unrecorded_termination import EndedUnrecorded
from cloudgpu.control.launch.launch import _wait_for_all, launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.outage.outage import find_to_stop
from cloudgpu.control.reaper.notify import notify_if_ledger_away
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.setup.doctor import examine
from cloudgpu.control.team.authorization import authorization_of
from cloudgpu.core.billing.charges import spent_until_now
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerDenied, LedgerUnavailable
from cloudgpu.ledger.log import outbox
from cloudgpu.ledger.postgresql import silence
from tests.control.inventory.test_shared_ledger import Laptop
from tests.control.team.test_authorization_postgres import team
from tests.postgres import Server

__all__ = ["team"]


class Own(Laptop):
    """A laptop that is opened anew for each command; its user's name is not its machine's owner's alone."""

    def down(self, *names: str, all_: bool = False) -> tuple[list[str], CloudgpuError | None]:
        session = self.opened()
        document, gravest = end_machines(session, machines_to_end(session, names, all_=all_))
        return [one["message"] for one in document["failed"]], gravest

    def stop(self, name: str | None = None) -> CloudgpuError:
        session = self.opened()
        with pytest.raises(CloudgpuError) as caught:
            stop(session, find_to_stop(session, name)[0], why="asked by the user")
        return caught.value

    @property
    def box(self) -> Path:
        (found,) = (self.home.with_name(self.name) / "ledger").glob("*.outbox")
        return found

    def kinds(self, name: str) -> list[str]:
        session = self.opened()
        return [line.kind for line in session.ledger.events(session.find(name, ended=True).id)]


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.schema()


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Callable[[str], Own]:
    return lambda name: Own(tmp_path, monkeypatch, name, url)


@pytest.fixture
def killed(postgres: Server) -> Callable[[], object]:
    @contextmanager
    def out() -> Iterator[None]:
        postgres.kill()
        try:
            yield
        finally:
            postgres.start()

    return out


@pytest.mark.soak
def test_a_stop_while_the_server_is_down_is_proved_and_billed_to_the_second_when_it_is_back(laptop, killed):
    ada = laptop("ada")
    ada.up(name="fox")
    ada.later(hours=1)
    with killed():
        fault = ada.stop("fox")
        assert (fault.exit_code, fault.kind) == (8, "ledger_unavailable")
        assert "fox is stopped and not billed, but the ledger does not know it yet" in fault.message
        assert "Free some space" not in fault.next
        assert str(ada.box) in fault.next
        assert ada.machines() == []
        assert stat.S_IMODE(ada.box.stat().st_mode) == 0o600
        (seen,) = ada.cloud.list().instances
        ada.later(hours=5)
    session = ada.opened()
    assert "the ledger is back: 3 lines about what was done meanwhile were written" in ada.said
    row = session.find("fox")
    assert (row.state, row.billed, row.pending_action) == ("stopped", False, None)
    assert row.since == seen.since.isoformat(timespec="microseconds").replace("+00:00", "Z")
    (use,) = (use for one, use in session.ledger.ended_usages() if use.resource == "instance")
    assert use.end == row.since, "the cloud's own word, not the time at which the ledger came back"
    before = spent_until_now(row, session.clock())
    assert ada.kinds("fox").count("stop_requested") == 1
    assert spent_until_now(ada.opened().find("fox"), session.clock()) == before
    assert (session.ledger.verify().faults, session.ledger.integrity_problem()) == ((), None)
    assert not session.ledger.has_outbox


@pytest.mark.soak
def test_what_was_done_is_told_although_the_database_has_another_name_now(laptop, killed, url, tmp_path):
    ada = laptop("ada")
    ada.up(name="fox")
    with killed():
        ada.stop("fox")
    ada.url = f"sqlite:///{tmp_path}/other.db"
    ada.opened().ledger.append([])
    ada.opened()
    environ = {"CLOUDGPU_HOME": str(ada.box.parents[1]), "USER": "ada", "CLOUDGPU_LEDGER": ada.url}
    (check,) = (one for one in examine(environ, clock=ada.clock) if one.name == "ledger")
    assert str(ada.box) in check.message, "another ledger takes nothing of it"
    ada.url = url.replace("127.0.0.1", "localhost")
    session = ada.opened()
    assert session.find("fox").billed is False
    assert not session.ledger.has_outbox


@pytest.mark.soak
def test_no_node_of_a_new_cluster_runs_on_when_the_server_goes_down_while_they_come_up(laptop, killed):
    ada = laptop("ada")
    session = ada.opened()
    prepared = prepare(session, parse_request(gpu="v100", name="train", nodes=3, engine="none"))
    nodes = launch(session, prepared, wait=False).nodes
    assert len(ada.machines()) == 3
    ada.cloud.stop(nodes[0].provider_id)
    with killed(), pytest.raises(CloudgpuError) as raised:
        _wait_for_all(session, nodes, already_existed=False, wait=True)
    assert ada.machines() == []
    assert [node.name for node in nodes if node.name not in raised.value.message] == []
    assert "cloudgpu down" not in raised.value.next
    ledger = ada.opened().ledger  # the other nodes' ends were kept for it; that of the first one is seen later
    assert [node.name for node in nodes if ledger.machine(node.id).terminated_at is None] == ["train-0"]


@pytest.mark.soak
def test_down_ends_by_tags_what_this_home_launched_and_what_another_did(laptop, killed):
    ada, bob = laptop("ada"), laptop("bob")
    ada.up(name="fox")
    bob.up(name="owl", new=True)
    with killed():
        said, fault = ada.down("owl")
        assert fault.exit_code == 8
        assert "owl was ended and nothing of it is left" in said[0]
        said, _ = ada.down("fox")
        assert "fox was ended and nothing of it is left" in said[0]
        assert ada.machines() == []
    rows = bob.opened().ledger.machines()
    assert [row.terminated_at for row in rows] == [None, None], "bob's home was told nothing: ada's is"
    rows = ada.opened().ledger.machines()
    assert all(row.terminated_at for row in rows)


@pytest.mark.soak
def test_credentials_of_another_account_end_nothing_and_settle_nothing_while_the_server_is_down(laptop, killed):
    ada = laptop("ada")
    ada.up(name="fox")
    config = ada.home / "config.toml"
    own = config.read_text()
    config.write_text(own.replace("cloud.json", "other.json"))
    with killed():
        elsewhere = "fox belongs to fake account cloud; `lab` here is fake account other."
        with pytest.raises(LedgerUnavailable, match=elsewhere) as caught:
            ada.down("fox")
        assert caught.value.exit_code == 8
        said, fault = ada.down(all_=True)
        assert (fault.exit_code, said[0]) == (8, elsewhere)
    config.write_text(own)
    (row,) = ada.opened().ledger.machines()
    assert (row.launch_status, row.terminated_at, len(ada.machines())) == ("made", None, 1)


@pytest.mark.soak
def test_all_is_this_persons_own_and_a_name_that_two_bear_is_asked_for_by_its_id(laptop, killed):
    ada, bob = laptop("ada"), laptop("bob")
    ada.up(name="fox")
    bob.cloud.tag(bob.up(name="owl", new=True).machine.provider_id, {"cloudgpu-name": "fox"})
    with killed():
        with pytest.raises(InvalidRequest, match="2 machines are called 'fox'") as caught:
            ada.down("fox")
        assert caught.value.next.count("(ada)") == caught.value.next.count("(bob)") == 1
        said, fault = ada.down(all_=True)
        assert fault.exit_code == 8
        assert [word for word in said if "was ended" in word] == [said[0]]
        (left,) = ada.machines()
        assert left.tags["cloudgpu-owner"] == "bob"
    assert len([row for row in ada.opened().ledger.machines() if row.terminated_at]) == 1


@pytest.mark.soak
def test_all_is_what_this_home_launched_under_any_name_where_nobody_shares_the_ledger(laptop, killed):
    ada, bob = laptop("ada"), laptop("bob")
    ada.up(name="fox")
    ada.up(name="owl", new=True, owner="ada@lab.org")
    bob.up(name="elk", new=True)
    with killed():
        said, _ = ada.down(all_=True)
        assert "Nobody shared the ledger on 2" in said[-1]
        (left,) = ada.machines()
        assert left.tags["cloudgpu-name"] == "elk"
    (role,) = (ada.home.with_name("ada") / "ledger").glob("*.role")
    assert stat.S_IMODE(role.stat().st_mode) == 0o600
    role.unlink()
    ada.up(name="hen", new=True, owner="ada@lab.org")
    role.unlink()
    with killed():
        said, _ = ada.down(all_=True)
        assert "only machines of ada are taken for yours" in said[-1]
        assert len(ada.machines()) == 2


@pytest.mark.soak
def test_names_that_a_tag_cannot_hold_are_not_taken_for_one_another(laptop, killed):
    """Tags hold ASCII: the owner of both machines is empty there."""
    wang, li = laptop("王"), laptop("李")
    wang.up(name="fox")
    li.up(name="elk", new=True)
    with killed():
        wang.down(all_=True)
        (left,) = wang.machines()
        assert left.tags["cloudgpu-name"] == "elk"


@pytest.mark.soak
def test_all_are_the_machines_of_a_members_names_by_the_role_of_last_time(team, killed):
    bo = team["bo"]
    bo.url = bo.url.replace(f"{team['pia'].user}:", f"{bo.user}:")
    authorization_of(bo.session)
    with killed():
        session = bo.opened()
        wanted = machines_to_end(session, (), all_=True)
        assert [row.name for row in wanted.machines] == ["bos"]
        assert sorted(row.name for row in wanted.others) == ["adas", "pias"]
        assert f"(member), machines of bo@lab.org, {bo.user} are yours" in wanted.account_errors[-1].message


@pytest.mark.soak
def test_a_saved_call_that_no_listing_shows_is_a_machine_only_as_long_as_a_listing_may_lag(laptop, killed):
    ada = laptop("ada")
    config = ada.home / "config.toml"
    config.write_text(f"{config.read_text()}lag_s = 600.0\n")
    ada.session = ada.opened()
    row = ada.up(name="fox").machine
    with ada.cloud._call("tag") as cloud:
        del cloud.machines[row.provider_id]
    ada.later(minutes=5)
    with killed():
        (wanted,) = machines_to_end(ada.opened(), ("fox",)).machines
        assert wanted.launch_status == "open"
        ada.later(minutes=6)
        with pytest.raises(LedgerUnavailable, match="No machine called 'fox' was found by its tags"):
            ada.down("fox")
        assert machines_to_end(ada.opened(), (), all_=True).machines == []
    (row,) = ada.opened().ledger.machines()
    assert row.launch_status == "made", "nothing was settled behind the ledger's back"


@pytest.mark.soak
def test_a_machine_whose_id_somebody_has_taken_away_or_copied_keeps_no_other_on(laptop, killed):
    ada = laptop("ada")
    fox, _, elk, hen = (ada.up(name=name, new=True).machine for name in ("fox", "owl", "elk", "hen"))
    with ada.cloud._call("tag") as cloud:
        del cloud.machines[fox.provider_id].tags["cloudgpu-id"]
        cloud.machines[hen.provider_id].tags["cloudgpu-id"] = elk.id
    with killed():
        said, _ = ada.down("owl")
        assert "owl was ended" in said[0]
        said, _ = ada.down(all_=True)
    assert any(f"{fox.provider_id} in lab" in one and "its tag cloudgpu-id is gone" in one for one in said)
    assert sum("its tag cloudgpu-id is that of" in one for one in said) == 1
    assert len(ada.machines()) == 2


@pytest.mark.soak
@pytest.mark.parametrize("words", [["--cron"], ["--cron", "--nightly"]])
def test_a_pass_from_cron_tells_owners_once_that_the_server_is_down(laptop, killed, web, monkeypatch, capsys, words):
    ada = laptop("ada")
    config = ada.home / "config.toml"
    config.write_text(f'{config.read_text()}[alerts]\nto = ["json://{web.place}/lab"]\n')
    ada.up(name="fox")
    ada.opened()
    monkeypatch.setenv("CLOUDGPU_HOME", str(ada.home.with_name("ada")))
    monkeypatch.setenv("CLOUDGPU_LEDGER", ada.url)
    with killed():
        assert [run(["reap", *words]) for _ in range(2)] == [8, 8]
    assert "cannot be reached" in capsys.readouterr().err
    (told,) = web.got
    assert "The reaper cannot run: the ledger is away" in told[2].decode()


@pytest.mark.soak
def test_nothing_is_launched_or_started_while_the_server_is_down(laptop, killed):
    ada = laptop("ada")
    row = ada.up(name="fox").machine
    session = ada.opened()
    row = stop(session, row, why="over")
    lease = new_lease(session, row, None)
    with killed():
        with pytest.raises(LedgerUnavailable, match="cannot be reached") as caught:
            start(ada.opened(), row, lease)
        assert caught.value.exit_code == 8
        ada.session = ada.opened()
        with pytest.raises(LedgerUnavailable, match="cannot be reached"):
            ada.up(name="owl", new=True)
        assert ada.machines() == []


def test_a_server_that_freezes_between_the_look_and_the_stop_does_not_keep_the_machine_on(
    laptop, postgres, monkeypatch, url
):
    monkeypatch.setattr(silence, "SILENT_S", 0.2)
    monkeypatch.setattr(silence, "REMEMBERED_S", 600.0)
    ada = laptop("ada")
    ada.url = url.replace("connect_timeout=60", "connect_timeout=5")
    row = ada.up(name="fox").machine
    session = ada.opened()
    session.ledger.machines()
    postgres.freeze()
    try:
        with pytest.raises(EndedUnrecorded, match="fox is stopped and not billed"):
            stop(session, row, why="asked by the user")
        assert ada.machines() == []
    finally:
        postgres.thaw()
        silence._timed_out_servers.clear()
    assert ada.opened().find("fox").state == "stopped"
    assert not ada.opened().ledger.has_outbox


def test_a_wrong_password_is_no_outage(laptop, url):
    ada = laptop("ada")
    ada.up(name="fox")
    ada.url = url.replace("ada:", "ada:no-")
    fault = ada.stop("fox")
    assert "does not let this user in" in fault.message
    assert len(ada.machines()) == 1, "whoever may not read the ledger stops nothing behind its back"


def test_owners_hear_once_from_cron_that_the_ledger_refuses_its_password(laptop, url, web):
    ada = laptop("ada")
    ada.up(name="fox")
    with (ada.home / "config.toml").open("a") as config:
        config.write(f'[alerts]\nto = ["json://{web.place}/owner"]\n')
    ada.url = url.replace("ada:", "ada:no-")
    for _ in range(2):
        with pytest.raises(LedgerDenied) as denied:
            reap(ada.opened(), ReapOptions(cron=True))
        assert denied.value.exit_code == 6
    assert len([one for one in web.got if one[0] == "POST"]) == 1
    session = ada.opened()
    with pytest.raises(LedgerDenied), notify_if_ledger_away(session):
        session.ledger.check_in_use()
    (post,) = [body.decode() for method, _, body in web.got if method == "POST"]
    assert "the ledger cannot be used" in post
    assert "does not let this user in" in post
    assert len(ada.machines()) == 1
    ada.url = url
    assert reap(ada.opened(), ReapOptions(cron=True)).exit_code == 0
    assert not (session.home.root / "outage.told").exists()


@pytest.mark.parametrize("at", ["asked", "sent", "written", "half"])
def test_a_crash_anywhere_leaves_no_line_twice_and_none_out(laptop, killed, monkeypatch, at):
    ada = laptop("ada")
    ada.up(name="fox")
    with killed():
        if at in ("asked", "sent"):
            _crash_at_stop(ada, monkeypatch, at)
            assert len(ada.machines()) == (1 if at == "asked" else 0)
        ada.stop("fox")
        if at == "half":
            with ada.box.open("ab") as file:
                file.write(ada.box.read_bytes()[:90])
    if at == "written":  # the lines stand, and the file of them is still there
        with monkeypatch.context() as patch:
            patch.setattr(outbox.Outbox, "_remove_written", _dies)
            with pytest.raises(KeyboardInterrupt):
                ada.opened()
    row = ada.opened().find("fox")
    assert (row.state, row.billed) == ("stopped", False)
    kinds = ada.kinds("fox")
    assert kinds.count("stop_requested") == 1
    assert len([line for line in ada.opened().ledger.events(row.id) if line.body.get("state") == "stopped"]) == 1
    assert not ada.opened().ledger.has_outbox


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def _crash_at_stop(ada: Own, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    session = ada.opened()
    (row,) = find_to_stop(session, "fox")
    cloud = session.provider("lab")
    send = cloud.stop

    def dies(machine: str) -> None:
        if at == "sent":
            send(machine)
        _dies()

    with monkeypatch.context() as patch:
        patch.setattr(cloud, "stop", dies)
        with pytest.raises(KeyboardInterrupt):
            stop(session, row, why="asked by the user")


def test_two_processes_that_come_back_at_once_write_it_once(laptop, killed):
    ada = laptop("ada")
    ada.up(name="fox")
    with killed():
        ada.stop("fox")
    together, found = threading.Barrier(4), []

    def come_back() -> None:
        together.wait()
        session = ada.opened()
        found.append(session)

    threads = [threading.Thread(target=come_back) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 4
    assert ada.kinds("fox").count("stop_requested") == 1
    assert not ada.opened().ledger.has_outbox


@pytest.mark.soak
def test_a_home_that_never_reached_the_ledger_knows_of_no_machine_as_its_own(laptop, killed):
    laptop("ada").up(name="fox")
    eve = laptop("eve")
    with killed():
        with pytest.raises(LedgerUnavailable, match="cannot be reached"):
            eve.down("fox")
        assert len(eve.machines()) == 1
