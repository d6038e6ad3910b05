"""Whose computer a launch may be on: a stranger's, or one that gets secrets, only where that was typed."""

from __future__ import annotations

import json

import pytest

from cloudgpu.cli.launch.planned import brief_plan_text, plan_text
from cloudgpu.cli.machine_text import machine_summary
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.listing import build_machine_document
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import plan_run
from cloudgpu.control.launch.budget_preview import build_plan_document
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.core.launch.attempt import attempt_from_json, attempt_to_json
from cloudgpu.core.model.offers import NoteKind, Trust
from cloudgpu.errors import InvalidRequest, LaunchUncertain, NoCapacity
from tests.control.conftest import Lab

TYPE = "fake.v100.1"
WHOSE = {"own": (5, "cloud"), "hall": (3, "datacenter"), "attic": (1, "community")}


class Streets(Lab):
    """A user of three accounts: a cloud's own computers, somebody's in a data centre, a stranger's; cheaper each."""

    def __init__(self, tmp_path, monkeypatch, head='provider = "any"'):
        for name in ("AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        super().__init__(tmp_path, monkeypatch)
        tables = [
            f'[accounts.{name}]\nprovider = "fake"\nstate_file = "{tmp_path / name}.json"\n'
            f'prices = {{ "{TYPE}" = {usd} }}\ntrust = {{ "{TYPE}" = "{trust}" }}\n'
            for name, (usd, trust) in WHOSE.items()
        ]
        (self.home / "config.toml").write_text(f"{head}\n" + "".join(tables))
        self.session = self.opened()

    def plan(self, **words):
        return prepare(self.session, parse_request(gpu="v100", **words))

    def document(self, **words):
        return build_plan_document(self.session, self.plan(**words))["plan"]

    def accounts(self, **words):
        return list(dict.fromkeys(offer.configuration.account for offer in self.plan(**words).offers))

    def there(self):
        clouds = {name: self.session.provider(name) for name in WHOSE}
        return sorted(name for name, one in clouds.items() for each in one.list().instances if each.billed)


@pytest.fixture
def streets(tmp_path, monkeypatch):
    return Streets(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("typed", "tried"),
    [
        (None, ["hall", "own"]),
        ("cloud", ["own"]),
        ("datacenter", ["hall", "own"]),
        ("community", ["attic", "hall", "own"]),
    ],
)
def test_offers_are_of_the_trust_that_is_accepted_and_a_stranger_is_never_unasked(streets, typed, tried):
    assert streets.accounts(trust=typed) == tried


def test_a_provider_or_account_that_is_named_accepts_no_strangers_either(streets):
    with pytest.raises(NoCapacity) as refused:
        streets.plan(account="attic")
    assert refused.value.field == "--trust"
    assert refused.value.message == (
        "Nothing that fits is trusted enough (--trust datacenter); the cheapest is a stranger's computer: "
        "fake.v100.1 at attic for $1.0000 an hour."
    )
    assert "--trust community" in refused.value.next
    assert streets.accounts(account="attic", trust="community") == ["attic"]


def test_who_accepts_a_clouds_own_computers_alone_is_told_whose_the_cheapest_is(streets):
    with pytest.raises(NoCapacity) as refused:
        streets.plan(account="hall", trust="cloud")
    assert refused.value.message == (
        "Nothing that fits is trusted enough (--trust cloud); the cheapest is a computer of somebody else in a data "
        "centre: fake.v100.1 at hall for $3.0000 an hour."
    )
    assert "--trust datacenter" in refused.value.next


def test_the_plan_says_once_what_a_stranger_would_be_cheaper_by(streets):
    found = streets.document()
    said = [note for note in found["notes"] if "cheaper" in note]
    assert said == ["cheaper from a community host with --trust community: fake.v100.1 at attic for $1.0000 an hour"]
    assert (found["account"], found["trust"]) == ("hall", "datacenter")
    assert not [note for note in streets.document(trust="community")["notes"] if "cheaper" in note]
    assert [
        note
        for note in streets.document(
            trust="cloud",
        )["notes"]
        if "attic" in note
    ]


def test_less_trust_that_is_dearer_is_not_spoken_of(streets):
    config = streets.home / "config.toml"
    config.write_text(config.read_text().replace(f'"{TYPE}" = 1 ', f'"{TYPE}" = 9 '))
    streets.session = streets.opened()
    assert not [note for note in streets.document()["notes"] if "attic" in note]


def test_a_plan_with_strangers_among_its_offers_says_what_their_owner_can_read(streets):
    found = streets.document(trust="community")
    notes = dict(zip(found["notes"], found["note_kinds"], strict=True))
    (said,) = [note for note in notes if "its owner can read everything" in note]
    assert notes[said] == NoteKind.ACCESS
    for text in (brief_plan_text, plan_text):
        shown = " ".join(text(found, streets.clock()).split())
        assert "its owner can read everything on it" in shown
        assert "a stranger's computer" in shown
    assert not [note for note in streets.document(trust="datacenter")["notes"] if "its owner can read" in note]


def test_the_ledgers_launch_line_and_show_say_whose_computer_it_is(streets):
    row = launch(streets.session, streets.plan(trust="community"), wait=False).machine
    (line,) = [one for one in streets.session.ledger.events(row.id) if one.kind == "launch_intended"]
    assert (line.body["account"], line.body["trust"]) == ("attic", "community")
    shown = build_machine_document(streets.session, streets.session.ledger.machine(row.id))
    assert shown["trust"] == "community"
    assert "a stranger's computer" in " ".join(machine_summary(shown, streets.clock()).split())
    assert streets.opened().ledger.machine(row.id).trust == "community"


def test_a_clouds_own_computer_needs_no_word_in_the_ledger(streets):
    row = launch(streets.session, streets.plan(trust="cloud"), wait=False).machine
    (line,) = [one for one in streets.session.ledger.events(row.id) if one.kind == "launch_intended"]
    assert "trust" not in line.body
    assert build_machine_document(streets.session, streets.session.ledger.machine(row.id))["trust"] == "cloud"


def test_a_found_machine_that_is_trusted_less_than_was_asked_is_said_to_differ(streets):
    launch(streets.session, streets.plan(trust="community"), wait=False)
    found = build_plan_document(streets.session, streets.plan(trust="cloud"))
    assert found["existing"]["trust"] == "community"
    (one,) = [each for each in found["differences"] if each["option"] == "--trust"]
    assert (one["requested"], one["current"]) == ("cloud", "community")
    assert streets.there() == ["attic"]


def test_where_no_trusted_offer_has_capacity_a_stranger_is_not_tried(streets):
    prepared = streets.plan()
    for account in ("own", "hall"):
        for zone in ("north-a", "north-b", "south-a", "south-b"):
            streets.session.provider(account).exhaust(zone)
    with pytest.raises(NoCapacity):
        launch(streets.session, prepared, wait=False)
    assert streets.there() == []


def test_an_interrupted_launch_on_a_strangers_computer_is_sent_again_only_where_that_is_typed_again(streets):
    def asked(**words):
        streets.session = streets.opened()
        return launch(streets.session, streets.plan(**words), wait=False).machine

    streets.session.provider("attic").fail_next("launch", LaunchUncertain("no answer"))
    with pytest.raises(LaunchUncertain):
        asked(trust="community")
    assert (asked().account, streets.there()) == ("hall", ["hall"])


def test_an_interrupted_launch_on_a_strangers_computer_goes_on_where_that_is_typed_again(streets):
    streets.session.provider("attic").fail_next("launch", LaunchUncertain("no answer"))
    with pytest.raises(LaunchUncertain):
        launch(streets.session, streets.plan(trust="community"), wait=False)
    streets.session = streets.opened()
    assert launch(streets.session, streets.plan(trust="community"), wait=False).machine.account == "attic"


def test_a_setting_may_ask_for_more_trust_and_never_for_less(tmp_path, monkeypatch):
    strict = Streets(tmp_path, monkeypatch, 'provider = "any"\ntrust = "cloud"')
    assert strict.accounts() == ["own"]
    assert strict.accounts(trust="datacenter") == ["hall", "own"]
    (strict.home / "config.toml").write_text('trust = "community"\n')
    with pytest.raises(InvalidRequest) as refused:
        strict.opened()
    assert (refused.value.field, refused.value.exit_code) == ("config.toml: trust", 2)
    assert "--trust community" in refused.value.next


def test_another_word_than_a_trust_is_refused_with_those_that_are():
    with pytest.raises(InvalidRequest) as refused:
        parse_request(trust="comunity")
    assert (refused.value.field, refused.value.value) == ("--trust", "comunity")
    assert "community" in refused.value.message


def test_a_volume_goes_to_no_stranger_unless_that_is_typed(streets):
    with pytest.raises(InvalidRequest) as refused:
        streets.plan(trust="community", volume="data:50")
    assert (refused.value.field, refused.value.exit_code) == ("--volume", 2)
    assert "--expose" in refused.value.next
    assert streets.plan(trust="community", volume="data:50", expose=True).plan.request.setup.volume is not None
    assert streets.plan(volume="data:50").offers  # nothing is exposed, so nothing has to be typed


@pytest.mark.parametrize("option", ["secret", "env_file"])
def test_secrets_go_to_no_stranger_unless_that_is_typed(tmp_path, option):
    path = tmp_path / "secrets.env"
    path.write_text("TOKEN=hunter2\n")
    words = {"secret": ["TOKEN"]} if option == "secret" else {"env_file": path}
    asked = {"argv": ["true"], "workdir": tmp_path, "environ": {"TOKEN": "hunter2"}, **words}
    with pytest.raises(InvalidRequest) as refused:
        parse_run(trust="community", **asked)
    name = f"--{option.replace('_', '-')}"
    assert (refused.value.field, refused.value.exit_code) == (name, 2)
    assert refused.value.message == (
        f"{name} with --trust community would let the owner of a stranger's computer read it."
    )
    assert "hunter2" not in json.dumps(refused.value.as_dict())
    assert parse_run(trust="community", expose=True, **asked).launch == {"trust": "community", "expose": True}
    assert parse_run(trust="datacenter", **asked).launch == {"trust": "datacenter"}
    assert parse_run(**asked).launch == {}


def test_a_machine_of_a_stranger_that_is_there_gets_no_secrets_either(streets, tmp_path):
    row = launch(streets.session, streets.plan(trust="community"), wait=False).machine
    streets.later(minutes=1)
    asked = {"argv": ["true"], "workdir": tmp_path, "environ": {"TOKEN": "hunter2"}, "on": row.name}
    with pytest.raises(InvalidRequest) as refused:
        plan_run(streets.session, parse_run(secret=["TOKEN"], **asked), {"TOKEN": "hunter2"})
    assert (refused.value.field, refused.value.value) == ("--secret", row.name)
    exposed = plan_run(streets.session, parse_run(secret=["TOKEN"], expose=True, **asked), {"TOKEN": "hunter2"})
    assert exposed.machine.id == row.id
    assert plan_run(streets.session, parse_run(**asked), {}).machine.id == row.id


def test_a_relaunched_job_keeps_to_the_trust_that_was_typed(streets, tmp_path):
    request = parse_run(argv=["true"], workdir=tmp_path, gpu="v100", trust="cloud", environ={})
    spec = plan_run(streets.session, request, {}).spec
    assert spec["launch"]["trust"] == "cloud"


def test_a_relaunched_job_keeps_to_the_trust_of_the_settings_of_who_placed_it(tmp_path, monkeypatch):
    strict = Streets(tmp_path, monkeypatch, 'provider = "any"\ntrust = "cloud"')
    words = {"argv": ["true"], "workdir": tmp_path, "gpu": "v100", "environ": {}}
    spec = plan_run(strict.session, parse_run(**words), {}).spec
    assert spec["launch"]["trust"] == "cloud"  # another computer, whose settings are usual ones, may launch it
    assert plan_run(strict.session, parse_run(trust="datacenter", **words), {}).spec["launch"]["trust"] == "datacenter"


def test_a_saved_call_keeps_the_trust_of_its_offer_and_of_its_request(streets):
    prepared = streets.plan(trust="community")
    launch(streets.session, prepared, wait=False)
    (saved,) = [path for path in streets.session.home.root.rglob("*.json") if "host_private_key" in path.read_text()]
    attempt = attempt_from_json(json.loads(saved.read_text()))
    assert (attempt.offer.configuration.trust, attempt.request.requirements.trust) == (Trust.COMMUNITY, Trust.COMMUNITY)
    assert attempt_from_json(attempt_to_json(attempt)) == attempt


def test_a_password_in_a_templates_address_is_said_to_be_shown_and_goes_to_no_stranger(tmp_path, monkeypatch):
    secret = '[templates.d2l]\nrepository = "https://ada:s3cret@git.example/course.git"\n'
    streets = Streets(tmp_path, monkeypatch)
    config = streets.home / "config.toml"
    config.write_text(config.read_text() + secret)
    streets.session = streets.opened()
    with pytest.raises(InvalidRequest) as refused:
        streets.plan(template="d2l", trust="community")
    assert (refused.value.field, refused.value.exit_code) == ("templates.d2l.repository", 2)
    assert "s3cret" not in json.dumps(refused.value.as_dict())
    for words in ({}, {"trust": "community", "expose": True}):
        found = streets.document(template="d2l", **words)
        (said,) = [note for note in found["notes"] if "password" in note]
        assert "s3cret" not in said
        assert found["note_kinds"][found["notes"].index(said)] == NoteKind.ACCESS
    assert not [note for note in streets.document(template="d2l", trust="cloud")["notes"] if "password" in note]
