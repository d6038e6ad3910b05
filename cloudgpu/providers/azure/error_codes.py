"""What each error code of Azure means for whoever asked: the class of our error, the field it is about, the way out.

Codes and their meaning are from Microsoft's pages "Troubleshoot common Azure deployment errors", "Understand common
error messages when you manage virtual machines", "Error messages for Azure Spot Virtual Machines" and the REST
references of Compute, Network and Resource Manager. A code that is not here is ProviderUnavailable: nothing is known.
"""

from __future__ import annotations

from cloudgpu.errors import AuthFailed, InstanceNotFound, InvalidRequest, ProviderUnavailable, QuotaExceeded
from cloudgpu.providers.shared.errors import RETRY_LATER, Meaning, meanings

# A credential that Azure does not take, and a request that it takes from nobody who may not do it.
CREDENTIAL = frozenset(
    "AuthenticationFailed AuthenticationFailedMissingToken ExpiredAuthenticationToken InvalidAuthenticationToken "
    "InvalidAuthenticationTokenAudience InvalidAuthenticationTokenTenant InvalidAuthenticationInfo".split()
)
DENIED = frozenset(
    "AuthorizationFailed AuthorizationPermissionMismatch Forbidden LinkedAuthorizationFailed "
    "LinkedAccessCheckFailed RequestDisallowedByAzure".split()
)
NOT_FOUND = frozenset("NotFound ParentResourceNotFound ResourceGroupNotFound ResourceNotFound VMNotFound".split())
# Codes with others inside, or that say many things: what is inside, or Azure's sentence, has to tell.
ENVELOPES = frozenset(
    "BadRequest Conflict DeploymentFailed InvalidTemplateDeployment MultipleErrorsOccurred OperationNotAllowed "
    "ResourceDeploymentFailure ResourceOperationFailure".split()
)
NOT_ALLOWED = "OperationNotAllowed"  # a quota, throttling, or a state in which Azure does not do that
# The machine is there: its system has not reported in time, or something that is put on it afterwards failed.
ONLY_INSIDE = frozenset(
    "OSProvisioningClientError OSProvisioningInternalError OSProvisioningTimedOut VMExtensionHandlerNonTransientError "
    "VMExtensionManagementInternalError VMExtensionProvisioningError VMExtensionProvisioningTimeout "
    "VMAgentStatusCommunicationError".split()
)
BUSY = frozenset(
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

_REQUESTS = {  # by the field that the request got wrong
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
_WAYS = {  # where Azure's sentence says what is wrong, and not what would be right
    "--image": "See your own: cloudgpu image ls; or name one as publisher:offer:sku:version.",
    "--subnet": "See what there is: az network vnet list",
    "--security-group": "See what there is: az network nsg list",
    "--volume": "See what there is: az disk list",
}
_PORTAL = "Open the subscription in the Azure portal and finish what it asks for, or ask Azure Support."


_REGISTER = (
    "Run: az provider register --namespace Microsoft.Compute (and Microsoft.Network); cloudgpu doctor names them."
)
_SEE_QUOTA = "See it and where to raise it: cloudgpu quota --provider azure --region REGION"

MEANINGS = meanings(
    (_QUOTA_OF_MACHINES, Meaning(QuotaExceeded, "quota", _SEE_QUOTA)),
    (
        _QUOTA_OF_OTHERS,
        Meaning(QuotaExceeded, "quota", "Remove what is not needed there, or ask Azure for a higher limit."),
    ),
    (ONLY_INSIDE, RETRY_LATER),
    (BUSY, Meaning(ProviderUnavailable, remedy="Azure is at work on it: run it again in a minute.")),
    (NOT_FOUND, Meaning(InstanceNotFound, "instance")),
    (_UNREGISTERED, Meaning(InvalidRequest, "subscription", _REGISTER)),
    (_SUBSCRIPTION, Meaning(AuthFailed, "subscription", "See those that the login may use: az account list")),
    (_BLOCKED, Meaning(AuthFailed, "subscription", _PORTAL)),
    (CREDENTIAL | DENIED, Meaning(AuthFailed, "credentials")),
    (_LOCKED, Meaning(InvalidRequest, "lock", "Take the lock away (az lock list names it), and run it again.")),
    no_capacity=_NO_CAPACITY,
    throttled=_THROTTLED,
    down=_DOWN,
    requests=_REQUESTS,
    remedies=_WAYS,
)
"""Every code that has a meaning for us."""
