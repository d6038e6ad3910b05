"""Talks to AWS: one boto3 session per account, one client per service and region, errors of `cloudgpu.errors`."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.errors import AnswerTimeout, InvalidRequest, ProviderUnavailable
from cloudgpu.parallel import send_heartbeat
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.account_cache import ACCOUNT_ID, AccountCache
from cloudgpu.providers.aws.errors import CallContext, translated
from cloudgpu.providers.aws.ids import AwsOptions, aws_options
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.shared.account import AccountPins, CloudAccount, translated_errors
from cloudgpu.providers.shared.calls import Answer, ask_each, count_request
from cloudgpu.providers.shared.errors import missing_sdk_error

Raw = Mapping[str, Any]  # a resource as AWS describes it
PROVIDER = "aws"  # the provider, as its accounts in config.toml and the catalogue call it
MAX_PARALLEL = 32  # regions that are called at the same time
MAX_FILTER_VALUES = 200  # of a filter: the most that EC2 takes
ATTEMPTS = 5  # sends of a read, or of a call that is harmless when repeated, where the user's AWS settings say nothing
SIGN_IN = ("sso-oidc", "signin")  # the services that renew a login of `aws sso login`, and of `aws login`
# What is called of AWS's 400 services; `sso` and `sts` by botocore itself, too, which gets credentials there.
SERVICES = ("budgets", "ec2", "iam", "pricing", "s3", "scheduler", "service-quotas", "ssm", "sso", "sts", *SIGN_IN)
_FIRST_ERROR_STATUS = 400
_LONGEST_PAUSE_S, _EXTRA_PAUSE_S = 20.0, 5.0  # between sends in botocore's mode `standard`; extra for a Retry-After
# What is read of a machine (the shape `Instance` of DescribeInstances and RunInstances), anywhere in `providers/aws`.
# botocore parses all 61 members that its model names: those that nobody reads took half the time of a listing.
INSTANCE_MEMBERS = frozenset(
    """
    AmiLaunchIndex BlockDeviceMappings CpuOptions InstanceId InstanceLifecycle InstanceType LaunchTime Placement
    PrivateIpAddress PublicIpAddress RootDeviceName SecurityGroups SpotInstanceRequestId State StateReason
    StateTransitionReason Tags
    """.split()
)
# What is called of EC2 anywhere in `providers/aws`, of 830 operations: botocore makes a method of each for each client.
OPERATIONS = frozenset(
    """
    AttachVolume AuthorizeSecurityGroupIngress CancelSpotInstanceRequests CreateImage CreatePlacementGroup
    CreateSecurityGroup CreateSnapshot CreateTags CreateVolume DeleteKeyPair DeleteNetworkInterface DeletePlacementGroup
    DeleteSecurityGroup DeleteSnapshot DeleteVolume DeregisterImage DescribeAddresses DescribeAvailabilityZones
    DescribeImages DescribeInstanceTypeOfferings DescribeInstanceTypes DescribeInstances DescribeKeyPairs
    DescribeNetworkInterfaces DescribePlacementGroups DescribeRegions DescribeSecurityGroups DescribeSnapshots
    DescribeSpotInstanceRequests DescribeSpotPriceHistory DescribeSubnets DescribeVolumes DescribeVpcs
    GetSpotPlacementScores ImportKeyPair ModifyInstanceAttribute RegisterImage ReleaseAddress RevokeSecurityGroupIngress
    RunInstances StartInstances StopInstances TerminateInstances UpdateSecurityGroupRuleDescriptionsIngress
    """.split()
)
_READ_PREFIXES = ("Describe", "Get", "List", "Search", "Simulate")  # how an operation that changes nothing begins
_UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
_CALL_STARTED = "cloudgpu_begun"  # when a call began, in what botocore carries from its first send to its last


class Aws(CloudAccount):
    """One account: its clients, its regions, its clock. Makes no network call until it is asked."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.options: AwsOptions = aws_options(settings.account, settings.options)
        current_login, former_login = f"the credentials of {self.account} are", "the credentials of"
        # the AWS account that each machine was launched in, recorded in files
        self.launch_accounts = AccountPins(self.home, "AWS account", current_login, former_login, "credentials")
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, str, int | None, float], Any] = {}
        self.placement_scores: dict[
            tuple[str, tuple[str, ...]], tuple[datetime, Mapping[str, int]]
        ] = {}  # spot placement scores by zone, and when they were read, for each (instance type, regions)
        self.zone_names: dict[str, Mapping[str, str]] = {}  # for each region: the names of its zones, by zone id
        self._regions: tuple[str, ...] | None = None
        self.cache = AccountCache(self.home, self.access_key)
        self._account_id: str | None = None
        self._account_id_lock = threading.Lock()
        self._attempts = ATTEMPTS
        self._sign_in_status = 0  # the status of the last answer of AWS's sign-in services

    def client(self, service: str, region: str, *, sends: int | None = None) -> Any:
        """Return the client of a service in a region, made once. It waits longer for a change than for a read.

        It sends a call up to `sends` times; None: what AWS_MAX_ATTEMPTS or the profile's `max_attempts` says, else
        ATTEMPTS. `sends=1` is for changes alone. Raises AuthFailed for a profile that does not exist, InvalidRequest
        for an endpoint that is no URL.
        """
        if sends == 1:
            return self._cached_client(service, region, sends, self.timeouts.change_s)
        read_client = self._cached_client(service, region, sends, self.timeouts.read_s)
        return _Client(read_client, lambda: self._cached_client(service, region, sends, self.timeouts.change_s))

    def _cached_client(self, service: str, region: str, sends: int | None, read_timeout_s: float) -> Any:
        key = (service, region, sends, read_timeout_s)
        with self._lock:
            if key not in self._clients:
                with self.calling("credentials", region):
                    self._clients[key] = self._make_client(service, region, sends, read_timeout_s)
            return self._clients[key]

    def _make_client(self, service: str, region: str, sends: int | None, read_timeout_s: float) -> Any:
        if self._session is None:
            self._session, self._attempts = _session(self.options.profile)
            self._register_handlers(self._session)
        from botocore.config import Config

        config = Config(
            retries={"mode": "standard", "total_max_attempts": sends or self._attempts},
            connect_timeout=self.timeouts.connect_s,
            read_timeout=read_timeout_s,
            max_pool_connections=MAX_PARALLEL,
            signature_version="s3v4" if service == "s3" else None,  # else addresses are signed the old way
        )
        try:
            return self._session.client(service, region_name=region, config=config)
        except ValueError as error:  # botocore raises it for a URL that is none
            url = os.environ.get("AWS_ENDPOINT_URL")
            message = f"The AWS client of {service} cannot be made: {error}."
            raise InvalidRequest(message, field="AWS_ENDPOINT_URL", value=url, next="Correct or unset it.") from error

    def _record_sign_in_status(self, http_response: Any, **_call: Any) -> None:
        """Store the HTTP status of a sign-in service: where a login is not renewed, botocore does not say why."""
        self._sign_in_status = int(http_response.status_code)

    def _register_handlers(self, session: Any) -> None:
        """Let all clients of a session, those of its login too, keep to the time that a call has."""
        session.events.register("before-send.*", _count_request)  # for the metrics
        session.events.register("before-call.*", self._before_call)
        session.events.register("needs-retry.*", self._needs_retry)
        session.events.register("needs-retry.*", _report_refusal)
        session.events.register("after-call.*", self._after_call)
        for service in SIGN_IN:
            session.events.register(f"after-call.{service}", self._record_sign_in_status)

    def _before_call(self, model: Any, context: dict[str, Any], **_more: Any) -> None:
        """Note when a call begins; raise AnswerTimeout for a read that was not answered there a moment ago."""
        if _is_read(model.name):
            self.timeouts.raise_if_timed_out_lately(model.name, _service_label(context))
        context[_CALL_STARTED] = self.timeouts.now()

    def _needs_retry(self, operation: Any, request_dict: Any, caught_exception: Any = None, **_more: Any) -> None:
        """Raise AnswerTimeout where a call was not answered, and has had its time."""
        context, is_read = request_dict["context"], _is_read(operation.name)
        started_s = context.get(_CALL_STARTED, 0.0)
        if caught_exception is None:
            return
        if not self.timeouts.is_spent(started_s, read=is_read):
            context["read_timeout"] = self.timeouts.seconds_left(
                started_s, read=is_read
            )  # older botocore does not look at it
            return
        service_label = _service_label(context)
        if is_read:
            silent_error = self.timeouts.record_timeout(operation.name, service_label, self.timeouts.read_s)
            raise silent_error from caught_exception
        message = f"{service_label} did not answer {operation.name} within {self.timeouts.change_s:g} seconds."
        raise AnswerTimeout(message, field="provider") from caught_exception

    def _after_call(self, model: Any, context: dict[str, Any], **_more: Any) -> None:
        self.timeouts.record_answer(model.name, _service_label(context))
        send_heartbeat()

    def ec2(self, region: str) -> Any:
        """Return the EC2 client of a region."""
        return self.client("ec2", region)

    def regions(self) -> tuple[str, ...]:
        """Return the regions that this account uses: those of the settings, else all that are enabled.

        One call (DescribeRegions) the first time, where the settings name none; the answer is remembered for listings.
        """
        if self._regions is None:
            self._regions = self.options.regions or self._without_excluded(self._enabled_regions())
        return self._regions

    def remembered_regions(self) -> tuple[str, ...] | None:
        """Return the regions cached within the last day and those of the ledger's machines, if a listing may use them.

        None where the listing has to ask AWS, or the regions are known from the settings or an earlier call. No call.
        """
        in_use = self.regions_in_use()
        if in_use is None or self._regions is not None or self.options.regions:
            return None
        cached_regions = self.cache.read_regions(self.clock())
        if cached_regions is None:
            return None
        in_partition = {one for one in in_use if ids.is_same_partition(self.options.home_region, one)}
        return self._without_excluded(sorted(in_partition.union(cached_regions)))

    def _without_excluded(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self.options.exclude_regions)

    def _enabled_regions(self) -> list[str]:
        home_region = self.options.home_region
        with self.calling("DescribeRegions", home_region):
            answer = self.ec2(home_region).describe_regions()
        names = sorted(region["RegionName"] for region in answer["Regions"])
        self.cache.write_regions(names, self.clock())
        return names

    def account_id(self) -> str:
        """Return the id (12 digits) of the account that the credentials belong to, by `account_cache`; asked once."""
        with self._account_id_lock:
            if self._account_id is None:
                self._account_id = self.cache.account_id(self._query_sts)
            return self._account_id

    def _query_sts(self) -> str:
        home_region = self.options.home_region
        with self.calling("GetCallerIdentity", home_region):
            found = str(self.client("sts", home_region).get_caller_identity()["Account"])
        if not ACCOUNT_ID.fullmatch(found):
            raise ProviderUnavailable(f"STS says that the account is {found!r}, which is not a number of an account.")
        return found

    def access_key(self) -> str:
        """Return the id of the key that calls are signed with, which is no secret. Raises AuthFailed for none."""
        self.client("sts", self.options.home_region)  # makes the session
        with self.calling("credentials", self.options.home_region):
            credentials = self._session.get_credentials()
            return "" if credentials is None else str(credentials.get_frozen_credentials().access_key)

    def login_expires_at(self) -> datetime | None:
        """Return when the credentials expire that calls are signed with; None for a key that does not expire."""
        self.client("sts", self.options.home_region)  # makes the session
        with self.calling("credentials", self.options.home_region):
            credentials = self._session.get_credentials()
            if credentials is not None:
                credentials.get_frozen_credentials()  # renews credentials that are about to expire
            expiry = getattr(credentials, "_expiry_time", None)  # botocore has no public name for it
            return expiry if isinstance(expiry, datetime) else None

    def ask_each(
        self, regions: Sequence[str], query: Callable[[str], Answer]
    ) -> tuple[dict[str, Answer], tuple[Unanswered, ...]]:
        """Ask each region, side by side; return the answers by region and those that did not answer.

        Raises the first error when no region answered.
        """
        return ask_each(regions, query, MAX_PARALLEL, answer_timeout_s=self.timeouts.read_s)

    def calling(self, action: str, region: str, *, value: str | None = None) -> AbstractContextManager[None]:
        """Turn what boto3 raises inside into our errors, which name `action`, `region` and `value` (of the user)."""
        account, profile = self.account, self.options.profile
        return translated_errors(
            lambda error: translated(
                error,
                CallContext(action, region, account, self.uncorrected_time(), profile, value, self._sign_in_status),
            )
        )


class _Client:
    """A service's client for reads, and one that waits longer for changes: botocore has one time for all calls."""

    def __init__(self, read_client: Any, make_change_client: Callable[[], Any]) -> None:
        self._read_client, self._make_change_client = read_client, make_change_client

    def __getattr__(self, name: str) -> Any:
        operation = self._read_client.meta.method_to_api_mapping.get(name)
        is_read = operation is None or _is_read(operation)
        return getattr(self._read_client if is_read else self._make_change_client(), name)


def _session(profile: str | None) -> tuple[Any, int]:
    """Return a session, and how often the user wants a call sent."""
    try:
        import boto3
    except ModuleNotFoundError as error:
        raise missing_sdk_error(PROVIDER, error) from error
    botocore_session = fast_session(profile)
    attempts = botocore_session.get_config_variable("max_attempts") or ATTEMPTS
    return boto3.Session(botocore_session=botocore_session), attempts


def fast_session(profile: str | None) -> Any:
    """Return a session of botocore that is faster: of EC2's answers it parses only the members that cloudgpu reads."""
    from botocore.session import Session

    botocore_session = Session(profile=profile)
    botocore_session.register_component("data_loader", _loader(botocore_session.get_config_variable("data_path")))
    botocore_session.register_component("response_parser_factory", _parser_factory())
    return botocore_session


def _parser_factory() -> Any:
    """Return a factory of answer parsers that read times and element names with the faster functions of this module."""
    from botocore.parsers import ResponseParserFactory

    class FastParserFactory(ResponseParserFactory):  # type: ignore[misc]  # botocore has no types
        def create_parser(self, protocol_name: str) -> Any:
            """Return a parser; botocore's own cuts the name of each element with a regex."""
            parser = super().create_parser(protocol_name)
            parser._node_tag = lambda node: _local_name(node.tag)  # noqa: SLF001  (a botocore without it just stays slower)
            return parser

    factory = FastParserFactory()
    factory.set_parser_defaults(timestamp_parser=_parse_time)
    return factory


@lru_cache(maxsize=4096)
def _local_name(tag: str) -> str:
    """Return the name of an element without its namespace."""
    return tag.rpartition("}")[2]


def _parse_time(value: Any) -> datetime:
    """Return a time in an answer of AWS. EC2's format is parsed here: botocore's dateutil takes 50 times as long.

    Raises ValueError for a text that is no time.
    """
    if isinstance(value, str) and _UTC_TIME.fullmatch(value):
        with suppress(ValueError):
            return datetime.fromisoformat(value)
    from botocore.utils import parse_timestamp

    return cast("datetime", parse_timestamp(value))


@cache
def _loader(data_path: str | None) -> Any:
    """Return the loader of AWS's service models, which reads each once in a process: EC2's takes 0.1 s.

    It keeps INSTANCE_MEMBERS and OPERATIONS of EC2's model alone. Models in the user's `data_path` are read, too.
    """
    from botocore.exceptions import DataNotFoundError
    from botocore.loaders import Loader, instance_cache

    class ReducedLoader(Loader):  # type: ignore[misc]  # botocore has no types
        @instance_cache  # type: ignore[untyped-decorator]
        def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
            model = super().load_service_model(service_name, type_name, api_version)
            if (service_name, type_name) != ("ec2", "service-2"):
                return model
            shapes = dict(model["shapes"])
            members = {
                name: member for name, member in shapes["Instance"]["members"].items() if name in INSTANCE_MEMBERS
            }
            shapes["Instance"] = shapes["Instance"] | {"members": members}
            operations = {name: one for name, one in model["operations"].items() if name in OPERATIONS}
            return model | {"shapes": shapes, "operations": operations}

        @instance_cache  # type: ignore[untyped-decorator]
        def list_available_services(self, type_name: str) -> list[str]:
            """Return those of SERVICES that there are; botocore's own method looks into the directories of all 400."""
            available: list[str] = []
            for service in SERVICES:
                with suppress(DataNotFoundError):
                    self.list_api_versions(service, type_name)
                    available.append(service)
            return available

    paths = data_path.split(os.pathsep) if data_path else ()
    return ReducedLoader(extra_search_paths=[str(Path(os.path.expandvars(path)).expanduser()) for path in paths])


def _service_label(context: Mapping[str, Any]) -> str:
    return f"AWS {context.get('client_region') or ''}".rstrip()


def _report_refusal(attempts: int, response: Any = None, **_call: Any) -> None:
    """Tell whoever waits for the call that AWS answered, and how long botocore may pause before it sends it again."""
    if response is not None and response[0].status_code >= _FIRST_ERROR_STATUS:
        send_heartbeat(min(2.0 ** (attempts - 1), _LONGEST_PAUSE_S) + _EXTRA_PAUSE_S)


def _is_read(operation: str) -> bool:
    return operation.startswith(_READ_PREFIXES)


def _count_request(event_name: str, **_request: Any) -> None:
    """Count a request that is about to be sent: `before-send.ec2.RunInstances`."""
    count_request(PROVIDER, event_name.rpartition(".")[2])


def call_tolerating(
    aws: Aws,
    client: Any,
    action: str,
    region: str,
    permission: str,
    value: str,
    tolerated: Collection[str],
    **parameters: Any,
) -> Any:
    """Call an action of AWS and return its answer, or the code of an error that is one of `tolerated`.

    `permission` is the action as IAM spells it, and `value` what the user named: both are for the error's text.
    """
    from botocore import xform_name
    from botocore.exceptions import ClientError

    with aws.calling(permission, region, value=value):
        try:
            return getattr(client, xform_name(action))(**parameters)
        except ClientError as error:
            code = str(error.response["Error"]["Code"])
            if code not in tolerated:
                raise
            return code


def pages(client: Any, operation: str, **parameters: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the pages of a paginated call."""
    yield from client.get_paginator(operation).paginate(**parameters)


def batches(values: Sequence[str], size: int) -> Iterator[list[str]]:
    """Yield the values in lists of at most `size`: as many as a call takes."""
    for begin in range(0, len(values), size):
        yield list(values[begin : begin + size])


def describe(aws: Aws, action: str, region: str, *, value: str | None = None, **query: Any) -> list[Mapping[str, Any]]:
    """Return what EC2 answers to `action` (`DescribeVolumes`); `value`: what the user named, for errors. One page."""
    client = aws.ec2(region)  # first: it says so where the SDK is not installed
    from botocore import xform_name

    with aws.calling(action, region, value=value):
        return list(getattr(client, xform_name(action))(**query)[action.removeprefix("Describe")])


def describe_all(
    aws: Aws, action: str, region: str, *, value: str | None = None, **parameters: Any
) -> list[Mapping[str, Any]]:
    """Return what `describe` does, of all pages. One call per page."""
    client = aws.ec2(region)
    from botocore import xform_name

    with aws.calling(action, region, value=value):
        answer_pages = pages(client, xform_name(action), **parameters)
        return [one for page in answer_pages for one in page[action.removeprefix("Describe")]]


def describe_instances(aws: Aws, region: str, *, value: str | None = None, **query: Any) -> list[dict[str, Any]]:
    """Return the machines of a region that DescribeInstances reports, of all pages. One call per page."""
    client = aws.ec2(region)
    with aws.calling("DescribeInstances", region, value=value):
        answer_pages = pages(client, "describe_instances", **query)
        return [
            one for page in answer_pages for reservation in page["Reservations"] for one in reservation["Instances"]
        ]
