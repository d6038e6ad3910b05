"""What each error code of Azure means for the caller: the class of our error, the field it is about, the remedy.

Codes and their meaning are from Microsoft's pages "Troubleshoot common Azure deployment errors", "Understand common
error messages when you manage virtual machines", "Error messages for Azure Spot Virtual Machines" and the REST
references of Compute, Network and Resource Manager. A code that is not here is ProviderUnavailable: nothing is known.
"""

from __future__ import annotations

from cloudgpu.errors import AuthFailed, InstanceNotFound, InvalidRequest, ProviderUnavailable, QuotaExceeded
from cloudgpu.providers.shared.errors import RETRY_LATER, ErrorMapping, error_mappings

# Codes for a credential that Azure does not accept, and for a missing permission.
CREDENTIAL = frozenset(
    "AuthenticationFailed AuthenticationFailedMissingToken ExpiredAuthenticationToken InvalidAuthenticationToken "
    "InvalidAuthenticationTokenAudience InvalidAuthenticationTokenTenant InvalidAuthenticationInfo".split()
)
DENIED = frozenset(
    "AuthorizationFailed AuthorizationPermissionMismatch Forbidden LinkedAuthorizationFailed "
    "LinkedAccessCheckFailed RequestDisallowedByAzure".split()
)
NOT_FOUND = frozenset("NotFound ParentResourceNotFound ResourceGroupNotFound ResourceNotFound VMNotFound".split())
# Codes with more than one meaning: the codes of the inner errors, or Azure's message, decide.
WRAPPER_CODES = frozenset(
    "BadRequest Conflict DeploymentFailed InvalidTemplateDeployment MultipleErrorsOccurred OperationNotAllowed "
    "ResourceDeploymentFailure ResourceOperationFailure".split()
)
NOT_ALLOWED = "OperationNotAllowed"  # means a quota, throttling, or a state in which Azure refuses the operation
# The machine exists; only its operating system did not report in time, or an extension failed.
GUEST_FAILURE_CODES = frozenset(
    "OSProvisioningClientError OSProvisioningInternalError OSProvisioningTimedOut VMExtensionHandlerNonTransientError "
    "VMExtensionManagementInternalError VMExtensionProvisioningError VMExtensionProvisioningTimeout "
    "VMAgentStatusCommunicationError".split()
)
# Another operation on the resource, its group or its image is still going on.
BUSY_CODES = frozenset(
    "AnotherOperationInProgress Conflict ConcurrentUpdateError OperationPreempted PutOperationInProgress "
    "ReferencedResourceNotProvisioned ResourceGroupBeingDeleted RetryableError RetryableErrorDueToAnotherOperation "
    "AttachDiskWhileBeingDetached OperationNotAllowedOnVMImageAsVMsBeingProvisioned".split()
)

_NO_CAPACITY = """
    AllocationFailed OverconstrainedAllocationRequest OverconstrainedZonalAllocationRequest SkuNotAvailable
    VMSizeNotAvailable VariablePriceGreaterThanProvidedMaxPrice VMAllocationFailed ZonalAllocationFailed
    ZonalAllocationFailure InsufficientCapacity ReservationCapacityExceeded CapacityNotAvailable"""
_QUOTA_OF_MACHINES = "QuotaExceeded ResourceQuotaExceeded CoreQuotaExceeded"
_QUOTA_OF_OTHERS = """
    NetworkSecurityGroupCountLimitReached PublicIPCountLimitReached ResourceGroupQuotaExceeded
    RoleAssignmentLimitExceeded SnapshotCountExceeded SnapshotLimitReached SubscriptionResourceGroupLimitExceeded
    VirtualNetworkCountLimitReached NetworkSecurityRuleCountLimitReached NicCountLimitReached TooManyTags"""
_THROTTLED = """
    OperationThrottled RequestRateTooLarge ResourceCollectionRequestsThrottled SubscriptionRequestsThrottled
    Throttled TooManyRequests TooManyRequestsReceived"""
_DOWN = """
    DiskProcessingError DiskPreparationError GatewayTimeout InternalError InternalExecutionError InternalOperationError
    InternalServerError NetworkingInternalOperationError ServerTimeout ServiceUnavailable StorageFailure
    TargetDiskBlobAlreadyExists VMStartTimedOut Unavailable"""
_SUBSCRIPTION = """
    InvalidSubscriptionId MissingSubscription SubscriptionNotFound"""
_BLOCKED = """
    AccountDisabled DisallowedOperation NotSupportedForSubscription ReadOnlyDisabledSubscription SpendingLimitReached
    SubscriptionDisabled SubscriptionNotActive VariablePricingFeatureNotEnabledForSubscription
    SubscriptionStateForbidden RegionDoesNotAllowProvisioning LocationNotAvailableForResourceType
    LocationNotAvailableForSubscription"""
_UNREGISTERED = """
    InvalidSubscriptionRegistrationState MissingRegistrationForLocation MissingSubscriptionRegistration
    NoRegisteredProviderFound SubscriptionNotRegistered SubscriptionNotRegisteredForFeature FeatureNotRegistered"""
_LOCKED = "ScopeLocked CannotDeleteLockedResource"

_INVALID_REQUESTS = {  # codes of an invalid request, by the field that is wrong
    "--image": """
        DiskImageNotReady GalleryImageNotFound ImageNotFound ImageVersionDeprecated InvalidImageReference
        MarketplacePurchaseEligibilityFailed OfferNotFound PlatformImageNotFound ResourcePurchaseValidationFailed
        SkuNotFound UserErrorMarketplacePurchase VMMarketplaceInvalidInput VMImageNotFound ImageBlobNotFound
        PublisherNotFound UnsupportedVmGeneration TrustedLaunchNotSupported VhdFileFormatNotSupported""",
    "--instance-type": """
        InvalidVMSize VariablePricingIsNotSupportedForThisVMSize VMSizeDoesntSupportPremiumStorage
        VMSizeDoesNotSupportPremiumStorage LowPriorityNotSupported EphemeralOSDisksNotSupportedForSpotVMs
        AcceleratedNetworkingIsNotSupportedForVirtualMachineSize UnsupportedVMSize""",
    "--region": "InvalidLocation InvalidResourceLocation LocationNotFound LocationNotSupported UnsupportedLocation",
    "--zone": """
        AvailabilityZoneNotSupported InvalidAvailabilityZone InvalidZone ResourceTypeNotSupportAvailabilityZones
        ResourceZoneMismatch""",
    "--max-price": "MaxPriceValueInvalid",
    "--subnet": """
        InvalidSubnet SubnetIsFull SubnetNotFound SubnetsNotInSameVnet SubnetWithDelegationCannotBeUsed VnetNotFound
        InUseSubnetCannotBeDeleted PrivateIPAddressInReservedRange PrivateIPAddressNotInSubnet
        VirtualNetworkNotInSameRegion""",
    "--security-group": """
        InUseNetworkSecurityGroupCannotBeDeleted NetworkSecurityGroupNotInSameRegion SecurityRuleConflict
        SecurityRuleAddressPrefixCountLimitReached SecurityRuleInvalidAddressPrefix""",
    "--disk": "DiskSizeNotSupported InvalidDiskSize ResizeDiskError DiskSizeTooSmall",
    "--volume": """
        AttachedDiskCannotBeDeleted ConflictingUserInput DiskAlreadyAttached DiskNotFound DiskZoneMismatch
        DiskBlobAlreadyInUseByAnotherDisk DiskInUse MaxDataDisksExceeded AttachDiskNotAllowed""",
    "instance": """
        BillingProfileChangeNotAllowed BillingProfileChangeNotAllowedForAllocatedVMs
        EvictionPolicyCanBeSetOnlyOnLowPriorityVirtualMachines InvalidResourceReference
        MaxPriceUpdateRequiresVMToBeDeallocated NicInUse NicReservedForAnotherVm PropertyChangeNotAllowed
        PublicIPAddressCannotBeDeleted VMPriorityCannotBeApplied VMIsNotRunning VMNotRunning
        InUseVirtualNetworkCannotBeDeleted""",
    "machine_role": """
        InvalidRoleDefinitionId PrincipalNotFound PrincipalTypeNotSupported RoleAssignmentExists
        RoleAssignmentNotFound RoleAssignmentUpdateNotPermitted RoleDefinitionDoesNotExist
        RoleDefinitionHasAssignments RoleDefinitionLimitExceeded RoleDefinitionWithSameNameExists
        InvalidCreateRoleAssignmentRequest TenantIdMismatch""",
    "provider": f"""
        ArtifactNotFound ArtifactVersionNotFound BadRequest DnsRecordInUse InvalidApiVersionParameter
        InvalidParameter InvalidParameterValue InvalidRequest InvalidRequestContent InvalidRequestFormat
        InvalidResource InvalidResourceGroup InvalidResourceGroupLocation InvalidResourceName InvalidResourceNamespace
        InvalidResourceType InvalidTag InvalidTags InvalidTagNameCharacters LinkedInvalidPropertyId LocationRequired
        LowPriVMNotSupportedInAvailabilitySet MismatchingResourceSegments NotSupported {NOT_ALLOWED}
        PreconditionFailed RequestDisallowedByPolicy ReservedResourceName ResourceAlreadyExists
        VariablePricingIsNotSupportedForThisAPIVersion VariablePricingIsSupportedOnlyForLowPriorityVirtualMachines
        RequestEntityTooLarge UnsupportedApiVersion PolicyViolation InvalidPolicyParameters""",
}
_REMEDIES = {  # by field, where Azure's message says what is wrong, and not what would be right
    "--image": "See your own: cloudgpu image ls; or name one as publisher:offer:sku:version.",
    "--subnet": "See what there is: az network vnet list",
    "--security-group": "See what there is: az network nsg list",
    "--volume": "See what there is: az disk list",
}
_PORTAL_REMEDY = "Open the subscription in the Azure portal and finish what it asks for, or ask Azure Support."


_REGISTER_REMEDY = (
    "Run: az provider register --namespace Microsoft.Compute (and Microsoft.Network); cloudgpu doctor names them."
)
_QUOTA_REMEDY = "See it and where to raise it: cloudgpu quota --provider azure --region REGION"

ERROR_MAPPINGS = error_mappings(
    (_QUOTA_OF_MACHINES, ErrorMapping(QuotaExceeded, "quota", _QUOTA_REMEDY)),
    (
        _QUOTA_OF_OTHERS,
        ErrorMapping(QuotaExceeded, "quota", "Remove what is not needed there, or ask Azure for a higher limit."),
    ),
    (GUEST_FAILURE_CODES, RETRY_LATER),
    (BUSY_CODES, ErrorMapping(ProviderUnavailable, remedy="Azure is at work on it: run it again in a minute.")),
    (NOT_FOUND, ErrorMapping(InstanceNotFound, "instance")),
    (_UNREGISTERED, ErrorMapping(InvalidRequest, "subscription", _REGISTER_REMEDY)),
    (_SUBSCRIPTION, ErrorMapping(AuthFailed, "subscription", "See those that the login may use: az account list")),
    (_BLOCKED, ErrorMapping(AuthFailed, "subscription", _PORTAL_REMEDY)),
    (CREDENTIAL | DENIED, ErrorMapping(AuthFailed, "credentials")),
    (_LOCKED, ErrorMapping(InvalidRequest, "lock", "Take the lock away (az lock list names it), and run it again.")),
    no_capacity=_NO_CAPACITY,
    throttled=_THROTTLED,
    down=_DOWN,
    invalid=_INVALID_REQUESTS,
    remedies=_REMEDIES,
)
"""Every code that has a meaning for us."""
