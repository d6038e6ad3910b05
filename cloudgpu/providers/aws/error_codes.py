"""What each error code of AWS means for the caller: the class of our error, the field it is about, the remedy.

Codes and their meaning are from "Error codes for the Amazon EC2 API"
(docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html) and the services' own API references.
A code that is not here is ProviderUnavailable: nothing is known.
"""

from __future__ import annotations

from cloudgpu.errors import AuthFailed, InstanceNotFound, InvalidRequest, LaunchUncertain, QuotaExceeded
from cloudgpu.providers.shared.errors import ErrorMapping, error_mappings

# Codes for a credential that AWS does not accept, a missing permission, and a clock that is wrong.
CREDENTIAL = frozenset(
    "AuthFailure ExpiredToken ExpiredTokenException IncompleteSignature InvalidAccessKeyId InvalidClientTokenId "
    "InvalidSignatureException MissingAuthenticationToken MissingAuthenticationTokenException SignatureDoesNotMatch "
    "TokenRefreshRequired UnrecognizedClientException".split()
)
DENIED = frozenset("AccessDenied AccessDeniedException UnauthorizedOperation DependencyAccessDeniedException".split())
SKEWED = frozenset(
    "InvalidSecurity.RequestHasExpired RequestExpired RequestInTheFuture RequestTimeTooSkewed "
    "RequestTimeTooSkewedException".split()
)

_ACCOUNT_REMEDY = "Open the AWS console with this account and finish what it asks for, or ask AWS Support."
_NO_CAPACITY = """
    IncompatibleHostRequirements InsufficientCapacity InsufficientCapacityOnHost InsufficientFreeAddressesInSubnet
    InsufficientHostCapacity InsufficientInstanceCapacity InsufficientReservedInstanceCapacity
    InsufficientVolumeCapacity ReservationCapacityExceeded SpotMaxPriceTooLow UnavailableHostRequirements
    UnfulfillableCapacity Unsupported VolumeTypeNotAvailableInZone"""
_QUOTA_OF_MACHINES = "InstanceLimitExceeded MaxSpotInstanceCountExceeded VcpuLimitExceeded"
_QUOTA_OF_OTHERS = """
    AddressLimitExceeded AttachmentLimitExceeded ConcurrentSnapshotLimitExceeded CreationLimitExceededException
    KeyPairLimitExceeded LimitExceeded LimitExceededException
    MaxIOPSLimitExceeded NetworkInterfaceLimitExceeded PendingSnapshotLimitExceeded
    PlacementGroupLimitExceeded
    PrivateIpAddressLimitExceeded QuotaExceededException ResourceCountExceeded ResourceLimitExceeded
    RulesPerSecurityGroupLimitExceeded SecurityGroupLimitExceeded SecurityGroupsPerInstanceLimitExceeded
    SecurityGroupsPerInterfaceLimitExceeded SnapshotLimitExceeded TagLimitExceeded TagPolicyViolation
    ServiceQuotaExceededException VolumeLimitExceeded"""
_THROTTLED = """
    BandwidthLimitExceeded ConcurrentTagAccess EC2ThrottledException PriorRequestNotComplete
    RequestLimitExceeded RequestThrottled RequestThrottledException SlowDown SnapshotCreationPerVolumeRateExceeded
    ConflictException Throttling ThrottledException ThrottlingException TooManyRequestsException"""
_DOWN = "InternalError InternalFailure InternalServerException ServiceException ServiceUnavailable Unavailable"
_NO_INSTANCE = "InvalidInstanceID.NotFound InvalidInstanceIDNotFound"
_UNCERTAIN = "IdempotentInstanceTerminated IdempotentParameterMismatch InvalidClientToken"

_INVALID_REQUESTS = {  # codes of an invalid request, by the field that is wrong
    "--image": """
        InvalidAMIID.Malformed InvalidAMIID.NotFound InvalidAMIID.Unavailable InvalidAMIName.Duplicate
        InvalidAMIName.Malformed ConcurrentCreateImageNoRebootLimitExceeded ParameterNotFound ParameterVersionNotFound
        InvalidSnapshot.InUse InvalidSnapshot.NotFound InvalidSnapshotID.Malformed""",
    "--instance-type": "InvalidInstanceType UnsupportedInstanceTypeOnHost BootForVolumeTypeUnsupported",
    "--region": "InvalidRegion",
    "--zone": "InvalidAvailabilityZone InvalidZone.NotFound ZonesMismatched",
    "--subnet": "InvalidSubnet InvalidSubnetID.Malformed InvalidSubnetID.NotFound InvalidVpcID.NotFound",
    "--security-group": """
        InvalidGroup.Duplicate InvalidGroup.InUse InvalidGroup.NotFound InvalidGroup.Reserved
        InvalidGroupId.Malformed InvalidSecurityGroupID.NotFound InvalidSecurityGroupId.Malformed""",
    "--ssh-from": "InvalidPermission.Duplicate InvalidPermission.Malformed InvalidPermission.NotFound",
    "--disk": "InvalidBlockDeviceMapping UnknownVolumeType InvalidVolumeSize",
    "--volume": """
        EncryptedVolumesNotSupported IncorrectModificationState InvalidAttachment.NotFound InvalidDevice.InUse
        InvalidVolume.NotFound InvalidVolume.ZoneMismatch InvalidVolumeID.Duplicate InvalidVolumeID.Malformed
        InvalidVolumeID.ZoneMismatch VolumeInUse""",
    "key pair": "InvalidKey.Format InvalidKeyPair.Duplicate InvalidKeyPair.Format InvalidKeyPair.NotFound",
    "instance": """
        IncorrectInstanceState IncorrectSpotRequestState IncorrectState InvalidInstanceID InvalidInstanceID.Malformed
        InvalidInstanceState InvalidSpotInstanceRequestID.Malformed InvalidSpotInstanceRequestID.NotFound InvalidState
        NonEBSInstance OperationNotPermitted UnsupportedOperation""",
    "instance_profile": """
        DeleteConflict EntityAlreadyExists EntityTemporarilyUnmodifiable InvalidIamInstanceProfileArn.Malformed
        MalformedPolicyDocument NoSuchEntity UnmodifiableEntity""",
    "quota": """
        IllegalArgumentException InvalidResourceStateException NoSuchResourceException
        ResourceAlreadyExistsException""",
    "--budget": "BillingViewHealthStatusException DuplicateRecordException",
    "provider": """
        CannotDelete CustomerKeyHasBeenRevoked DependencyViolation FilterLimitExceeded InvalidAction
        InvalidAffinity InvalidAllocationID.NotFound InvalidCharacter InvalidFilter InvalidID
        InvalidIPAddress.InUse InvalidInput InvalidInstanceAttributeValue InvalidMaxResults
        InvalidNetworkInterface.InUse InvalidNetworkInterfaceID.NotFound InvalidNextToken InvalidPaginationToken
        InvalidPlacementGroup.Duplicate InvalidPlacementGroup.InUse InvalidPlacementGroup.Unknown
        InvalidParameter InvalidParameterCombination InvalidParameterDependency InvalidParameterException
        InvalidParameterValue InvalidQueryParameter InvalidRequest InvalidTagKey.Malformed InvalidTime
        InvalidUserID.Malformed MalformedQueryString MissingAction MissingInput MissingParameter NoSuchVersion
        NotFoundException ResourceNotFoundException UnknownParameter UnsupportedInstanceAttribute
        UnsupportedProtocol ValidationError ValidationException""",
}
_REMEDIES = {  # by field, where AWS's message says what is wrong, and not what would be right
    "--image": "See what there is: cloudgpu image ls, or aws ec2 describe-images --region REGION",
    "--subnet": "See what there is: aws ec2 describe-subnets --region REGION",
    "--security-group": "See what there is: aws ec2 describe-security-groups --region REGION",
    "--volume": "See what there is: aws ec2 describe-volumes --region REGION",
}
_NO_NETWORK = ErrorMapping(
    InvalidRequest,
    "--subnet",
    "Name a subnet with --subnet, or make a default VPC: aws ec2 create-default-vpc --region REGION",
)


ERROR_MAPPINGS = error_mappings(
    (
        _QUOTA_OF_MACHINES,
        ErrorMapping(QuotaExceeded, "quota", "See it and ask for more: cloudgpu quota --provider aws --region REGION"),
    ),
    (
        _QUOTA_OF_OTHERS,
        ErrorMapping(QuotaExceeded, "quota", "Remove what is not needed there, or ask AWS for a higher limit."),
    ),
    (_NO_INSTANCE, ErrorMapping(InstanceNotFound, "instance")),
    (_UNCERTAIN, ErrorMapping(LaunchUncertain, "launch")),
    ("DefaultVpcDoesNotExist VPCIdNotSpecified VPCResourceNotSpecified", _NO_NETWORK),
    ("Blocked OptInRequired PendingVerification AccountDisabled", ErrorMapping(AuthFailed, "account", _ACCOUNT_REMEDY)),
    (CREDENTIAL | DENIED | SKEWED, ErrorMapping(AuthFailed, "credentials")),
    no_capacity=_NO_CAPACITY,
    throttled=_THROTTLED,
    down=_DOWN,
    invalid=_INVALID_REQUESTS,
    remedies=_REMEDIES,
)
"""Every code that has a meaning for us."""
