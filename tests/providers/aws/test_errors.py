"""Every error code that AWS documents for what we call has its meaning, and every error its way out."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import botocore.exceptions as sdk
import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from cloudgpu.errors import (
    AuthFailed,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    RateLimited,
)
from cloudgpu.providers.aws import errors
from cloudgpu.providers.aws.error_codes import ERROR_MAPPINGS
from cloudgpu.providers.aws.errors import CallContext, translated

NOW = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)

# "Error codes for the Amazon EC2 API", docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html: all common
# client errors, all server errors, and of those for specific actions the ones about what cloudgpu uses.
COMMON = """
    AuthFailure Blocked DryRunOperation IdempotentParameterMismatch IncompleteSignature InvalidAction InvalidCharacter
    InvalidClientTokenId InvalidPaginationToken InvalidParameter InvalidParameterCombination InvalidParameterDependency
    InvalidParameterValue InvalidQueryParameter MalformedQueryString MissingAction MissingAuthenticationToken
    MissingParameter OptInRequired PendingVerification RequestExpired UnauthorizedOperation UnknownParameter
    UnsupportedInstanceAttribute UnsupportedOperation UnsupportedProtocol ValidationError""".split()
OF_THE_SERVER = """
    BandwidthLimitExceeded InsufficientAddressCapacity InsufficientCapacity InsufficientHostCapacity
    InsufficientInstanceCapacity InsufficientReservedInstanceCapacity InsufficientVolumeCapacity InternalError
    InternalFailure RequestLimitExceeded ServiceUnavailable Unavailable""".split()
OF_ACTIONS = """
    AttachmentLimitExceeded BootForVolumeTypeUnsupported ConcurrentCreateImageNoRebootLimitExceeded
    ConcurrentSnapshotLimitExceeded ConcurrentTagAccess CustomerKeyHasBeenRevoked DefaultVpcDoesNotExist
    DependencyViolation EncryptedVolumesNotSupported FilterLimitExceeded IdempotentInstanceTerminated
    IncorrectInstanceState IncorrectModificationState IncorrectState InstanceLimitExceeded
    InsufficientFreeAddressesInSubnet InvalidAMIID.Malformed InvalidAMIID.NotFound InvalidAMIID.Unavailable
    InvalidAMIName.Duplicate InvalidAMIName.Malformed InvalidAttachment.NotFound InvalidAvailabilityZone
    InvalidBlockDeviceMapping InvalidClientToken InvalidDevice.InUse InvalidFilter InvalidGroup.Duplicate
    InvalidGroup.InUse InvalidGroup.NotFound InvalidGroup.Reserved InvalidGroupId.Malformed
    InvalidIamInstanceProfileArn.Malformed InvalidID InvalidInput InvalidInstanceAttributeValue InvalidInstanceID
    InvalidInstanceID.Malformed InvalidInstanceID.NotFound InvalidInstanceState InvalidInstanceType InvalidKey.Format
    InvalidKeyPair.Duplicate InvalidKeyPair.Format InvalidKeyPair.NotFound InvalidMaxResults
    InvalidNetworkInterface.InUse InvalidNetworkInterfaceID.NotFound InvalidNextToken InvalidPermission.Duplicate
    InvalidPermission.Malformed InvalidPermission.NotFound InvalidRegion InvalidRequest
    InvalidSecurity.RequestHasExpired InvalidSecurityGroupID.NotFound InvalidSecurityGroupId.Malformed
    InvalidSnapshot.InUse InvalidSnapshot.NotFound InvalidSnapshotID.Malformed InvalidSpotInstanceRequestID.Malformed
    InvalidSpotInstanceRequestID.NotFound InvalidState InvalidSubnet InvalidSubnetID.Malformed
    InvalidSubnetID.NotFound InvalidTagKey.Malformed InvalidTime InvalidUserID.Malformed InvalidVolume.NotFound
    InvalidVolume.ZoneMismatch InvalidVolumeID.Duplicate InvalidVolumeID.Malformed InvalidVolumeID.ZoneMismatch
    InvalidVpcID.NotFound InvalidZone.NotFound KeyPairLimitExceeded MaxIOPSLimitExceeded MaxSpotInstanceCountExceeded
    MissingInput NetworkInterfaceLimitExceeded NoSuchVersion NonEBSInstance OperationNotPermitted
    PendingSnapshotLimitExceeded PrivateIpAddressLimitExceeded RequestResourceCountExceeded ReservationCapacityExceeded
    ResourceCountExceeded ResourceLimitExceeded RulesPerSecurityGroupLimitExceeded SecurityGroupLimitExceeded
    SecurityGroupsPerInstanceLimitExceeded SecurityGroupsPerInterfaceLimitExceeded SignatureDoesNotMatch
    SnapshotCreationPerVolumeRateExceeded SnapshotLimitExceeded TagLimitExceeded UnknownVolumeType Unsupported
    VPCIdNotSpecified VPCResourceNotSpecified VolumeInUse VolumeLimitExceeded VolumeTypeNotAvailableInZone
    ZonesMismatched""".split()
# Their own API references (Service Quotas, Price List, Systems Manager, IAM, STS): the errors of the calls we make.
OF_OTHERS = """
    AccessDenied AccessDeniedException DeleteConflict DependencyAccessDeniedException EntityAlreadyExists ExpiredToken
    ExpiredTokenException IllegalArgumentException InvalidResourceStateException LimitExceeded MalformedPolicyDocument
    NoSuchEntity NoSuchResourceException ParameterNotFound QuotaExceededException ResourceAlreadyExistsException
    ServiceException Throttling ThrottlingException TooManyRequestsException UnmodifiableEntity
    UnrecognizedClientException""".split()
# Reported by those who launch, and not on that page.
REPORTED = "SpotMaxPriceTooLow UnfulfillableCapacity VcpuLimitExceeded".split()
MEAN_NOTHING = {  # nothing is known: ProviderUnavailable, on purpose
    "DryRunOperation": "the answer to a DryRun that would have been allowed, read where it was asked",
    "InsufficientAddressCapacity": "of Elastic IPs, which we do not use",
    "RequestResourceCountExceeded": "of one request for thousands of machines",
}


def asked(**more):
    return CallContext("RunInstances", "us-east-1", "lab", NOW, **more)


def refusal(code, message="No.", headers=None):
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPHeaders": headers or {}}}
    return ClientError(response, "RunInstances")


def said(code, message="No.", headers=None, **more):
    return translated(refusal(code, message, headers), asked(**more))


@pytest.mark.parametrize("code", [*COMMON, *OF_THE_SERVER, *OF_ACTIONS, *OF_OTHERS, *REPORTED])
def test_every_documented_code_has_a_meaning(code):
    assert (code in ERROR_MAPPINGS) is (code not in MEAN_NOTHING)


def test_what_means_nothing_is_documented_too():
    assert set(MEAN_NOTHING) <= {*COMMON, *OF_THE_SERVER, *OF_ACTIONS}


@pytest.mark.parametrize(
    ("code", "kind", "field"),
    [
        ("InsufficientInstanceCapacity", NoCapacity, "offer"),
        ("Unsupported", NoCapacity, "offer"),
        ("SpotMaxPriceTooLow", NoCapacity, "offer"),
        ("InsufficientFreeAddressesInSubnet", NoCapacity, "offer"),
        ("VcpuLimitExceeded", QuotaExceeded, "quota"),
        ("MaxSpotInstanceCountExceeded", QuotaExceeded, "quota"),
        ("RequestLimitExceeded", RateLimited, "provider"),
        ("ThrottlingException", RateLimited, "provider"),
        ("InvalidInstanceID.NotFound", InstanceNotFound, "instance"),
        ("InvalidAMIID.NotFound", InvalidRequest, "--image"),
        ("InvalidSubnetID.NotFound", InvalidRequest, "--subnet"),
        ("InvalidGroup.NotFound", InvalidRequest, "--security-group"),
        ("InvalidZone.NotFound", InvalidRequest, "--zone"),
        ("VPCIdNotSpecified", InvalidRequest, "--subnet"),
        ("IdempotentParameterMismatch", LaunchUncertain, "launch"),
        ("InternalError", ProviderUnavailable, "provider"),
        ("PendingVerification", AuthFailed, "account"),
        ("SomethingNew", ProviderUnavailable, "provider"),
        ("SomethingNew.NotFound", ProviderUnavailable, "provider"),
    ],
)
def test_a_code_decides_what_the_caller_does_next(code, kind, field):
    fault = said(code, value="x")
    assert type(fault) is kind
    assert (fault.field, fault.value) == (field, "x") if kind is not AuthFailed else fault.field == field
    assert fault.message == f"AWS us-east-1 refused RunInstances: No ({code})."


def test_no_capacity_is_said_in_one_sentence_since_every_attempt_says_it():
    fault = said("InsufficientInstanceCapacity", "We have none in us-east-1a. You can try elsewhere. Or later.")
    assert fault.message.endswith(": We have none in us-east-1a (InsufficientInstanceCapacity).")


def test_a_quota_has_its_way_out():
    assert said("VcpuLimitExceeded").next.endswith("cloudgpu quota --provider aws --region us-east-1")


def test_no_default_vpc_has_its_way_out():
    assert "--subnet" in said("VPCIdNotSpecified").next
    assert "create-default-vpc --region us-east-1" in said("VPCIdNotSpecified").next


@pytest.mark.parametrize(("text", "wait"), [("7", 7.0), ("soon", None), (None, None)])
def test_a_wait_is_as_long_as_told(text, wait):
    headers = {"retry-after": text} if text else {}
    assert said("RequestLimitExceeded", headers=headers).retry_after == wait


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "AccessDenied", "AccessDeniedException"])
def test_a_permission_is_named_as_aws_names_it_else_by_the_call(code):
    sentence = "User: arn:aws:iam::1:user/a is not authorized to perform: iam:PassRole on resource: x"
    fault = said(code, f"{sentence} Encoded authorization failure message: AAAA")
    assert (type(fault), fault.field, fault.value) == (AuthFailed, "permission", "iam:PassRole")
    assert "AAAA" not in fault.message
    assert said(code, "No.").value == "ec2:RunInstances"
    other = CallContext("ssm:GetParameter", "us-east-1", "lab", NOW)
    assert translated(refusal(code), other).value == "ssm:GetParameter"


def test_whose_credentials_were_refused_is_said(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    assert "default credentials" in said("InvalidClientTokenId").message
    fault = said("ExpiredToken")  # of an EC2 role or a container, say: there no key is set, and none is to be made
    assert fault.next.startswith("See where they come from: aws configure list.")
    assert "AWS_ACCESS_KEY_ID" not in fault.next
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASECRET")
    fault = said("ExpiredToken")
    assert "AWS_ACCESS_KEY_ID of the environment) have expired" in fault.message
    assert "AKIASECRET" not in fault.message
    assert "AWS_SESSION_TOKEN" in fault.next
    monkeypatch.setenv("AWS_PROFILE", "lab-profile")  # botocore uses the keys of the environment all the same
    assert "AWS_ACCESS_KEY_ID of the environment" in said("InvalidClientTokenId").message
    assert "sso login" not in said("ExpiredToken").next
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert "the profile lab-profile" in said("InvalidClientTokenId").message
    fault = said("ExpiredTokenException", profile="other")
    assert "the profile other" in fault.message
    assert fault.next.startswith("Run: aws sso login --profile other")
    wrong_secret = said("SignatureDoesNotMatch", profile="other")
    assert wrong_secret.next == "Correct the keys of that profile: aws configure --profile other"


def test_a_region_that_is_not_enabled_is_thought_of():
    assert "us-east-1, or this account has not enabled that region" in said("AuthFailure").message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RequestExpired", "Request has expired."),
        ("InvalidSecurity.RequestHasExpired", ""),
        ("SignatureDoesNotMatch", "Signature expired: 20261120T100000Z is now earlier than 20261120T105500Z"),
        ("SignatureDoesNotMatch", "Signature not yet current: 20261120T120000Z is still later than 20261120T110500Z"),
    ],
)
def test_a_wrong_clock_is_said_so(code, message):
    fault = said(code, message)
    assert (type(fault), fault.field) == (AuthFailed, "clock")
    assert "clock of this machine is wrong" in fault.message


def test_a_wrong_clock_shows_in_the_time_of_an_answer_that_does_not_say_so():
    there = {"date": format_datetime(NOW + timedelta(hours=1), usegmt=True)}
    fault = said("AuthFailure", headers=there)
    assert fault.field == "clock"
    assert "11:00 UTC here, 2026-11-20 12:00 UTC at AWS" in fault.message
    near = {"date": format_datetime(NOW + timedelta(minutes=1), usegmt=True)}
    assert said("AuthFailure", headers=near).field == "credentials"
    assert said("AuthFailure", headers={"date": "yesterday"}).field == "credentials"


@pytest.mark.parametrize("code", ["RequestExpired", "InvalidSecurity.RequestHasExpired"])
def test_a_request_that_came_late_is_not_told_as_a_wrong_clock(code):
    there = {"date": format_datetime(NOW + timedelta(seconds=20), usegmt=True)}
    fault = said(code, "Request has expired.", headers=there)
    assert fault.field == "clock"
    assert "the clock of this machine is right (11:00:00 UTC here, 11:00:20 UTC at AWS)" in fault.message
    assert fault.next.startswith("Run it again.")
    assert "11:00 UTC here; AWS rejected that without saying its own time" in said(code).message


def test_a_signature_that_does_not_match_is_not_quoted():
    fault = said("SignatureDoesNotMatch", "The Canonical String for this request should have been 'POST ...'")
    assert "secret key is not the one" in fault.message
    assert "Canonical" not in fault.message


@pytest.mark.parametrize("code", ["", "500", "<html>", "Service Unavailable"])
def test_what_is_no_answer_of_aws_is_not_taken_for_one(code):
    fault = said(code, "<html><body>proxy login</body></html>")
    assert type(fault) is ProviderUnavailable


def test_garbage_is_no_answer():
    fault = translated(
        ResponseParserError("Unable to parse response, invalid XML received:\n<html>secret</html>"), asked()
    )
    assert type(fault) is ProviderUnavailable
    assert "html" not in fault.message


def test_a_long_sentence_is_cut_and_stays_on_one_line():
    fault = said("InvalidParameterValue", "a\nb " * 500)
    assert "\n" not in fault.message
    assert len(fault.message) < 400


def of_container(said):
    """Return what botocore raises where a container gets no credentials (credentials.py, ContainerProvider)."""
    return sdk.CredentialRetrievalError(provider="container-role", error_msg=f"Error retrieving metadata: {said}")


LOGIN = {"profile_name": "p", "sso_session": "s", "error_msg": "e"}
RAISED = [
    (sdk.NoCredentialsError(), AuthFailed, "aws configure"),
    (sdk.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), AuthFailed, "~/.aws/config"),
    (sdk.ProfileNotFound(profile="other"), AuthFailed, "aws configure --profile other"),
    (sdk.UnauthorizedSSOTokenError(), AuthFailed, "aws sso login --profile other"),
    (sdk.SSOTokenLoadError(error_msg="e"), AuthFailed, "aws sso login --profile other"),
    (sdk.TokenRetrievalError(provider="sso", error_msg="e"), AuthFailed, "aws sso login --profile other"),
    (sdk.LoginRefreshRequired(), AuthFailed, "aws login --profile other"),
    (of_container("Received non 200 response 503 from container metadata: busy"), ProviderUnavailable, "in a while"),
    (of_container("Received non 200 response 429 from container metadata: slow"), ProviderUnavailable, "in a while"),
    (of_container("Received error when attempting to retrieve container metadata: x"), ProviderUnavailable, "a while"),
    (of_container("Received non 200 response 404 from container metadata: none"), AuthFailed, "~/.aws/config"),
    (sdk.ConfigParseError(path="/x"), AuthFailed, "~/.aws/config"),
    (sdk.EndpointConnectionError(endpoint_url="https://ec2"), ProviderUnavailable, ""),
    (sdk.ConnectTimeoutError(endpoint_url="https://ec2"), ProviderUnavailable, ""),
    (sdk.ReadTimeoutError(endpoint_url="https://ec2"), ProviderUnavailable, ""),
    (sdk.ConnectionClosedError(endpoint_url="https://ec2"), ProviderUnavailable, ""),
    (sdk.SSLError(endpoint_url="https://ec2", error="e"), ProviderUnavailable, ""),
    (sdk.ProxyConnectionError(proxy_url="http://proxy"), ProviderUnavailable, ""),
    (sdk.NoRegionError(), InvalidRequest, "~/.aws/config"),
    (sdk.InvalidRetryModeError(retry_mode="x", provided_retry_mode="x", valid_modes="y"), InvalidRequest, "~/.aws"),
]


@pytest.mark.parametrize(("error", "kind", "way"), RAISED, ids=lambda value: type(value).__name__)
def test_what_the_sdk_raises_itself_has_its_class_and_way_out(error, kind, way):
    fault = translated(error, asked(profile="other"))
    assert type(fault) is kind
    assert way in (fault.next or "")


@pytest.mark.parametrize(
    ("status", "kind"), [(503, ProviderUnavailable), (429, ProviderUnavailable), (401, AuthFailed)]
)
def test_a_login_that_a_busy_service_does_not_renew_is_not_told_as_expired(status, kind):
    error = sdk.TokenRetrievalError(provider="sso", error_msg="Token has expired and refresh failed")
    assert type(translated(error, asked(sign_in_status=status))) is kind


def test_a_defect_of_ours_is_not_taken_for_the_users():
    assert translated(sdk.ParamValidationError(report="x"), asked()) is None
    assert translated(KeyError("x"), asked()) is None


def test_every_error_of_the_sdk_that_is_named_exists():
    known = {name for name, _ in inspect.getmembers(sdk, inspect.isclass)}
    named = errors.NO_CREDENTIALS | errors.BAD_SETTINGS | errors.OUR_DEFECTS | errors.EXPIRED_LOGIN
    assert named <= known
    assert errors.EXPIRED_LOGIN <= errors.NO_CREDENTIALS
