"""Which regions an account has is remembered for a day, and hides no machine of the ledger's."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.aws.provider import AwsProvider
from cloudgpu.providers.base import ProviderSettings
from tests.providers.aws.accounts import calls, impatient, machine, quick

NOW = datetime(2026, 11, 24, tzinfo=UTC)


def provider(home, *, in_use=(), later=timedelta(0), **options):
    """Return a provider in a new process; `in_use` None: what it lists is not for a pass."""
    more = {"regions_in_use": lambda: in_use}
    return quick(AwsProvider(ProviderSettings("lab", options, home, lambda: NOW + later, **more)))


def remembered(home):
    (file,) = (home / "regions").iterdir()
    return file, json.loads(file.read_text())["regions"]


def only(home, *regions):
    """Let the memory have no other regions than these."""
    file, _ = remembered(home)
    file.write_text(json.dumps({"at": NOW.timestamp(), "regions": regions}))


def listed(made, aws):
    """Return what a listing has, and where and how often what was asked for it."""
    with calls(aws) as sent:
        found = made.list()
    return {one.region for one in found.instances}, sent, found


@pytest.fixture
def home(aws, tmp_path):
    """A home in which a pass has asked which regions there are."""
    provider(tmp_path).list()
    return tmp_path


def test_what_is_remembered_is_good_for_a_day_and_for_its_own_key(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATHEKEY0000000000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    names = ["us-east-1", "us-west-2"]
    provider(tmp_path)._aws.cache.write_regions(names, NOW)

    def known(hours):
        return provider(tmp_path)._aws.cache.read_regions(NOW + timedelta(hours=hours))

    assert [known(hours) for hours in (0, 23, 24, -1)] == [names, names, None, None]  # at last the clock went back
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAANOTHERKEY000000")
    other = AwsProvider(ProviderSettings("lab", {}, tmp_path, lambda: NOW, regions_in_use=lambda: ()))
    assert other._aws.cache.read_regions(NOW) is None


@pytest.mark.soak
def test_a_pass_asks_once_a_day_which_regions_there_are(aws, home):
    for later, asked in ((0, 0), (23, 0), (25, 1), (26, 0), (10, 1)):  # at last by a clock that went back
        _, sent, found = listed(provider(home, later=timedelta(hours=later)), aws)
        assert [action for action, _ in sent].count("DescribeRegions") == asked
        assert found.regions == set(remembered(home)[1])


@pytest.mark.soak
def test_who_is_no_pass_asks_anew_and_renews_what_is_remembered(aws, home):
    every = remembered(home)[1]
    only(home, "us-east-1")
    machine("us-west-2")
    assert listed(provider(home), aws)[0] == set()
    assert listed(provider(home, in_use=None), aws)[0] == {"us-west-2"}
    assert remembered(home)[1] == every
    assert listed(provider(home), aws)[0] == {"us-west-2"}


@pytest.mark.soak
def test_a_region_of_the_ledgers_machines_is_asked_whatever_is_remembered(aws, home):
    only(home, "us-east-1")
    machine("us-west-2")
    regions, sent, _ = listed(provider(home, in_use=["us-west-2", "cn-north-1", "a host"]), aws)
    assert regions == {"us-west-2"}
    assert sorted(sent) == [("DescribeInstances", "us-east-1"), ("DescribeInstances", "us-west-2")]


@pytest.mark.soak
def test_a_remembered_region_that_does_not_answer_is_looked_up_anew(aws, home, monkeypatch):
    impatient(monkeypatch)
    only(home, "us-east-1", "xx-gone-1")
    aws.faults.offline("xx-gone-1")
    machine("us-west-2")
    regions, sent, found = listed(provider(home), aws)
    assert (regions, found.unanswered) == ({"us-west-2"}, ())
    assert ("DescribeRegions", "us-east-1") in sent
    assert sent.count(("DescribeInstances", "us-east-1")) == 1
    assert "xx-gone-1" not in remembered(home)[1]


@pytest.mark.soak
def test_a_region_that_is_silent_is_named_though_it_is_remembered(aws, home, monkeypatch):
    impatient(monkeypatch)
    machine("us-east-1")
    aws.faults.offline("us-west-2")
    regions, _, found = listed(provider(home), aws)
    assert regions == {"us-east-1"}
    assert [gap.scope for gap in found.unanswered] == ["us-west-2"]


@pytest.mark.soak
def test_what_is_remembered_is_of_one_key(aws, home, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAANOTHERKEY000000")
    other = AwsProvider(ProviderSettings("lab", {}, home, lambda: NOW, regions_in_use=lambda: ()))
    assert other._aws.cache.read_regions(NOW) is None


@pytest.mark.soak
@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"at": 1e99, "regions": ["us-east-1"]}', '{"at": "x", "regions": 1}']
)
def test_a_file_that_says_nothing_is_asked_anew(aws, home, text):
    file, _ = remembered(home)
    file.write_text(text)
    assert provider(home)._aws.cache.read_regions(NOW) is None


def test_a_wrong_name_in_it_is_asked_anew(aws, home):
    only(home, "us-east-1", "elsewhere.example.org")
    assert provider(home)._aws.cache.read_regions(NOW) is None


@pytest.mark.soak
def test_the_users_own_choice_of_regions_holds(aws, home):
    chosen = provider(home, in_use=["us-west-2"], exclude_regions=["us-west-2"])
    assert "us-west-2" not in listed(chosen, aws)[2].regions
    assert listed(provider(home, regions=["us-east-1"]), aws)[2].regions == {"us-east-1"}


@pytest.mark.soak
def test_where_nobody_answers_it_is_an_error_as_ever(aws, home, monkeypatch):
    impatient(monkeypatch)
    for region in remembered(home)[1]:
        aws.faults.offline(region)
    with pytest.raises(CloudgpuError):
        provider(home).list()
