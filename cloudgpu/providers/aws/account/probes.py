"""Every action that cloudgpu uses at AWS, what needs it, and the call that tells whether it is allowed.

The documents in policies/permissions allow these and no others: a test compares them both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloudgpu.catalog.read import public_images
from cloudgpu.core.model.instances import TAG_HOLD_UNTIL, TAG_ID, TAG_LEDGER, TAG_OWNER, TAG_VOLUME
from cloudgpu.providers.aws.client import KIND

SMALL = "t3.micro"  # never launched: a dry run has to name a type
# A public key whose private half nobody keeps: a dry run has to name one.
KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAwYBUN7TkKsNOadM1bkZec8f1mxk+PHrlsSuuJtSusV cloudgpu-doctor"
PRICES_IN = "us-east-1"  # the price list is asked there, whatever region it is about


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """An action; `used_for` goes on after "needed to".

    `asks` are the parameters of the call, in which `{machine}` stands for one of our own things. `unasked` says why
    it cannot be asked, always or without such a thing. `needed`: nothing can be launched or ended without it.
    """

    action: str
    used_for: str
    asks: Mapping[str, Any] | None = None
    unasked: str = ""
    needed: bool = True
    client: str = "ec2"
    method: str = ""
    region: str | None = None
    dry: Mapping[str, Any] = field(default_factory=dict)

    def filled(self, found: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return the parameters with our own things in them; None where one is not there."""
        try:
            return None if self.asks is None else _fill(self.asks, found)
        except KeyError:
            return None


def _fill(value: Any, found: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill(one, found) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill(one, found) for one in value]
    if isinstance(value, str) and value.startswith("{"):
        return found[value[1:-1]]
    return value


def _method(action: str) -> str:
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in action).lstrip("_")


def _read(action: str, used_for: str, *, needed: bool = True, **asks: Any) -> Probe:
    return Probe(f"ec2:{action}", used_for, asks, method=_method(action), needed=needed)


def _other(client: str, action: str, used_for: str, *, region: str | None = None, **asks: Any) -> Probe:
    method = _method(action.partition(":")[2])
    return Probe(action, used_for, asks, needed=False, client=client, method=method, region=region)


def _change(action: str, used_for: str, *, needed: bool = True, **asks: Any) -> Probe:
    why = "tested only on a resource of cloudgpu's, and there is none here"
    return Probe(f"ec2:{action}", used_for, asks, why, needed=needed, method=_method(action), dry={"DryRun": True})


def _tagged(kind: str, *keys: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": "doctor"} for key in keys]}]


def _with(tag: str) -> list[dict[str, Any]]:
    return [{"Name": "tag-key", "Values": [tag]}]


_PLAIN = [one.parameter for one in public_images(KIND, "plain", "x86_64")][:1]
_RULE = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.1/32"}]}]
_LAUNCH: dict[str, Any] = {
    "MinCount": 1,
    "MaxCount": 1,
    "ImageId": "{image}",
    "InstanceType": SMALL,
    "TagSpecifications": _tagged("instance", TAG_ID, TAG_LEDGER, TAG_OWNER)
    + _tagged("volume", TAG_ID, TAG_LEDGER, TAG_OWNER),
}

READS = (
    _read("DescribeRegions", "find the account's regions"),
    _read("DescribeAvailabilityZones", "check a zone", needed=False),
    _read("DescribeInstances", "see machines", Filters=_with(TAG_ID)),
    _read("DescribeInstanceTypes", "read what a type has", MaxResults=5),
    _read("DescribeInstanceTypeOfferings", "find where a type is offered", MaxResults=5),
    _read("DescribeSpotPriceHistory", "price spot machines", MaxResults=1),
    _read("GetSpotPlacementScores", "compare zones for spot", InstanceTypes=[SMALL], TargetCapacity=1, needed=False),
    _read("DescribeImages", "find the image to start from", Owners=["self"], Filters=_with(TAG_LEDGER)),
    _read("DescribeSubnets", "find the network", MaxResults=5),
    _read("DescribeVpcs", "find the network of --no-public-ip", MaxResults=5, needed=False),
    _read("DescribeSecurityGroups", "let SSH in from the caller", Filters=_with(TAG_OWNER)),
    _read("DescribeKeyPairs", "log in", Filters=_with(TAG_OWNER)),
    _read("DescribeAddresses", "see addresses that are left", Filters=_with(TAG_LEDGER), needed=False),
    _read("DescribeNetworkInterfaces", "see interfaces that are left", Filters=_with(TAG_LEDGER), needed=False),
    _read("DescribePlacementGroups", "see placement groups that are left", Filters=_with(TAG_LEDGER), needed=False),
    _read("DescribeVolumes", "see disks that are left", Filters=_with(TAG_LEDGER)),
    _read("DescribeSnapshots", "see snapshots that are left", OwnerIds=["self"], Filters=_with(TAG_LEDGER)),
    _read("DescribeSpotInstanceRequests", "end, stop and date spot machines", Filters=_with(TAG_ID)),
    _other("ssm", "ssm:GetParameters", "find today's images by their public names", Names=_PLAIN),
    _other("service-quotas", "servicequotas:ListServiceQuotas", "list quotas", ServiceCode="ec2", MaxResults=1),
    _other("service-quotas", "servicequotas:GetServiceQuota", "check a quota before a launch", ServiceCode="ec2",
           QuotaCode="L-1216C47A"),
    _other("scheduler", "scheduler:ListSchedules", "see the timers in the cloud", MaxResults=1),
    _other("pricing", "pricing:GetProducts", "price machines without a GPU", region=PRICES_IN, ServiceCode="AmazonEC2",
           MaxResults=1),
)  # fmt: skip

CHANGES = (
    _change("RunInstances", "launch machines", **_LAUNCH),
    Probe("iam:PassRole", "give machines their role", {**_LAUNCH, "IamInstanceProfile": {"Name": "{profile}"}},
          "asked only where config.toml names an instance_profile", needed=False, method="run_instances",
          dry={"DryRun": True}),
    _change("ImportKeyPair", "log in", KeyName="cloudgpu-doctor", PublicKeyMaterial=KEY,
            TagSpecifications=_tagged("key-pair", TAG_OWNER)),
    _change("CreateSecurityGroup", "let SSH in from the caller", GroupName="cloudgpu-doctor",
            Description="never made: a dry run", TagSpecifications=_tagged("security-group", TAG_OWNER, TAG_LEDGER)),
    _change("CreatePlacementGroup", "place the machines of a cluster close together", GroupName="cloudgpu-doctor",
            Strategy="cluster", TagSpecifications=_tagged("placement-group", TAG_OWNER, TAG_LEDGER), needed=False),
    _change("AuthorizeSecurityGroupIngress", "let SSH in from the caller", GroupId="{group}", IpPermissions=_RULE),
    _change("RevokeSecurityGroupIngress", "move the caller's rule", GroupId="{group}", IpPermissions=_RULE),
    _change("UpdateSecurityGroupRuleDescriptionsIngress", "keep a rule that two names share",
            GroupId="{group}", IpPermissions=_RULE, needed=False),
    _change("CreateTags", "extend and hold a lease", Resources=["{machine}"],
            Tags=[{"Key": TAG_HOLD_UNTIL, "Value": "0"}]),
    _change("TerminateInstances", "end machines", InstanceIds=["{machine}"]),
    _change("StopInstances", "stop machines", InstanceIds=["{machine}"]),
    _change("StartInstances", "start machines", InstanceIds=["{machine}"]),
    _change("ModifyInstanceAttribute", "end a spot machine with its disk", InstanceId="{machine}",
            InstanceInitiatedShutdownBehavior={"Value": "terminate"}),
    _change("CancelSpotInstanceRequests", "end a persistent spot machine", SpotInstanceRequestIds=["{spot request}"]),
    _change("CreateVolume", "make data volumes", AvailabilityZone="{zone}", Size=1, VolumeType="gp3", Encrypted=True,
            TagSpecifications=_tagged("volume", TAG_VOLUME, TAG_LEDGER, TAG_OWNER), needed=False),
    _change("AttachVolume", "attach data volumes", VolumeId="{disk}", InstanceId="{machine}", Device="/dev/sdf",
            needed=False),
    _change("DeleteVolume", "remove disks that are left", VolumeId="{disk}"),
    _change("CreateSnapshot", "park machines", VolumeId="{disk}",
            TagSpecifications=_tagged("snapshot", TAG_ID, TAG_LEDGER)),
    _change("RegisterImage", "park machines", Name="cloudgpu-doctor", RootDeviceName="/dev/sda1",
            BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": "{snapshot}"}}],
            TagSpecifications=_tagged("image", TAG_ID, TAG_LEDGER)),
    _change("CreateImage", "save images", InstanceId="{machine}", Name="cloudgpu-doctor", NoReboot=True, needed=False,
            TagSpecifications=_tagged("image", TAG_LEDGER) + _tagged("snapshot", TAG_LEDGER)),
    _change("DeregisterImage", "remove images", ImageId="{own image}"),
    _change("DeleteSnapshot", "remove snapshots", SnapshotId="{snapshot}"),
    _change("DeleteKeyPair", "remove key pairs that are left", KeyPairId="{key pair}", needed=False),
    _change("DeleteSecurityGroup", "remove groups that are left", GroupId="{group}", needed=False),
    _change("DeleteNetworkInterface", "remove interfaces that are left", NetworkInterfaceId="{interface}",
            needed=False),
    _change("DeletePlacementGroup", "remove placement groups that are left", GroupName="{placement group}",
            needed=False),
    _change("ReleaseAddress", "remove addresses that are left", AllocationId="{address}", needed=False),
)  # fmt: skip

UNASKED = (
    Probe("servicequotas:RequestServiceQuotaIncrease", "ask for a higher quota", needed=False,
          unasked="AWS has no dry run of it"),
    *(
        Probe(f"scheduler:{action}", "set the timers in the cloud", needed=False, unasked="AWS has no dry run of it")
        for action in ("CreateSchedule", "CreateScheduleGroup", "DeleteSchedule", "GetSchedule", "UpdateSchedule")
    ),
    Probe("iam:CreateServiceLinkedRole", "launch the account's first spot machine", needed=False,
          unasked="AWS has no dry run of it"),
)  # fmt: skip
