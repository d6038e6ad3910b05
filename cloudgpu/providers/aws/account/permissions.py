"""Asks AWS what a credential may do, without doing it: reads are made, changes are sent as dry runs, side by side.

The documents in policies/permissions allow these and no others: a test compares them both ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.catalog.read import public_images
from cloudgpu.core.model.account import Permission
from cloudgpu.core.model.instances import TAG_HOLD_UNTIL, TAG_ID, TAG_LEDGER, TAG_OWNER, TAG_VOLUME
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.parallel import Pool
from cloudgpu.providers.aws.account.roles import TIMER_ROLE_NAME
from cloudgpu.providers.aws.client import MAX_PARALLEL, PROVIDER, Aws, call_tolerating
from cloudgpu.providers.aws.compute.translate import ENDED_STATES
from cloudgpu.providers.aws.error_codes import CREDENTIAL, DENIED, SKEWED
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.aws.ids import is_same_partition
from cloudgpu.providers.aws.market.availability import check_region

DRY_RUN_PERMITTED = "DryRunOperation"  # the error code of a dry run that is permitted
# Of a read that is permitted: AWS tests the permission first. Where it denies GetRole of a role that is only being
# created, its sentence has the role's name and no ARN (public record: aws-cdk, issue 27067).
ABSENT = "NoSuchEntity"
NO_DRY_RUN = "AWS has no dry run of it"
NO_RESOURCE = "tested only on cloudgpu's own resources, of a kind that is not here (doctor --live makes a machine)"
_DRY_RUN = {"DryRun": True}
OurResources = Mapping[str, str]  # an id of one of our own resources for each name in _RESOURCES


def permissions(aws: Aws, region: str | None = None) -> Sequence[Permission]:
    """Return every action that cloudgpu uses at AWS, asked in one region, and whether it is allowed.

    An action that is allowed for our own tagged resources alone is tested on one of them, and unknown where there is
    none: AWS would refuse it for any other resource. Some forty calls. Raises AuthFailed for invalid credentials.
    """
    probe_region = region or aws.options.home_region
    if region is not None:
        check_region(aws, region)
    read_results = _probe_all(aws, probe_region, READ_PROBES, {})
    our_resources = _our_resources(aws, [answer for _, answer in read_results])
    results = read_results + _probe_all(aws, probe_region, (*CHANGE_PROBES, *UNTESTED_PROBES), our_resources)
    return [permission for permission, _ in results]


def _probe_all(
    aws: Aws, region: str, probes: Sequence[Probe], our_resources: OurResources
) -> list[tuple[Permission, Mapping[str, Any]]]:
    for probe in probes:
        aws.client(probe.client, probe.region or region)  # made here: boto3 makes clients one after the other
    with Pool(MAX_PARALLEL) as pool:
        return list(pool.map(lambda probe: _probe(aws, region, probe, our_resources), probes))


def _probe(aws: Aws, region: str, probe: Probe, our_resources: OurResources) -> tuple[Permission, Mapping[str, Any]]:
    """Make one call, where the probe can be tested; return whether it is allowed, and the answer.

    An error says that it is allowed (DRY_RUN_PERMITTED, ABSENT), denied, or nothing. Raises AuthFailed for invalid
    credentials, ProviderUnavailable for a wrong clock.
    """
    probe_region, parameters = probe.region or region, probe.filled_parameters(our_resources)
    if parameters is None:
        return probe.permission(None, probe.why_untested), {}
    if not is_same_partition(aws.options.home_region, probe_region):  # its credentials would count as invalid there
        return probe.permission(None, f"AWS answers it in {probe_region}, to accounts of that partition alone"), {}
    call, client = probe.call or probe.action.partition(":")[2], aws.client(probe.client, probe_region)
    try:
        answer = call_tolerating(aws, client, call, probe_region, probe.action, "", (), **parameters)
    except CloudgpuError as error:
        code = code_of(error)
        if code in CREDENTIAL | SKEWED or not (code or isinstance(error, ProviderUnavailable)):
            raise
        allowed = True if code in (DRY_RUN_PERMITTED, ABSENT) else False if code in DENIED else None
        return probe.permission(allowed, f"AWS answered {code}" if code else error.message), {}
    return probe.permission(allowed=True), answer


def _our_resources(aws: Aws, answers: Iterable[Mapping[str, Any]]) -> OurResources:
    """Return our own resources among the answers, the first of a kind, and an image that a machine could start from."""
    id_by_name = {
        name: str(one[id_key])
        for answer in answers
        for key, name, id_key in _RESOURCES
        for one in reversed(_resources(answer, key))
        if one.get(id_key)
    }
    named = {"profile": aws.options.instance_profile, "timer role": aws.options.timer_role}
    return id_by_name | {name: value for name, value in named.items() if value}


# The key of an answer, how probes name one of what is under it, and the key of its id.
_RESOURCES = (
    ("Reservations", "machine", "InstanceId"),
    ("Volumes", "disk", "VolumeId"),
    ("Snapshots", "snapshot", "SnapshotId"),
    ("Images", "own image", "ImageId"),
    ("SecurityGroups", "group", "GroupId"),
    ("PlacementGroups", "placement group", "GroupName"),
    ("KeyPairs", "key pair", "KeyPairId"),
    ("NetworkInterfaces", "interface", "NetworkInterfaceId"),
    ("Addresses", "address", "AllocationId"),
    ("SpotInstanceRequests", "spot request", "SpotInstanceRequestId"),
    ("Parameters", "image", "Value"),
    ("AvailabilityZones", "zone", "ZoneName"),
)


def _resources(answer: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the resources under `key`; machines are nested in reservations, and those that have ended are left out."""
    found: list[Mapping[str, Any]] = answer.get(key, [])
    if key != "Reservations":
        return found
    machines = (one for reservation in found for one in reservation["Instances"])
    return [one for one in machines if one["State"]["Name"] not in ENDED_STATES]


SMALL_INSTANCE_TYPE = "t3.micro"  # an instance type, never launched: a dry run has to name one
# A public key whose private half nobody keeps: a dry run has to name one.
PUBLIC_KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAwYBUN7TkKsNOadM1bkZec8f1mxk+PHrlsSuuJtSusV cloudgpu-doctor"
PRICING_REGION = "us-east-1"  # the price list is asked there, whatever region it is about


@dataclass(frozen=True, slots=True)
class Probe:
    """An action of IAM and how it is tested; `used_for` completes the sentence "needed to ...".

    `parameters` are those of the call, in which `{machine}` stands for one of our own resources. `why_untested` says
    why it is not tested, always or without such a resource. `needed`: nothing can be launched or ended without it.
    `client` is boto3's; `call` is the action that is called, if another one, and `region` where, if elsewhere.
    """

    action: str
    used_for: str
    parameters: Mapping[str, Any] | None = None
    why_untested: str = ""
    needed: bool = True
    client: str = "ec2"
    call: str = ""
    region: str | None = None

    def permission(self, allowed: bool | None, unknown_reason: str = "") -> Permission:  # noqa: FBT001
        """Return whether the action is allowed; None: not known, for this reason."""
        reason = unknown_reason if allowed is None else ""
        return Permission(self.action, allowed, self.used_for, reason, needed=self.needed)

    def filled_parameters(self, our_resources: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return the parameters with our own resources in them; None where one is not there."""
        try:
            return None if self.parameters is None else _fill_in(self.parameters, our_resources)
        except KeyError:
            return None


def _fill_in(value: Any, our_resources: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill_in(one, our_resources) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill_in(one, our_resources) for one in value]
    if isinstance(value, str) and value.startswith("{"):
        return our_resources[value[1:-1]]
    return value


def _read_ec2(action: str, used_for: str, *, needed: bool = True, **parameters: Any) -> Probe:
    return Probe(f"ec2:{action}", used_for, parameters, needed=needed)


def _read(client: str, action: str, used_for: str, *, region: str | None = None, **parameters: Any) -> Probe:
    return Probe(action, used_for, parameters, needed=False, client=client, region=region)


def _change(action: str, used_for: str, *, needed: bool = True, **parameters: Any) -> Probe:
    return Probe(f"ec2:{action}", used_for, parameters | _DRY_RUN, NO_RESOURCE, needed=needed)


def _tags(kind: str, *keys: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": "doctor"} for key in keys]}]


def _tagged_with(tag: str) -> list[dict[str, Any]]:
    return [{"Name": "tag-key", "Values": [tag]}]


_IMAGE_PARAMETERS = [one.parameter for one in public_images(PROVIDER, "plain", "x86_64")][:1]
_SSH_RULE = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.1/32"}]}]
_LAUNCH_CALL: dict[str, Any] = {
    "MinCount": 1,
    "MaxCount": 1,
    "ImageId": "{image}",
    "InstanceType": SMALL_INSTANCE_TYPE,
    "TagSpecifications": _tags("instance", TAG_ID, TAG_LEDGER, TAG_OWNER)
    + _tags("volume", TAG_ID, TAG_LEDGER, TAG_OWNER),
}

READ_PROBES = (
    _read_ec2("DescribeRegions", "find the account's regions"),
    _read_ec2("DescribeAvailabilityZones", "check a zone", needed=False),
    _read_ec2("DescribeInstances", "see machines", Filters=_tagged_with(TAG_ID)),
    _read_ec2("DescribeInstanceTypes", "read what a type has", MaxResults=5),
    _read_ec2("DescribeInstanceTypeOfferings", "find where a type is offered", MaxResults=5),
    _read_ec2("DescribeSpotPriceHistory", "price spot machines", MaxResults=1),
    _read_ec2("GetSpotPlacementScores", "compare zones for spot", InstanceTypes=[SMALL_INSTANCE_TYPE], TargetCapacity=1,
            needed=False),
    _read_ec2("DescribeImages", "find the image to start from", Owners=["self"], Filters=_tagged_with(TAG_LEDGER)),
    _read_ec2("DescribeSubnets", "find the network", MaxResults=5),
    _read_ec2("DescribeVpcs", "find the network of --no-public-ip", MaxResults=5, needed=False),
    _read_ec2("DescribeSecurityGroups", "let SSH in from the caller", Filters=_tagged_with(TAG_OWNER)),
    _read_ec2("DescribeKeyPairs", "log in", Filters=_tagged_with(TAG_OWNER)),
    _read_ec2("DescribeAddresses", "see addresses that are left", Filters=_tagged_with(TAG_LEDGER), needed=False),
    _read_ec2("DescribeNetworkInterfaces", "see interfaces that are left", Filters=_tagged_with(TAG_LEDGER),
            needed=False),
    _read_ec2("DescribePlacementGroups", "see placement groups that are left", Filters=_tagged_with(TAG_LEDGER),
            needed=False),
    _read_ec2("DescribeVolumes", "see disks that are left", Filters=_tagged_with(TAG_LEDGER)),
    _read_ec2("DescribeSnapshots", "see snapshots that are left", OwnerIds=["self"], Filters=_tagged_with(TAG_LEDGER)),
    _read_ec2("DescribeSpotInstanceRequests", "end, stop and date spot machines", Filters=_tagged_with(TAG_ID)),
    _read("ssm", "ssm:GetParameters", "find today's images by their public names", Names=_IMAGE_PARAMETERS),
    _read("service-quotas", "servicequotas:ListServiceQuotas", "list quotas", ServiceCode="ec2", MaxResults=1),
    _read("service-quotas", "servicequotas:GetServiceQuota", "check a quota before a launch", ServiceCode="ec2",
           QuotaCode="L-1216C47A"),
    _read("scheduler", "scheduler:ListSchedules", "see the timers in the cloud", MaxResults=1),
    _read("iam", "iam:GetRole", "see whether timers in the cloud can act", RoleName=TIMER_ROLE_NAME),
    _read("pricing", "pricing:GetProducts", "price machines without a GPU", region=PRICING_REGION,
           ServiceCode="AmazonEC2", MaxResults=1),
)  # fmt: skip

CHANGE_PROBES = (
    _change("RunInstances", "launch machines", **_LAUNCH_CALL),
    Probe("iam:PassRole", "give machines their role",
          {**_LAUNCH_CALL, **_DRY_RUN, "IamInstanceProfile": {"Name": "{profile}"}},
          "asked only where config.toml names an instance_profile", needed=False, call="RunInstances"),
    Probe("iam:SimulatePrincipalPolicy", "see whether timers in the cloud can act", {"PolicySourceArn": "{timer role}",
          "ActionNames": ["ec2:StopInstances"]}, "asked only where config.toml names a timer_role", needed=False,
          client="iam"),
    _change("ImportKeyPair", "log in", KeyName="cloudgpu-doctor", PublicKeyMaterial=PUBLIC_KEY,
            TagSpecifications=_tags("key-pair", TAG_OWNER)),
    _change("CreateSecurityGroup", "let SSH in from the caller", GroupName="cloudgpu-doctor",
            Description="never made: a dry run", TagSpecifications=_tags("security-group", TAG_OWNER, TAG_LEDGER)),
    _change("CreatePlacementGroup", "place the machines of a cluster close together", GroupName="cloudgpu-doctor",
            Strategy="cluster", TagSpecifications=_tags("placement-group", TAG_OWNER, TAG_LEDGER), needed=False),
    _change("AuthorizeSecurityGroupIngress", "let SSH in from the caller", GroupId="{group}", IpPermissions=_SSH_RULE),
    _change("RevokeSecurityGroupIngress", "move the caller's rule", GroupId="{group}", IpPermissions=_SSH_RULE),
    _change("UpdateSecurityGroupRuleDescriptionsIngress", "keep a rule that two names share",
            GroupId="{group}", IpPermissions=_SSH_RULE, needed=False),
    _change("CreateTags", "extend and hold a lease", Resources=["{machine}"],
            Tags=[{"Key": TAG_HOLD_UNTIL, "Value": "0"}]),
    _change("TerminateInstances", "end machines", InstanceIds=["{machine}"]),
    _change("StopInstances", "stop machines", InstanceIds=["{machine}"]),
    _change("StartInstances", "start machines", InstanceIds=["{machine}"]),
    _change("ModifyInstanceAttribute", "end a spot machine with its disk", InstanceId="{machine}",
            InstanceInitiatedShutdownBehavior={"Value": "terminate"}),
    _change("CancelSpotInstanceRequests", "end a persistent spot machine", SpotInstanceRequestIds=["{spot request}"]),
    _change("CreateVolume", "make data volumes", AvailabilityZone="{zone}", Size=1, VolumeType="gp3", Encrypted=True,
            TagSpecifications=_tags("volume", TAG_VOLUME, TAG_LEDGER, TAG_OWNER), needed=False),
    _change("AttachVolume", "attach data volumes", VolumeId="{disk}", InstanceId="{machine}", Device="/dev/sdf",
            needed=False),
    _change("DeleteVolume", "remove disks that are left", VolumeId="{disk}"),
    _change("CreateSnapshot", "park machines", VolumeId="{disk}",
            TagSpecifications=_tags("snapshot", TAG_ID, TAG_LEDGER)),
    _change("RegisterImage", "park machines", Name="cloudgpu-doctor", RootDeviceName="/dev/sda1",
            BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": "{snapshot}"}}],
            TagSpecifications=_tags("image", TAG_ID, TAG_LEDGER)),
    _change("CreateImage", "save images", InstanceId="{machine}", Name="cloudgpu-doctor", NoReboot=True, needed=False,
            TagSpecifications=_tags("image", TAG_LEDGER) + _tags("snapshot", TAG_LEDGER)),
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

UNTESTED_PROBES = (
    Probe("servicequotas:RequestServiceQuotaIncrease", "ask for a higher quota", needed=False,
          why_untested=NO_DRY_RUN),
    *(
        Probe(f"scheduler:{action}", "set the timers in the cloud", needed=False, why_untested=NO_DRY_RUN)
        for action in ("CreateSchedule", "CreateScheduleGroup", "DeleteSchedule", "GetSchedule", "UpdateSchedule")
    ),
    Probe("iam:CreateServiceLinkedRole", "launch the account's first spot machine", needed=False,
          why_untested=NO_DRY_RUN),
)  # fmt: skip
