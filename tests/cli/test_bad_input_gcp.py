"""Bad input about Google Cloud, on our model of it: exit code, field, value, the way out; nothing made or recorded."""

from __future__ import annotations

import pytest

from tests.cli import bad_input
from tests.cli.bad_input import BARE, COMMON, Case
from tests.cli.gcp_line import CONFIG, Line
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process

__all__ = ["gcp", "gcp_process"]
UP = f"{BARE} --gpu v100 --region us-central1"
MADE = {f"compute.{kind}.insert" for kind in ("instances", "disks", "firewalls", "images", "snapshots")}


@pytest.fixture
def line(own_home, capsys, gcp, monkeypatch):
    on_time_of(monkeypatch, gcp)
    return Line(own_home, capsys, gcp)


PLACES = [
    Case(f"{BARE} --gpu v100 --region us-cnetral1", "--region", "did you mean 'us-central1'?", "Use us-central1."),
    Case(f"{BARE} --gpu v100 --region us-east-1", "--region", "us-east-1", ""),
    Case(f"{BARE} --gpu v100 --region europe-west4", "--region", "does not use europe-west4", "config.toml"),
    Case(f"{UP} --zone us-west1-a", "--zone", "is in us-west1, not in us-central1", "Leave --region out"),
    Case(f"{BARE} --gpu v100 --zone us-central1-z", "--zone", "no zone 'us-central1-z'", "us-central1-a"),
    Case(f"{BARE} --gpu v100 --zone moon", "--zone", "'moon' is not a zone", "us-central1-a"),
    Case(f"{BARE} --gpu v100 --zone us-west1-c", "--zone", "us-west1-c", "--zone us-", 4),
]
TYPES = [
    Case(f"{BARE} --instance-type a2-higpu-1g", "--instance-type", "did you mean 'a2-highgpu-1g'?", "a2-highgpu-1g"),
    Case(f"{BARE} --instance-type p3.2xlarge", "--instance-type", "no machine type 'p3.2xlarge'", "cloudgpu gpus"),
    Case(f"{BARE} --instance-type g2-standard-4 --gpu v100", "--gpu", "g2-standard-4 has 1x L4", "--instance-type out"),
    Case(
        f"{BARE} --instance-type n1-standard-4+v100:3",
        "--instance-type",
        "did you mean 'n1-standard-4+v100:2'?",
        "Use n1",
    ),
    Case(f"{BARE} --gpu v100:3", "--gpu", "1, 2, 4 or 8", "--gpu v100:2", 4),
    Case(f"{UP} --max-price 0.5", "--max-price", "the cheapest offer costs $2.67", "Allow --max-price 2.6", 4),
]
DISKS = [
    Case(f"{UP} --disk 5", "--disk", "5 GB", "Ask for "),
    Case(f"{UP} --volume data:5", "--volume", "5 GB", ""),
]
IMAGES = [
    Case(f"{UP} --image trained", "--image", "trained", "cloudgpu image ls"),
    Case(f"{UP} --image projects/nobody/global/images/none", "--image", "projects/nobody", "image"),
    Case(f"{UP} --image ami-0123456789abcdef0", "--image", "ami-0123456789abcdef0", "image"),
]
NETWORK = [
    Case(f"{UP} --subnet Sub/Net", "--subnet", "is not a subnet of Google Cloud's", "subnetworks/NAME"),
    Case(f"{UP} --subnet nowhere", "--subnet", "no subnet 'nowhere' in us-central1", "gcloud compute networks subnets"),
    Case(f"{UP} --subnet regions/us-west1/subnetworks/default", "--region", "is in us-west1", "--region us-west1"),
    Case("up --yes --gpu v100 --security-group Tag!", "--security-group", "not a network tag", "Name the tag"),
]
MARKETS = [
    Case(f"{UP} --spot --max-price 0", "--max-price", "0", ""),
    Case("up --yes --provider googel --gpu v100", "provider", "googel", "gcp"),
]
CASES = [*(case.on(UP) for case in COMMON), *PLACES, *TYPES, *DISKS, *IMAGES, *NETWORK, *MARKETS]


@pytest.mark.parametrize("case", CASES, ids=bad_input.named)
def test_bad_input_is_named_and_nothing_is_launched(case, line):
    bad_input.check(case, line, MADE)


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ('project = "Not a project"', "project"),
        ('zones = ["moon"]', "zones"),
        ('exclude_regions = ["moon"]', "exclude_regions"),
        ("ssh_port = 70000", "ssh_port"),
        ('network = "My Network"', "network"),
        ('service_account = "somebody"', "service_account"),
        ('colour = "red"', "colour"),
    ],
)
def test_a_setting_of_the_account_that_is_wrong_is_named(line, setting, field):
    line.config(f"{CONFIG}{setting}\n")
    said = line(UP, "-o json")
    error = said.json["error"]
    assert (said.code, error["field"].rpartition(".")[2]) == (2, field), error
    assert error["next"]
    assert line.gcp.calls == []


def test_a_network_that_is_not_there_is_named(line):
    line.config(f'{CONFIG}network = "lab"\n')
    bad_input.check(
        Case(UP, "accounts.lab.network", "no network 'lab'", "gcloud compute networks create lab"), line, MADE
    )


def test_an_endpoint_that_is_no_address_is_named(line, monkeypatch):
    monkeypatch.setenv("CLOUDGPU_GCP_ENDPOINT", "nowhere at all")
    said = line(UP, "-o json")
    assert (said.code, said.json["error"]["field"]) == (2, "CLOUDGPU_GCP_ENDPOINT"), said.json


def test_no_project_anywhere_is_said_with_the_way_out(line, monkeypatch):
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    said = line(UP, "-o json")
    error = said.json["error"]
    assert (said.code, error["field"]) == (2, "accounts.lab.project")
    assert "GOOGLE_CLOUD_PROJECT" in error["next"]


def test_a_volume_in_another_place_is_said_to_be_there(line, gcp):
    assert line(f"{BARE} --no-wait --gpu t4 --zone us-central1-f --volume data:20").code == 0
    assert line("down --all --yes").code == 0
    for words, says in (("--region us-west1", "us-central1-f"), ("--zone us-central1-a", "us-central1-f")):
        said = line(f"{BARE} --gpu t4 --volume data {words} -o json")
        error = said.json["error"]
        assert (said.code, error["field"]) == (2, "--zone"), error
        assert says in error["message"]
    said = line(f"{BARE} --gpu t4 --volume data:30 -o json")
    assert (said.code, said.json["error"]["field"]) == (2, "--volume")
    assert "has 20 GB, not 30" in said.json["error"]["message"]
    assert len(gcp.called("compute.instances.insert")) == 1


@pytest.mark.parametrize(
    "words", ["show otter", "stop otter --yes", "down otter --yes", "start otter --yes", "allow otter"]
)
def test_a_machine_that_is_not_there_is_not_found(line, words):
    said = line(words, "-o json") if not words.startswith("allow") else line(words)
    assert said.code == 7, said.out + said.err
