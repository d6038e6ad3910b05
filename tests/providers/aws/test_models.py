"""EC2's model is cut to what is read of a machine: what is made of an answer is the same as by the whole model."""

from __future__ import annotations

import re
from datetime import UTC
from pathlib import Path

import pytest
from botocore import xform_name
from botocore.loaders import Loader
from botocore.utils import parse_timestamp

from cloudgpu.providers.aws import client as ours
from cloudgpu.providers.aws.client import INSTANCE_MEMBERS, OPERATIONS, SERVICES, _loader, _parse_time, fast_session
from cloudgpu.providers.aws.compute import listing, translate
from tests.clouds.aws.plain import client, launch, look, spot
from tests.providers.aws.accounts import TAGS, account

FOLDER = Path(ours.__file__).parent


def members(loader):
    return loader.load_service_model("ec2", "service-2")["shapes"]["Instance"]["members"]


def test_all_that_is_read_of_a_machine_is_in_the_model():
    assert set(members(_loader(None))) == INSTANCE_MEMBERS
    assert set(members(Loader())) > INSTANCE_MEMBERS


def test_what_the_code_names_of_a_machine_is_parsed():
    """A member that somebody begins to read, and that is left out of the model, would be missing and never there."""
    elsewhere = {"Architecture", "Groups", "ImageId", "KeyName", "NetworkInterfaceId", "VpcId", "SubnetId"}
    elsewhere |= {"IamInstanceProfile", "EbsOptimized", "InstanceMarketOptions", "MetadataOptions", "ClientToken"}
    elsewhere |= {"BootMode", "EnaSupport", "NetworkInterfaces", "PlatformDetails", "VirtualizationType"}  # of images
    named = set()
    for file in FOLDER.rglob("*.py"):
        named |= set(re.findall(r'"([A-Z]\w+)"', file.read_text()))
    left_out = set(members(Loader())) - INSTANCE_MEMBERS
    assert named & left_out <= elsewhere, (
        "name it in client.INSTANCE_MEMBERS, or here where it is read of something else"
    )


def test_the_model_has_the_operations_that_the_code_names():
    whole = Loader().load_service_model("ec2", "service-2")["operations"]
    by_name = {name: name for name in whole} | {xform_name(name): name for name in whole}
    code = {file: file.read_text() for file in FOLDER.rglob("*.py")}
    code[Path(ours.__file__)] = re.sub(r"OPERATIONS = .*?split\(\)", "", code[Path(ours.__file__)], flags=re.DOTALL)
    words = {word for text in code.values() for word in re.findall(r"\w+", text)}
    assert {by_name[word] for word in words & by_name.keys()} == OPERATIONS
    assert set(_loader(None).load_service_model("ec2", "service-2")["operations"]) == OPERATIONS


def test_the_services_that_the_code_names_are_found_as_botocore_finds_them():
    whole = set(Loader().list_available_services("service-2"))
    quoted = {word for file in FOLDER.rglob("*.py") for word in re.findall(r'"([a-z0-9-]+)"', file.read_text())}
    elsewhere = {"account", "location"}  # services, and words of ours
    assert (quoted & whole) - elsewhere == set(SERVICES) & whole
    for kind in ("service-2", "paginators-1", "waiters-2", "endpoint-rule-set-1"):
        known = set(Loader().list_available_services(kind))
        assert set(_loader(None).list_available_services(kind)) == known & set(SERVICES)


def test_a_machine_is_as_the_whole_model_shows_it(aws, tmp_path):
    provider = account(tmp_path)
    tags = [{"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in TAGS.items()]}]
    made = launch(client(), TagSpecifications=tags, InstanceMarketOptions=spot())
    whole = look(client(), made["InstanceId"])
    assert set(whole) - INSTANCE_MEMBERS, "plain boto3 parses it all"
    parsed = listing.describe_raw(provider._aws, "us-east-1", made["InstanceId"])
    assert parsed == {name: value for name, value in whole.items() if name in INSTANCE_MEMBERS}
    as_ours = translate.instance(whole, account=provider.account, region="us-east-1", ssh_port=22)
    assert listing.get(provider._aws, as_ours.id) == as_ours


def test_a_time_of_ec2_is_read_without_dateutil(aws, tmp_path):
    """That took a third of the parsing of a listing. Its zone tells: dateutil has a class of its own for UTC."""
    made = launch(client())
    found = listing.describe_raw(account(tmp_path)._aws, "us-east-1", made["InstanceId"])
    assert found["LaunchTime"].tzinfo is UTC
    assert found["LaunchTime"] == made["LaunchTime"]


@pytest.mark.parametrize(
    "said",
    [
        "2026-11-20T11:07:45.000Z",
        "2026-11-20T11:07:45Z",
        "2026-11-20T11:07:45.1234567Z",
        "2026-11-20T13:07:45+02:00",
        "2026-11-20",
        "Fri, 20 Nov 2026 11:07:45 GMT",
        "1795172865",
        1795172865.5,
    ],
)
def test_every_other_time_is_read_as_botocore_reads_it(said):
    read = fast_session(None).get_component("response_parser_factory").create_parser("ec2")._timestamp_parser
    assert (read(said), read(said).tzinfo is None) == (parse_timestamp(said), parse_timestamp(said).tzinfo is None)


def test_the_names_of_elements_are_read_without_a_regex():
    """One search for each element took a sixth of the parsing of a listing."""
    session = fast_session(None)
    shape = session.get_service_model("ec2").operation_model("DescribeRegions").output_shape
    parser = session.get_component("response_parser_factory").create_parser("ec2")
    parser._namespace_re = None
    body = (
        b'<DescribeRegionsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>0</requestId>'
        b"<regionInfo><item><regionName>us-east-1</regionName></item></regionInfo></DescribeRegionsResponse>"
    )
    found = parser.parse({"body": body, "headers": {}, "status_code": 200}, shape)
    assert found["Regions"] == [{"RegionName": "us-east-1"}]


def test_what_is_no_time_is_refused_as_botocore_refuses_it():
    with pytest.raises(ValueError, match="2026-13-20"):
        _parse_time("2026-13-20T11:07:45Z")


def test_models_of_the_users_own_directory_are_found(tmp_path):
    (tmp_path / "mine").mkdir()
    assert str(tmp_path / "mine") in _loader(str(tmp_path / "mine")).search_paths
