"""Bad input: settings, keys, options and ids that cannot be, each refused in a sentence and without a call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest
from cloudgpu.providers.vast.options import vast_options
from cloudgpu.testing.helpers import make_attempt
from tests.clouds.vast.server import KEY
from tests.providers.vast.accounts import account, launched, offered


@pytest.mark.parametrize(
    "table",
    [
        {"region": "NO"},
        {"api_key": "never in the file"},
        {"regions": "NO"},
        {"regions": ["Norway"]},
        {"exclude_regions": ["no"]},
        {"reliability": 95},
        {"reliability": "high"},
        {"reliability": True},
        {"unverified": "yes"},
        {"image": "pytorch/pytorch"},
        {"image": "Bad Name:1"},
        {"image": "x:1; reboot"},
        {"key_file": "vast_api_key"},
        {"key_file": 5},
    ],
)
def test_a_setting_that_cannot_be_is_named(table):
    with pytest.raises(InvalidRequest) as refused:
        vast_options("lab", table)
    assert next(iter(table)) in refused.value.field
    assert refused.value.next


def test_a_key_typed_in_place_of_its_file_is_not_repeated():
    with pytest.raises(InvalidRequest) as refused:
        vast_options("lab", {"key_file": KEY})
    assert KEY not in str(refused.value.as_dict())


@pytest.mark.parametrize("key", ["", "   ", "two words", "schlüssel"])
def test_what_is_no_key_is_refused_before_anything_is_sent(vast, tmp_path, monkeypatch, key):
    monkeypatch.setenv("VAST_API_KEY", key)
    with pytest.raises(AuthFailed) as refused:
        account(vast, tmp_path / "lab").list()
    assert "manage-keys" in refused.value.next
    assert not vast.calls


def test_a_key_file_that_is_not_there_is_named(vast, tmp_path):
    with pytest.raises(AuthFailed) as refused:
        account(vast, tmp_path / "lab", key_file=str(tmp_path / "none")).list()
    assert str(tmp_path / "none") in refused.value.message


def test_a_key_file_is_read_where_the_settings_name_one(vast, tmp_path):
    (tmp_path / "key").write_text(f"{KEY}\n")
    ours = account(vast, tmp_path / "lab", key_file=str(tmp_path / "key"))
    assert ours.list().instances == ()
    assert "key" in ours.login().what
    assert KEY not in ours.login().what


def test_a_wrong_key_is_refused_with_the_page_of_keys(vast, tmp_path, monkeypatch):
    monkeypatch.setenv("VAST_API_KEY", "wrong")
    with pytest.raises(AuthFailed) as refused:
        account(vast, tmp_path / "lab").list()
    assert "manage-keys" in refused.value.next


def test_keys_that_lie_about_are_not_sent_to_a_server_of_ones_own(vast, tmp_path, monkeypatch):
    monkeypatch.delenv("VAST_API_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".vast_api_key").write_text(KEY)
    with pytest.raises(AuthFailed):
        account(vast, tmp_path / "lab").list()
    assert not vast.calls


def test_an_address_that_is_not_https_gets_no_key(tmp_path, vast, monkeypatch):
    monkeypatch.setenv("CLOUDGPU_VAST_ENDPOINT", "http://vast.example.org")
    with pytest.raises(InvalidRequest):
        account(vast, tmp_path / "lab")


@pytest.mark.parametrize(
    ("setup", "field"),
    [
        (Setup(disk_gb=7), "--disk"),
        (Setup(disk_gb=100_000), "--disk"),
        (Setup(image="ubuntu"), "--image"),
        (Setup(image="ubuntu:"), "--image"),
        (Setup(volume=Volume("data", 10)), "--volume"),
        (Setup(network=Network(subnet="subnet-1")), "--subnet"),
        (Setup(network=Network(security_group="sg-1")), "--security-group"),
        (Setup(network=Network(jump="me@host:22")), "--jump"),
        (Setup(network=Network(public_ip=False)), "--no-public-ip"),
    ],
)
def test_what_means_nothing_there_is_refused_with_its_option(vast, lab, setup, field):
    item = offered(lab)
    with pytest.raises(InvalidRequest) as refused:
        lab.resolve(replace(make_attempt(item).request, setup=setup), item)
    assert refused.value.field == field


@pytest.mark.parametrize("wrong", ["", "0", "-5", "5/../6", "5?x=1", " 5", "5\n", "\u0665", "1" * 19, "abc"])
def test_an_id_that_is_none_is_asked_for_nowhere(vast, lab, wrong):
    launched(lab)
    before = len(vast.calls)
    for verb in (lab.get, lab.terminate, lab.stop, lab.start, lab.host_keys):
        with pytest.raises(CloudgpuError):
            verb(wrong)
    assert len(vast.calls) == before
