"""A colleague's machine, from a home of one's own: reached where it was shared, and one sentence where it was not.

The cloud is the fake one, the machine's SSH server is a real one, and both homes are on one ledger.
"""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.authorized_keys import read_public_key
from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.access.ssh.target import KeyRefused, LoginRefused
from cloudgpu.control.access.allowlist import allow
from cloudgpu.control.access.reach import connected_to, machine_with_address
from cloudgpu.control.access.share import share, unshare
from cloudgpu.control.inventory.local_files import clean_up
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.network.authorized_keys import explain_other_home, own_key
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.events.log import Draft
from cloudgpu.core.model.facts import RecordedIdentity
from cloudgpu.errors import AuthFailed, ProviderUnavailable, Unreachable, WrongHostKey
from tests.control.conftest import OPENED
from tests.control.network.test_doors import ADAS, CAFE, HOME, Street, with_agent


class Two(Street):
    """Ada, who launches, and Bob, whose home has a key of its own and the same ledger."""

    def opened(self, name="ada"):
        home = self.home if name == "ada" else self.home.with_name(name)
        home.mkdir(exist_ok=True)
        if name != "ada":
            (home / "config.toml").write_text((self.home / "config.toml").read_text())
        url = f"sqlite:///{self._tmp}/lab.db"
        environ = {"CLOUDGPU_HOME": str(home), "USER": name, "CLOUDGPU_LEDGER": url}
        session = open_session(environ, clock=self.clock, tell=self.said.append)
        session.pause = self.clock.advance
        OPENED.append(weakref.ref(session))
        return session


@pytest.fixture
def two(tmp_path, monkeypatch):
    made = Two(tmp_path, monkeypatch)
    with_agent(made.server)
    yield made
    made.end()


@pytest.fixture
def bob(two):
    return two.opened("bob")


def launched(two, **more):
    """A machine of Ada's, whose host key her home has pinned."""
    row = two.machine(name="amber-fox", **more)
    assert client_files.pinned(two.session.home.known_hosts, row.id) is not None
    return row


def key_of(session):
    return read_public_key(client_key(session.home.keys).path.with_suffix(".pub"))


def said_in(session, row, words):
    with connected_to(session, row) as connection:
        return connection.capture(words, timeout=20).stdout


def test_a_machine_that_is_not_shared_is_refused_in_one_sentence_and_not_contacted(two, bob):
    launched(two)
    before = two.server.connections
    for reach_it in (lambda row: said_in(bob, row, "true"), lambda row: machine_with_address(bob, row)):
        with pytest.raises(Unreachable, match="is ada's, and the key of this home was not let in there") as caught:
            reach_it(bob.find("amber-fox"))
        assert caught.value.exit_code == 10
        file = bob.client_key_file.with_suffix(".pub")
        assert caught.value.next == f"Send ada {file}; they run: cloudgpu share amber-fox --key id_ed25519.pub"
        assert file.is_file()
    assert two.server.connections == before


def test_a_share_hands_the_host_key_over_and_no_private_one(two, bob):
    row = launched(two)
    value = share(two.session, row, key_of(bob), from_=ADAS)
    (line,) = [one for one in bob.ledger.events(row.id) if one.kind == "machine_shared"]
    assert line.body["key"] == own_key(bob).fingerprint
    assert line.body["host_key"] == value["host_key"]
    assert "PRIVATE" not in str(line.body)
    assert client_files.pinned(bob.home.known_hosts, row.id) is None
    assert said_in(bob, bob.find("amber-fox"), "echo hi") == b"hi\n"
    assert client_files.pinned(bob.home.known_hosts, row.id) == value["host_key"]
    assert machine_with_address(bob, bob.find("amber-fox")).id == row.id
    assert share(two.session, bob.find("amber-fox"), key_of(bob), from_=ADAS)["changed"] is False
    assert len([one for one in bob.ledger.events(row.id) if one.kind == "machine_shared"]) == 1


def test_the_systems_ssh_can_verify_what_was_shared_before_it_first_connects(two, bob):
    row = launched(two)
    share(two.session, row, key_of(bob), from_=ADAS)
    clean_up(bob)
    assert client_files.pinned(bob.home.known_hosts, row.id) is not None


def test_another_host_key_than_the_one_that_was_shared_is_refused(two, bob):
    row = launched(two)
    share(two.session, row, key_of(bob), from_=ADAS)
    two.server.kill()
    two.server.host_key = new_host_key()
    two.server.start(authorized=key_of(bob).line)
    with pytest.raises(WrongHostKey, match="another host key") as refusal:
        said_in(bob, bob.find("amber-fox"), "true")
    assert refusal.value.next.startswith("Nothing was sent to it. If its host key was changed on purpose: Send ada")


@pytest.mark.soak
def test_a_share_after_a_comeback_hands_the_new_host_key_over(two, bob):
    row = launched(two)
    share(two.session, row, key_of(bob), from_=ADAS)
    assert said_in(bob, bob.find("amber-fox"), "echo hi") == b"hi\n"
    two.server.kill()
    two.server.host_key = new_host_key()
    two.clock.advance(60)
    two.server.start(authorized=client_key(two.session.home.keys).public_line)
    client_files.pin(two.session.home.known_hosts, row.id, two.server.host_key.public_line)
    share(two.session, two.session.find("amber-fox"), key_of(bob), from_=ADAS)
    assert said_in(bob, bob.find("amber-fox"), "echo hi") == b"hi\n"


def test_a_line_in_the_ledger_replaces_no_host_key_that_a_home_has_pinned(two, bob):
    row = launched(two)
    forged = {"key": own_key(two.session).fingerprint, "label": "", "from": None, "host": "x"}
    forged["host_key"] = new_host_key().public_line
    bob.ledger.append([Draft("machine_shared", row.id, forged, two.clock(), "forged")])
    clean_up(two.session)
    assert said_in(two.session, two.session.find("amber-fox"), "echo hi") == b"hi\n"
    client_files.unpin(two.session.home.known_hosts, row.id)
    clean_up(two.session)
    assert client_files.pinned(two.session.home.known_hosts, row.id) is None, "launched here: nobody hands it over"


def test_what_is_taken_back_is_closed_and_said_so(two, bob):
    row = launched(two)
    share(two.session, row, key_of(bob), from_=ADAS)
    said_in(bob, bob.find("amber-fox"), "true")
    unshare(two.session, two.session.find("amber-fox"), key_of(bob))
    assert bob.find("amber-fox").shared == {}
    with pytest.raises(Unreachable, match="was not let in there"):
        said_in(bob, bob.find("amber-fox"), "true")


def test_a_machine_launched_anew_under_the_name_is_not_the_one_that_was_shared(two, bob):
    row = launched(two)
    share(two.session, row, key_of(bob), from_=ADAS)
    two.cloud.terminate(row.provider_id)
    two.clock.advance(3600)
    two.session.ledger.append([Draft("terminate_requested", row.id, {"why": "over", "host": "x"}, two.clock(), "over")])
    assert refresh(two.session, row).terminated_at
    again = two.machine(name="amber-fox")
    assert again.id != row.id
    with pytest.raises(Unreachable, match="was not let in there"):
        said_in(bob, bob.find("amber-fox"), "true")


def test_an_account_that_does_not_open_here_keeps_nobody_from_a_shared_machine(two, bob):
    row = launched(two)
    share(two.session, row, key_of(bob), from_=ADAS)
    (bob.home.root / "config.toml").write_text("")
    stranger = two.opened("bob")
    stranger.settings = type(stranger.settings)(owner="bob", ledger_url=stranger.settings.ledger_url)
    assert said_in(stranger, stranger.find("amber-fox"), "echo hi") == b"hi\n"
    assert machine_with_address(stranger, stranger.find("amber-fox"))


def test_allow_moves_the_colleagues_own_address_and_leaves_the_owners(two, bob):
    row = launched(two)
    share(two.session, row, key_of(bob), from_=ADAS)
    two.move(CAFE)
    allow(bob, "amber-fox", None)
    assert sorted(two.doors(row).values()) == [f"{CAFE}/32", f"{HOME}/32"]
    assert two.doors(row)["caller"] == f"{HOME}/32"


def test_where_the_cloud_may_keep_the_colleague_out_it_is_said_who_opens_it(two, bob):
    row = launched(two)
    share(two.session, row, key_of(bob), from_=ADAS)
    two.server.kill()
    bobs_cloud = bob.provider("lab")
    bobs_cloud.fail_next("get", AuthFailed("not bob's account"))
    bobs_cloud.fail_next("allowed", ProviderUnavailable("no answer"))
    with pytest.raises(Unreachable) as caught:
        said_in(bob, bob.find("amber-fox"), "true")
    assert "they run: cloudgpu share amber-fox --key id_ed25519.pub --from YOUR-ADDRESS" in caught.value.next


def test_a_local_machine_of_a_colleague_is_said_to_answer_on_its_own_computer_alone(two, bob):
    here = RecordedIdentity("local", "desk", "the computer desk")
    row = launched(two)._replace(provider="local", identity=here)
    fault = explain_other_home(bob, row, Unreachable("no answer", field="name"))
    assert fault.next == "It answers only on the computer that it runs on (the computer desk): run this there."


def test_an_owner_in_a_second_home_is_told_so(two):
    launched(two)
    other = two.opened("desk")
    other.settings = two.session.settings
    with pytest.raises(Unreachable, match="amber-fox was launched from another home"):
        said_in(other, other.find("amber-fox"), "true")


def test_an_owner_whose_machine_is_known_by_its_tags_alone_is_no_colleague(two):
    row = launched(two)._replace(owner="ada-lovelace")
    other = two.opened("desk")
    other.settings = replace(two.session.settings, owner="Ada Lovelace")
    fault = explain_other_home(other, row, KeyRefused("no", field="name"))
    assert fault.message.startswith("amber-fox was launched from another home")
    assert fault.next.startswith("Copy ")


def test_an_owner_in_a_second_home_is_told_why_no_login_was_tried(two):
    row = launched(two)
    other = two.opened("desk")
    refused = LoginRefused("They could not agree on how to encrypt.", field="name", next="Bring it up to date.")
    assert explain_other_home(other, row, refused) is refused
    assert refused.next == "Bring it up to date."
