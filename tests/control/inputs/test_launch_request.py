from __future__ import annotations

import pytest

from cloudgpu.control.inputs.launch_request import MAX_DISK_GB, UpOptions, parse_request, parse_size, parse_volume
from cloudgpu.control.launch.plan import prepare
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.errors import InvalidRequest


def refused(call):
    with pytest.raises(InvalidRequest) as raised:
        call()
    assert raised.value.next
    return raised.value.field, raised.value.message


def test_nothing_named_is_the_usual_setup():
    assert parse_request().setup == Setup()


def test_every_word_about_the_setup_arrives():
    wish = parse_request(
        spot=True,
        or_on_demand=True,
        persistent=True,
        image="trained",
        disk="200GB",
        volume="data:500",
        ssh_from="203.0.113.0/24",
        subnet="subnet-0a",
        no_public_ip=True,
        jump="ada@bastion:2222",
    )
    network = Network(("203.0.113.0/24",), "subnet-0a", None, public_ip=False, jump="ada@bastion:2222")
    assert wish.setup == Setup("trained", 200, Volume("data", 500), persistent=True, network=network)
    assert wish.requirements.or_on_demand


@pytest.mark.parametrize(("text", "gb"), [("1", 1), ("64", 64), ("64gb", 64), ("70GiB", 70), (80, 80)])
def test_a_size_is_whole_gb(text, gb):
    assert parse_size(text, "--disk") == gb


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "big", "", str(MAX_DISK_GB + 1), "70,000", "1e3", "\u0665", True])
def test_what_is_no_size_is_refused(text):
    assert refused(lambda: parse_size(text, "--disk"))[0] == "--disk"


def test_a_volume_is_there_already_or_is_made_with_its_size():
    assert parse_volume("data") == Volume("data")
    assert parse_volume("data_2:1") == Volume("data_2", 1)


@pytest.mark.parametrize(
    "text", ["", ":5", "data:", "data:0", "Data:5", "-x:5", "a b:5", "data:5:6", "x" * 64, "d\u00e4ta:5"]
)
def test_what_is_no_volume_is_refused(text):
    assert refused(lambda: parse_volume(text))[0] == "--volume"


def test_the_whole_internet_is_let_in_only_when_that_was_said():
    assert parse_request(ssh_from_anywhere=True).setup.network.ssh_from == ("0.0.0.0/0",)
    assert parse_request(ssh_from="0.0.0.0/0", ssh_from_anywhere=True).setup.network.ssh_from == ("0.0.0.0/0",)
    assert refused(lambda: parse_request(ssh_from="0.0.0.0/0"))[0] == "--ssh-from"
    assert refused(lambda: parse_request(ssh_from="203.0.113.7", ssh_from_anywhere=True))[0] == "--ssh-from-anywhere"


@pytest.mark.parametrize("word", [{"ssh_from": "203.0.113.7"}, {"ssh_from_anywhere": True}])
def test_who_may_connect_is_said_by_the_owner_of_a_security_group(word):
    field, said = refused(lambda: parse_request(security_group="sg-0a", **word))
    assert field == "--" + next(iter(word)).replace("_", "-")
    assert "--security-group" in said


WORDS: list[tuple[str, UpOptions]] = [
    ("--image", {"image": "trained"}),
    ("--disk", {"disk": 100}),
    ("--volume", {"volume": "data:5"}),
    ("--subnet", {"subnet": "subnet-0a"}),
    ("--security-group", {"security_group": "sg-0a"}),
    ("--ssh-from", {"ssh_from": "203.0.113.7"}),
    ("--ssh-from", {"ssh_from_anywhere": True}),
    ("--no-public-ip", {"no_public_ip": True}),
    ("--jump", {"jump": "bastion"}),
    ("--persistent", {"persistent": True, "spot": True}),
]


@pytest.mark.parametrize(("option", "asked"), WORDS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_option_that_means_nothing_at_a_provider_is_refused_and_never_ignored(option, asked, lab):
    field, said = refused(lambda: prepare(lab.session, parse_request(provider="local", **asked)))
    assert field == option
    assert "The local provider has no" in said


@pytest.mark.parametrize("word", ["persistent", "or_on_demand"])
def test_what_is_about_spot_is_refused_on_demand(word, lab):
    field, said = refused(lambda: prepare(lab.session, parse_request(account="lab", **{word: True})))
    assert field == "--" + word.replace("_", "-")
    assert "is on demand" in said


def test_what_a_template_asks_for_stays_left_out_where_it_means_nothing(lab):
    assert "disk_gb" in prepare(lab.session, parse_request(provider="local", template="jupyter")).plan.left_out
