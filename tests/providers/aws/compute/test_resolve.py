"""What a launch looks up: the image for a GPU and a processor, network, disk, quota, volume; and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import MachineConfiguration, Market, Requirements
from cloudgpu.errors import InvalidRequest, ProviderUnavailable, QuotaExceeded
from cloudgpu.providers.abilities import AttachedResource
from cloudgpu.testing import make_attempt
from tests.clouds.aws.images import PUBLIC
from tests.clouds.aws.plain import client, image, launch
from tests.providers.aws.accounts import account, calls
from tests.providers.aws.attempts import USUAL, offered, quick

DLAMI = "Deep Learning Base OSS Nvidia Driver GPU AMI"


@pytest.fixture
def provider(aws, tmp_path):
    return quick(account(tmp_path, regions=["us-east-1", "us-west-2"]))


def item(name, gpu=None, zone="us-east-1b", market=Market.ON_DEMAND, vcpus=8):
    """Return an offer of a type, also of one that our model of AWS does not have."""
    from cloudgpu.catalog import instance_type
    from cloudgpu.core.model.offers import Accelerator

    try:
        gpus = (instance_type("aws", name).gpu,)
    except InvalidRequest:
        gpus = (Accelerator(gpu, 1),) if gpu else ()
    return MachineConfiguration("aws", "lab", zone[:-1], zone, name, market, gpus, vcpus)


def resolve(provider, what, setup=USUAL, template="jupyter"):
    request = replace(make_attempt(what).request, setup=setup, template=template)
    return provider.resolve(request, what)


def name_of(resolved):
    region = resolved.call["region"]
    return next(one.name for one in PUBLIC if one.id_in(region) == resolved.call["image"])


# Images


@pytest.mark.parametrize(
    ("instance_type", "wanted"),
    [
        ("g4dn.xlarge", f"{DLAMI} (Ubuntu 24.04) 20261006"),
        ("p5.48xlarge", f"{DLAMI} (Ubuntu 24.04) 20261006"),
        ("p6-b200.48xlarge", f"{DLAMI} (Ubuntu 24.04) 20261006"),
        ("g5g.xlarge", f"{DLAMI.replace('Base', 'ARM64 Base')} (Ubuntu 22.04) 20261006"),  # the model has no 24.04
        ("t3.small", "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260915"),
        ("t4g.small", "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server-20260915"),
    ],
)
def test_the_image_fits_gpu_and_processor_and_needs_no_driver(provider, instance_type, wanted):
    found = resolve(provider, item(instance_type))
    assert name_of(found) == wanted
    assert found.driver is None
    assert not any("driver" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("instance_type", "gpu", "driver", "toolkit", "system"),
    [
        ("p3.2xlarge", "V100", "cuda-drivers-580", "cuda-toolkit-12-9", "noble-24.04"),
        ("g3.4xlarge", "M60", "cuda-drivers-580", "cuda-toolkit-12-9", "noble-24.04"),
        ("p2.xlarge", "K80", "cuda-drivers-470", "cuda-toolkit-11-8", "jammy-22.04"),
    ],
)
def test_a_gpu_before_turing_gets_a_plain_image_and_the_last_driver_for_it(
    provider, instance_type, gpu, driver, toolkit, system
):
    found = resolve(provider, item(instance_type))
    assert f"ubuntu-{system}-amd64" in name_of(found)
    assert found.driver == {"driver": driver, "toolkit": toolkit}
    (said,) = (remark for remark in found.remarks if driver in remark)
    assert gpu in said
    assert toolkit in said
    assert ("unverified" in said) == (gpu == "K80")


def test_a_gpu_that_is_not_nvidias_gets_no_driver_and_that_is_said(provider):
    found = resolve(provider, item("g4ad.xlarge"))
    assert "ubuntu-noble" in name_of(found)
    assert found.driver is None
    assert any("no NVIDIA driver for V520 is known" in remark for remark in found.remarks)


def test_the_template_that_installs_a_driver_gets_an_image_without_one(provider):
    found = resolve(provider, item("g5.xlarge"), template="cuda")
    assert "ubuntu-noble" in name_of(found)
    assert found.driver is None


def test_without_parameters_images_are_found_by_name_and_owner(aws, provider):
    aws.faults.add("GetParameters", error="InternalServerError", times=100)
    with pytest.raises(ProviderUnavailable):
        resolve(provider, item("g5.xlarge"))
    aws.faults.clear()
    from moto.ssm.models import ssm_backends

    from tests.clouds.aws.model import ACCOUNT

    ssm_backends[ACCOUNT]["us-east-1"]._parameters.clear()
    found = resolve(provider, item("g5.xlarge"))
    assert name_of(found) == f"{DLAMI} (Ubuntu 24.04) 20261006"


def test_no_image_at_all_is_one_sentence(aws, provider):
    from moto.ec2.models import ec2_backends
    from moto.ssm.models import ssm_backends

    from tests.clouds.aws.model import ACCOUNT

    resolve(provider, item("g5.xlarge"))
    ssm_backends[ACCOUNT]["us-east-1"]._parameters.clear()
    ec2_backends[ACCOUNT]["us-east-1"].amis.clear()
    with pytest.raises(InvalidRequest, match="No public image was found in us-east-1") as caught:
        resolve(provider, item("g5.xlarge"))
    assert caught.value.field == "--image"


def own_image(name="prepared", region="us-east-1", wait=True, title=None, **more_tags):
    ec2 = client(region=region)
    machine = launch(ec2)["InstanceId"]
    tags = [{"Key": key, "Value": value} for key, value in {"cloudgpu-image": name, **more_tags}.items()]
    kinds = [{"ResourceType": "image", "Tags": tags}]
    return ec2.create_image(InstanceId=machine, Name=title or name, TagSpecifications=kinds)["ImageId"]


@pytest.mark.parametrize("how", ["name", "id", "our id"])
def test_an_image_is_taken_as_it_was_named(provider, how):
    own = own_image()
    named = {"name": "prepared", "id": own, "our id": f"us-east-1/{own}"}[how]
    found = resolve(provider, item("g5.xlarge"), replace(USUAL, image=named))
    assert found.call["image"] == own
    assert found.driver is None
    assert not any("driver" in remark for remark in found.remarks)


def test_of_an_image_that_is_not_ours_nobody_knows_the_driver(provider):
    found = resolve(provider, item("g5.xlarge"), replace(USUAL, image=image()))
    assert f"whether the image {image()} has a driver for A10G is not known" in found.remarks


def test_an_image_of_another_ledgers_name_is_not_meant(aws, tmp_path):
    provider = quick(account(tmp_path, ledger="led-1"))
    theirs = own_image(title="theirs", **{TAG_LEDGER: "led-2"})
    with pytest.raises(InvalidRequest, match="There is no image 'prepared'"):
        resolve(provider, item("g5.xlarge"), replace(USUAL, image="prepared"))
    with pytest.raises(InvalidRequest, match="no image 'prepared'"):
        provider.placement_constraint(Setup(image="prepared"), Requirements())
    ours = own_image(title="ours", **{TAG_LEDGER: "led-1"})
    own_image(title="theirs again", **{TAG_LEDGER: "led-2"})
    for named, wanted in (("prepared", ours), (theirs, theirs)):
        assert resolve(provider, item("g5.xlarge"), replace(USUAL, image=named)).call["image"] == wanted


def test_an_image_for_another_processor_is_refused(provider):
    with pytest.raises(InvalidRequest, match=r"is for x86_64 processors, and g5g.xlarge has an arm64 one"):
        resolve(provider, item("g5g.xlarge"), replace(USUAL, image=image()))


@pytest.mark.parametrize("named", ["ami-0000000000000dead", "us-west-2/ami-0000000000000dead", "nobody"])
def test_an_image_that_is_not_there_is_refused(provider, named):
    with pytest.raises(InvalidRequest, match="There is no image") as caught:
        resolve(provider, item("g5.xlarge"), replace(USUAL, image=named))
    assert (caught.value.field, caught.value.value) == ("--image", named)


def test_an_image_that_is_still_being_made_is_refused(aws, provider):
    aws.dwell(snapshot=1e9)
    own = own_image()
    with pytest.raises(InvalidRequest, match="pending"):
        resolve(provider, item("g5.xlarge"), replace(USUAL, image=own))


@pytest.mark.parametrize(
    ("platform", "licence", "says"),
    [("SUSE Linux", "suse", "billed by the started hour"), ("Red Hat Enterprise Linux", "rhel", "disagree whether")],
)
def test_a_system_with_a_licence_is_named_with_how_it_is_billed(provider, platform, licence, says):
    wanted = next(one for one in PUBLIC if one.platform == platform).id_in("us-east-1")
    found = resolve(provider, item("g5.xlarge"), replace(USUAL, image=wanted))
    assert found.licence == licence
    (said,) = [remark for remark in found.remarks if platform in remark]
    assert says in said
    assert "in no amount" in said


def test_of_an_image_whose_licence_the_user_brings_nothing_is_said(provider):
    wanted = next(one for one in PUBLIC if one.platform == "Red Hat BYOL Linux").id_in("us-east-1")
    found = resolve(provider, item("g5.xlarge"), replace(USUAL, image=wanted))
    assert found.licence == ""
    assert not any("AWS bills the image" in remark for remark in found.remarks)


def test_plain_linux_has_no_licence_and_nothing_is_said_of_it(provider):
    found = resolve(provider, item("g5.xlarge"), replace(USUAL, image=image()))
    assert found.licence == ""
    assert not any("AWS bills the image" in remark for remark in found.remarks)


# Disk, network, quota


@pytest.mark.parametrize(("wished", "size"), [(None, 64), (30, 30), (500, 500), (16_384, 16_384)])
def test_the_system_disk_is_of_the_wished_size_or_64_gb(provider, wished, size):
    found = resolve(provider, item("g5.xlarge"), replace(USUAL, disk_gb=wished))
    assert found.call["disk_gb"] == size
    assert found.attached[0] == AttachedResource(f"system disk of {size} GB", "gp3", size, while_stopped=True)


@pytest.mark.parametrize(("wished", "says"), [(29, "needs 30 GB at least"), (16_385, "gp3 has 16,384 GB at most")])
def test_a_system_disk_that_cannot_be_is_refused(provider, wished, says):
    with pytest.raises(InvalidRequest, match=says) as caught:
        resolve(provider, item("g5.xlarge"), replace(USUAL, disk_gb=wished))
    assert (caught.value.field, caught.value.value) == ("--disk", str(wished))


def test_a_public_address_is_priced_where_there_is_one(provider):
    address = AttachedResource("public IPv4 address", "public_ipv4", 1, while_stopped=False)
    assert address in resolve(provider, item("g5.xlarge")).attached
    hidden = replace(USUAL, network=Network(public_ip=False))
    assert address not in resolve(provider, item("g5.xlarge"), hidden).attached


def test_no_default_vpc_is_one_sentence_with_the_way_out(provider):
    ec2 = client()
    for subnet in ec2.describe_subnets()["Subnets"]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    with pytest.raises(InvalidRequest, match="no default VPC with a subnet in us-east-1b") as caught:
        resolve(provider, item("g5.xlarge"))
    assert caught.value.field == "--subnet"
    assert "aws ec2 create-default-vpc --region us-east-1" in caught.value.next


def subnet_in(zone):
    found = client(region=zone[:-1]).describe_subnets(Filters=[{"Name": "availability-zone", "Values": [zone]}])
    return found["Subnets"][0]["SubnetId"]


def test_a_subnet_is_used_as_named_and_refused_for_another_zone(provider):
    named = replace(USUAL, network=replace(USUAL.network, subnet=subnet_in("us-east-1b")))
    assert resolve(provider, item("g5.xlarge"), named).call["subnet"] == named.network.subnet
    with pytest.raises(InvalidRequest, match="is in us-east-1b, not in us-east-1c"):
        resolve(provider, item("g5.xlarge", zone="us-east-1c"), named)
    unknown = replace(USUAL, network=replace(USUAL.network, subnet="subnet-0dead"))
    with pytest.raises(InvalidRequest) as caught:
        resolve(provider, item("g5.xlarge"), unknown)
    assert caught.value.field == "--subnet"


def test_a_security_group_of_another_vpc_or_none_is_refused(provider):
    ec2 = client()
    other = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    group = ec2.create_security_group(GroupName="x", Description="x", VpcId=other)["GroupId"]
    for named in (group, "sg-0123456789abcdef0"):
        setup = replace(USUAL, network=Network(security_group=named))
        with pytest.raises(InvalidRequest) as caught:
            resolve(provider, item("g5.xlarge"), setup)
        assert (caught.value.field, caught.value.value) == ("--security-group", named)


def test_a_quota_that_is_too_small_is_said_before_anything_is_sent(aws, provider):
    aws.model.quotas["", "L-DB2E81BA"] = 0.0
    with pytest.raises(QuotaExceeded, match="L-DB2E81BA"):
        resolve(provider, item("g5.xlarge"))


def test_a_quota_that_cannot_be_read_is_a_remark(aws, provider):
    aws.faults.deny("GetServiceQuota", service="servicequotas")
    assert any("could not be read" in remark for remark in resolve(provider, item("g5.xlarge")).remarks)


# What is said


def test_a_spot_machine_without_a_maximum_may_cost_as_much_as_on_demand(provider):
    spot = resolve(provider, item("g5.xlarge", zone="us-east-1a", market=Market.SPOT))
    assert any("up to the on-demand price, $1.0060 an hour" in remark for remark in spot.remarks)
    assert not any("on-demand price" in remark for remark in resolve(provider, item("g5.xlarge")).remarks)


def test_without_a_profile_the_plan_says_what_is_lost(provider, tmp_path):
    def lost(found):
        return [remark for remark in found.remarks if "idle cannot be evaluated" in remark]

    assert "accounts.lab.instance_profile" in lost(resolve(provider, item("g5.xlarge")))[0]
    other = quick(account(tmp_path / "other", instance_profile="cloudgpu-machine"))
    assert lost(resolve(other, item("g5.xlarge"))) == []


def test_the_layers_that_end_the_machine_are_named(provider):
    agent, timer = resolve(provider, item("g5.xlarge")).guards
    assert agent.startswith("the agent on the machine")
    assert timer.endswith("stops it; its disk stays")
    assert resolve(provider, item("g5.xlarge", market=Market.SPOT)).guards[1].endswith("ends it; its disk stays")


def test_looking_up_changes_nothing_and_takes_four_calls(aws, provider):
    what = offered(provider)
    with calls(aws) as made:
        resolve(provider, what)
    assert sorted(action for action, _ in made) == [
        "DescribeImages",
        "DescribeSubnets",
        "GetParameters",
        "GetServiceQuota",
    ]


# Where an image or a volume ties a launch to


def volume(zone="us-west-2b", size=100, name="data", **tags):
    listed = {"cloudgpu-volume": name, **tags}
    pairs = [{"Key": key, "Value": value} for key, value in listed.items()]
    kinds = [{"ResourceType": "volume", "Tags": pairs}]
    made = client(region=zone[:-1]).create_volume(AvailabilityZone=zone, Size=size, TagSpecifications=kinds)
    return made["VolumeId"]


def test_nothing_is_asked_where_nothing_ties(aws, provider):
    with calls(aws) as made:
        assert provider.placement_constraint(Setup(), Requirements()).zone is None
        assert (
            provider.placement_constraint(Setup(image="ami-0123456789abcdef0"), Requirements(region="us-west-2")).region
            == "us-west-2"
        )
        assert (
            provider.placement_constraint(Setup(image="us-west-2/ami-0123456789abcdef0"), Requirements()).region
            == "us-west-2"
        )
    assert made == []


def test_a_volume_ties_to_its_zone_and_is_resolved_there(aws, provider):
    own = volume()
    tied = provider.placement_constraint(Setup(volume=Volume("data")), Requirements())
    assert (tied.region, tied.zone, tied.why) == ("us-west-2", "us-west-2b", "the volume data is in us-west-2b")
    found = resolve(provider, item("g5.xlarge", zone="us-west-2b"), replace(USUAL, volume=Volume("data")))
    assert found.call["volume"] == own
    assert AttachedResource("volume data of 100 GB", "gp3", 100, while_stopped=True, named=True) in found.attached
    assert any("bound to us-west-2b" in remark for remark in found.remarks)


def test_a_volume_that_is_to_be_made_ties_to_nothing(provider):
    wanted = Setup(volume=Volume("fresh", 200))
    assert provider.placement_constraint(wanted, Requirements()).zone is None
    found = resolve(provider, item("g5.xlarge"), replace(USUAL, volume=wanted.volume))
    assert found.call["volume"] is None
    assert AttachedResource("volume fresh of 200 GB", "gp3", 200, while_stopped=True, named=True) in found.attached


@pytest.mark.parametrize(
    "want", [Requirements(region="us-east-1"), Requirements(zone="us-west-2a"), Requirements(zone="us-east-1b")]
)
def test_a_volume_in_another_place_than_asked_is_refused(provider, want):
    volume()
    with pytest.raises(InvalidRequest, match="The volume data is in us-west-2b, not in") as caught:
        provider.placement_constraint(Setup(volume=Volume("data", 100)), want)
    assert caught.value.next == "Launch there: --zone us-west-2b"


def test_a_volume_of_another_size_is_refused(provider):
    volume()
    with pytest.raises(InvalidRequest, match="has 100 GB, not 200"):
        provider.placement_constraint(Setup(volume=Volume("data", 200)), Requirements())


def test_an_unknown_volume_is_refused_with_the_near_one(provider):
    volume(name="data")
    with pytest.raises(InvalidRequest, match="did you mean 'data'"):
        provider.placement_constraint(Setup(volume=Volume("dta")), Requirements())


def test_volumes_of_one_name_in_two_zones_have_to_be_told_apart(provider):
    volume("us-west-2a")
    volume("us-west-2b")
    with pytest.raises(InvalidRequest, match="are in us-west-2a and us-west-2b"):
        provider.placement_constraint(Setup(volume=Volume("data")), Requirements())
    assert (
        provider.placement_constraint(Setup(volume=Volume("data")), Requirements(zone="us-west-2b")).zone
        == "us-west-2b"
    )


def test_another_ledgers_volume_is_not_this_ones(aws, tmp_path):
    volume(**{"cloudgpu-ledger": "led-theirs"})
    provider = quick(account(tmp_path, ledger="led-ours"))
    assert provider.placement_constraint(Setup(volume=Volume("data", 100)), Requirements()).zone is None


def test_a_silent_region_may_hold_the_volume(aws, provider):
    aws.faults.add("DescribeVolumes", error="UnauthorizedOperation", region="us-west-2", times=100)
    with pytest.raises(ProviderUnavailable, match=r"No volume 'data' was found, and us-west-2 did not answer"):
        provider.placement_constraint(Setup(volume=Volume("data", 100)), Requirements(region="us-east-1"))


def test_an_own_image_ties_to_its_region(provider):
    own = own_image("prepared", "us-west-2")
    for named in ("prepared", own):
        assert provider.placement_constraint(Setup(image=named), Requirements()).region == "us-west-2"
    with pytest.raises(InvalidRequest, match="is in us-west-2, not in us-east-1"):
        provider.placement_constraint(Setup(image="prepared"), Requirements(region="us-east-1"))
    with pytest.raises(InvalidRequest, match="did you mean 'prepared'"):
        provider.placement_constraint(Setup(image="prepard"), Requirements())


@pytest.mark.parametrize("want", [Requirements(), Requirements(region="us-west-2")])
def test_a_subnet_ties_to_its_zone_whether_or_not_its_region_is_named(provider, want):
    own = replace(USUAL, network=replace(USUAL.network, subnet=subnet_in("us-west-2b")))
    tied = provider.placement_constraint(own, want)
    assert (tied.region, tied.zone) == ("us-west-2", "us-west-2b")
    assert tied.why == f"the subnet {own.network.subnet} is in us-west-2b"


def test_a_subnet_that_no_region_has_is_refused(provider):
    with pytest.raises(InvalidRequest, match="There is no subnet 'subnet-0dead'") as caught:
        provider.placement_constraint(
            replace(USUAL, network=replace(USUAL.network, subnet="subnet-0dead")), Requirements()
        )
    assert caught.value.field == "--subnet"


def test_images_of_one_name_in_two_regions_have_to_be_told_apart(provider):
    for region in ("us-east-1", "us-west-2"):
        own_image("twice", region)
    with pytest.raises(InvalidRequest, match="are in us-east-1 and us-west-2"):
        provider.placement_constraint(Setup(image="twice"), Requirements())
    assert provider.placement_constraint(Setup(image="twice"), Requirements(region="us-west-2")).region == "us-west-2"


def test_an_image_and_a_volume_in_two_regions_cannot_be_had_together(provider):
    own_image("prepared", "us-east-1")
    volume("us-west-2b")
    with pytest.raises(InvalidRequest, match="is in us-east-1, and the volume data is in us-west-2b"):
        provider.placement_constraint(Setup(image="prepared", volume=Volume("data")), Requirements())
