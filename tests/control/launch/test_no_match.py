"""Why nothing fits: the price, a contradiction, the place, or a GPU that is listed and launched no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudgpu import errors
from cloudgpu.control.launch.offers import Refusals, offers_or_launched_one
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.catalog.gpus import nearest_offer
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.values.money import Money
from tests.clouds.aws.fixtures import aws, aws_process

__all__ = ["aws", "aws_process"]
SPOT = Market.SPOT


@pytest.fixture
def offers(aws, own_home):
    """Three regions of our model of AWS: p3.2xlarge is offered in us-east-1b and us-west-2a, no P2 anywhere."""
    regions = 'provider = "aws"\nregions = ["us-east-1", "us-west-2", "eu-west-1"]'
    (own_home / "config.toml").write_text(f"[accounts.lab]\n{regions}\n")
    session = open_session({"CLOUDGPU_HOME": str(own_home)})
    return lambda **wish: offers_or_launched_one(session, session.provider("lab"), Requirements(**wish), None)


@pytest.fixture
def refused(offers):
    def fault(kind=errors.NoCapacity, **wish):
        with pytest.raises(kind) as raised:
            offers(**wish)
        assert type(raised.value) is kind
        return raised.value

    return fault


def test_a_gpu_that_is_listed_and_launched_no_more_is_said_to_be_so(refused):
    fault = refused(gpu="k80")
    assert fault.exit_code == 4
    assert (fault.field, fault.value) == ("--gpu", "k80")
    assert fault.message.startswith("1x k80 is listed at $0.9000 an hour in ")
    assert fault.message.endswith("but aws launches it in no region of account lab any more.")


def test_the_nearest_that_can_be_launched_is_a_command_to_paste(refused, offers):
    said, _, command = refused(gpu="k80").next.rpartition(": ")
    assert said.startswith("Nearest by memory and speed: 1x T4 (16 GiB), listed at $0.")
    assert command == "cloudgpu up --provider aws --account lab --gpu t4"
    assert offers(gpu="t4")


def test_the_nearest_is_looked_for_where_and_how_the_lost_one_was(refused):
    fault = refused(gpu="k80", region="eu-west-1", market=SPOT)
    assert fault.next.endswith("cloudgpu up --provider aws --account lab --gpu t4 --region eu-west-1 --spot")


def test_a_type_that_is_launched_no_more_is_said_to_be_so(refused):
    fault = refused(instance_type="p2.8xlarge")
    assert (fault.field, fault.value) == ("--instance-type", "p2.8xlarge")
    assert "p2.8xlarge is listed at $7.2000 an hour" in fault.message
    assert fault.next.endswith("--gpu t4:8")


def test_a_gpu_that_is_launched_elsewhere_is_said_to_be_there(refused, offers):
    fault = refused(gpu="v100", region="eu-west-1")
    assert (fault.field, fault.value) == ("--region", "eu-west-1")
    assert fault.message == "aws does not launch 1x v100 in eu-west-1: it does in us-east-1 and us-west-2."
    assert fault.next == "Name --region us-east-1, or leave --region out."
    assert {offer.configuration.region for offer in offers(gpu="v100")} == {"us-east-1", "us-west-2"}


def test_another_zone_of_the_same_region_goes_before_another_region(refused):
    fault = refused(gpu="v100", zone="us-east-1a")
    assert (fault.field, fault.value) == ("--zone", "us-east-1a")
    assert fault.message == "aws does not launch 1x v100 in us-east-1a: it does in us-east-1b."
    assert fault.next == "Name --zone us-east-1b, or leave --zone out."


def test_a_price_that_is_too_low_names_the_cheapest(refused, offers):
    fault = refused(gpu="v100", max_price=Money.usd("1.00"))
    assert fault.field == "--max-price"
    assert "the cheapest offer costs $3.0600: p3.2xlarge in us-" in fault.message
    assert fault.next == "Allow --max-price 3.06 or more."
    assert offers(gpu="v100", max_price=Money.usd("3.06"))


def test_a_number_of_gpus_that_is_not_sold_names_those_that_are(refused):
    fault = refused(gpu="v100", gpu_count=3)
    assert fault.message == "aws has no machine with 3 v100: it has them with 1, 4 or 8."
    assert fault.next == "For example --gpu v100:4"


def test_a_gpu_that_only_others_sell_names_them(refused):
    fault = refused(gpu="p100")
    assert fault.message == "aws sells no machine with p100; azure and gcp do."
    assert fault.next == "See what it sells: cloudgpu gpus --provider aws"


@pytest.mark.parametrize(
    ("gpu", "way_out"),
    [
        ("qqqq", "See all: cloudgpu gpus --all"),
        ("nvidia", "See all: cloudgpu gpus --all"),
        ("v10", "--gpu v100"),
        ("a100-40g", "Use --gpu a100-40gb."),
    ],
)
def test_a_gpu_that_nobody_has_is_bad_input(refused, gpu, way_out):
    fault = refused(errors.InvalidRequest, gpu=gpu)
    assert fault.field == "--gpu"
    assert way_out in fault.next


@pytest.mark.parametrize(
    ("name", "has"), [("g5.xlarge", "1x A10G"), ("t3.small", "no GPU"), ("p3.8xlarge", "4x V100-16GB")]
)
def test_a_type_and_a_gpu_that_contradict_each_other_are_bad_input(refused, name, has):
    fault = refused(errors.InvalidRequest, instance_type=name, gpu="v100", region="us-east-1")
    assert fault.message == f"{name} has {has}, not 1x v100."
    assert (fault.field, fault.next) == ("--gpu", "Leave --gpu or --instance-type out.")


def test_a_gpu_that_is_spelled_otherwise_than_the_catalogue_does_is_bad_input_with_the_right_spelling(refused):
    for gpu, meant in (("V-100", "v100"), ("v-100-16gb", "v100-16gb")):
        fault = refused(errors.InvalidRequest, gpu=gpu)
        assert f"did you mean {meant}" in fault.message.replace("'", "")


def test_a_type_that_aws_has_no_spot_price_for_is_not_sold_so_and_no_later_try_helps(refused):
    fault = refused(errors.InvalidRequest, instance_type="inf2.xlarge", market=SPOT)
    assert (fault.exit_code, fault.field) == (2, "--spot")
    assert fault.message == "aws sells no inf2.xlarge as a spot machine in the regions of account lab."
    assert fault.next.startswith("Drop --spot.")


@pytest.fixture
def at_home(own_home):
    """What this computer says to a wish; its GPUs are those that nvidia-smi tells, none in most tests."""
    session = open_session({"CLOUDGPU_HOME": str(own_home)})

    def fault(kind, **wish):
        with pytest.raises(kind) as raised:
            offers_or_launched_one(session, session.provider("local"), Requirements(**wish), None)
        return raised.value

    return fault


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"gpu": "V-100"}, "--gpu"),
        ({"region": "us-east-1"}, "--region"),
        ({"zone": "us-east-1a"}, "--zone"),
        ({"instance_type": "p3.2xlarge"}, "--instance-type"),
    ],
)
def test_a_word_that_means_nothing_on_this_computer_is_bad_input(at_home, wish, field):
    fault = at_home(errors.InvalidRequest, **wish)
    assert (fault.exit_code, fault.field, fault.value) == (2, field, *wish.values())
    assert fault.next


def test_a_gpu_that_this_computer_lacks_is_no_capacity(at_home):
    fault = at_home(errors.NoCapacity, gpu="h100")
    assert fault.message == "Account local has nothing with --gpu h100; it has no GPU."
    assert fault.next == "Drop --gpu, or pick another --provider; --provider any is the cheapest of your clouds."


def test_another_number_of_gpus_than_this_computer_has_is_refused_with_the_number_to_type(
    at_home, tmp_path, monkeypatch
):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8; do echo 'NVIDIA A100-SXM4-80GB, 81920'; done\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for count in (1, 9):
        fault = at_home(errors.NoCapacity, gpu="a100", gpu_count=count)
        assert fault.message.endswith("it has 8x NVIDIA A100-SXM4-80GB.")
        assert fault.next.startswith("Use --gpu a100:8. ")


def test_the_nearest_has_the_memory_and_the_speed_and_then_the_price():
    from cloudgpu import catalog

    def near(lost, *, below=1e9):
        found = catalog.offers("aws", "us-east-1", Market.ON_DEMAND)
        single = [one for one in found if one.type.gpu.count == 1 and one.type.gpu.share == 1]
        some = [one for one in single if one.listed.price.per_hour.dollars < below and one.type.arch == "x86_64"]
        offer = nearest_offer([catalog.gpu(lost)], some, lambda one: catalog.gpu_by_name(one.type.gpu.name))
        return offer and offer.type.gpu.name

    assert near("t4") == "T4"
    assert near("v100-16gb") != "T4", "it is slower"
    assert near("v100-16gb", below=0.6) == "T4", "nothing else is as cheap: memory goes before speed"
    assert near("b300") is None


def test_a_refusal_of_an_offer_without_a_zone_names_the_region(offers):
    offer = offers(instance_type="p3.2xlarge", region="us-west-2")[0]
    somewhere = replace(offer, configuration=replace(offer.configuration, zone=""))
    assert Refusals(any_account=False).add(somewhere, errors.NoCapacity("none is free")) == "us-west-2: none is free"
