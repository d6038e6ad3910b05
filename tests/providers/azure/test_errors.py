"""Every error code that Azure documents for what we call has its meaning, and every error its way out."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    ResourceExistsError,
    SerializationError,
    ServiceRequestError,
)

from cloudgpu.errors import (
    AuthFailed,
    InstanceNotFound,
    InvalidRequest,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    RateLimited,
)
from cloudgpu.providers.azure.error_codes import ERROR_MAPPINGS
from cloudgpu.providers.azure.errors import CallContext, code_of, translated

NOW = datetime(2026, 11, 21, tzinfo=UTC)

# "Troubleshoot common Azure deployment errors": all of its table.
OF_DEPLOYMENTS = """
    AccountNameInvalid AccountPropertyCannotBeSet AllocationFailed AnotherOperationInProgress AuthorizationFailed
    BadRequest Conflict DeploymentActiveAndUneditable DeploymentFailedCleanUp DeploymentNameInvalidCharacters
    DeploymentNameLengthLimitExceeded DeploymentFailed DeploymentQuotaExceeded DeploymentJobSizeExceeded DnsRecordInUse
    ImageNotFound InaccessibleImage InternalServerError InUseSubnetCannotBeDeleted InvalidAuthenticationTokenTenant
    InvalidContentLink InvalidDeploymentLocation InvalidParameter InvalidRequestContent InvalidRequestFormat
    InvalidResourceLocation InvalidResourceNamespace InvalidResourceReference InvalidResourceType
    InvalidSubscriptionRegistrationState InvalidTemplate InvalidTemplateDeployment InvalidTemplateCircularDependency
    JobSizeExceeded LinkedAuthorizationFailed LinkedInvalidPropertyId LocationRequired MismatchingResourceSegments
    MissingRegistrationForLocation MissingSubscriptionRegistration NoRegisteredProviderFound NotFound
    OperationNotAllowed OperationNotAllowedOnVMImageAsVMsBeingProvisioned ParentResourceNotFound PasswordTooLong
    PrivateIPAddressInReservedRange PrivateIPAddressNotInSubnet PropertyChangeNotAllowed PublicIPCountLimitReached
    RegionDoesNotAllowProvisioning RequestDisallowedByPolicy ReservedResourceName ResourceGroupBeingDeleted
    ResourceGroupNotFound ResourceNotFound ResourceQuotaExceeded SkuNotAvailable StorageAccountAlreadyExists
    StorageAccountAlreadyTaken StorageAccountInAnotherResourceGroup StorageAccountNotFound SubnetsNotInSameVnet
    SubnetIsFull SubscriptionNotFound SubscriptionNotRegistered SubscriptionRequestsThrottled
    TemplateResourceCircularDependency TooManyTargetResourceGroups""".split()
# "Understand common error messages when you manage virtual machines": those of managed disks, networks and extensions.
OF_MACHINES = """
    ArtifactNotFound ArtifactVersionNotFound AttachDiskWhileBeingDetached ConflictingUserInput DiskImageNotReady
    DiskPreparationError DiskProcessingError ImageBlobNotFound InternalOperationError NetworkingInternalOperationError
    NotSupported OperationNotAllowed DiskBlobAlreadyInUseByAnotherDisk AcquireDiskLeaseFailed""".split()
# "Error messages for Azure Spot Virtual Machines and scale sets": all but those of moves and scale sets.
OF_SPOT = """
    BillingProfileChangeNotAllowed BillingProfileChangeNotAllowedForAllocatedVMs EphemeralOSDisksNotSupportedForSpotVMs
    EvictionPolicyCanBeSetOnlyOnLowPriorityVirtualMachines LowPriVMNotSupportedInAvailabilitySet MaxPriceValueInvalid
    MaxPriceUpdateRequiresVMToBeDeallocated VMPriorityCannotBeApplied VariablePriceGreaterThanProvidedMaxPrice
    VariablePricingFeatureNotEnabledForSubscription VariablePricingIsNotSupportedForThisAPIVersion
    VariablePricingIsNotSupportedForThisVMSize VariablePricingIsSupportedOnlyForLowPriorityVirtualMachines""".split()
# "Troubleshoot allocation failures", "Troubleshoot Azure RBAC", and public reports of what launches met.
OF_OTHERS = """
    ZonalAllocationFailed OverconstrainedAllocationRequest OverconstrainedZonalAllocationRequest QuotaExceeded
    OperationPreempted RetryableError ReferencedResourceNotProvisioned OSProvisioningTimedOut ScopeLocked
    TooManyRequests ServiceUnavailable ExpiredAuthenticationToken InvalidAuthenticationToken AuthenticationFailed
    ReadOnlyDisabledSubscription SubscriptionDisabled PlatformImageNotFound RoleAssignmentExists PrincipalNotFound
    RoleAssignmentUpdateNotPermitted InvalidLocation SecurityRuleConflict NicInUse""".split()
MEAN_NOTHING = {  # nothing is known: ProviderUnavailable, on purpose
    **dict.fromkeys(
        "AccountNameInvalid AccountPropertyCannotBeSet StorageAccountAlreadyExists StorageAccountAlreadyTaken "
        "StorageAccountInAnotherResourceGroup StorageAccountNotFound AcquireDiskLeaseFailed".split(),
        "of storage accounts, which are not used",
    ),
    **dict.fromkeys(
        "DeploymentActiveAndUneditable DeploymentFailed DeploymentFailedCleanUp DeploymentJobSizeExceeded "
        "DeploymentNameInvalidCharacters DeploymentNameLengthLimitExceeded DeploymentQuotaExceeded InvalidContentLink "
        "InvalidDeploymentLocation InvalidTemplate InvalidTemplateCircularDependency InvalidTemplateDeployment "
        "JobSizeExceeded TemplateResourceCircularDependency TooManyTargetResourceGroups".split(),
        "of templates, which are not used",
    ),
    "InaccessibleImage": "of containers",
    "PasswordTooLong": "no machine has a password",
}


def refusal(code, message="No.", status=400, kind=HttpResponseError, headers=None, **inside):
    """Return what the SDK raises for an answer with this error."""
    body = json.dumps({"error": {"code": code, "message": message, **inside}})
    response = SimpleNamespace(
        status_code=status, reason="No", headers=headers or {}, text=lambda: body, content_type="application/json"
    )
    return kind(message=message, response=response)


def said(code, message="No.", status=400, *, field=None, **more):
    asked = CallContext("Microsoft.Compute/virtualMachines/write", "eastus", "lab", NOW, "it", field)
    return translated(refusal(code, message, status, **more), asked)


@pytest.mark.parametrize("code", [*OF_DEPLOYMENTS, *OF_MACHINES, *OF_SPOT, *OF_OTHERS])
def test_every_documented_code_has_a_meaning(code):
    assert (code in ERROR_MAPPINGS) is (code not in MEAN_NOTHING)


@pytest.mark.parametrize(
    ("code", "status", "kind", "field"),
    [
        ("AllocationFailed", 200, NoCapacity, "offer"),
        ("SkuNotAvailable", 409, NoCapacity, "offer"),
        ("VariablePriceGreaterThanProvidedMaxPrice", 409, NoCapacity, "offer"),
        ("QuotaExceeded", 409, QuotaExceeded, "quota"),
        ("PublicIPCountLimitReached", 400, QuotaExceeded, "quota"),
        ("TooManyRequests", 429, RateLimited, "provider"),
        ("ResourceNotFound", 404, InstanceNotFound, "instance"),
        ("ImageNotFound", 404, InvalidRequest, "--image"),
        ("ScopeLocked", 409, InvalidRequest, "lock"),
        ("MissingSubscriptionRegistration", 409, InvalidRequest, "subscription"),
        ("AnotherOperationInProgress", 409, ProviderUnavailable, "provider"),
        ("InternalServerError", 500, ProviderUnavailable, "provider"),
        ("SubscriptionNotFound", 404, AuthFailed, "subscription"),
        ("ReadOnlyDisabledSubscription", 409, AuthFailed, "subscription"),
        ("SomethingNew", 404, ProviderUnavailable, "provider"),
        ("SomethingNew", 429, RateLimited, "provider"),
    ],
)
def test_the_code_decides_and_not_the_status(code, status, kind, field):
    found = said(code, status=status)
    assert type(found) is kind
    assert (found.field, found.value) == (field, "it")


def test_a_conflict_of_the_sdk_is_never_read_as_already_there():
    sentence = "Operation could not be completed as it results in exceeding approved standardNCASv3Family Cores quota."
    found = said("OperationNotAllowed", sentence, 409, kind=ResourceExistsError)
    assert type(found) is QuotaExceeded
    assert "cloudgpu quota --provider azure --region eastus" in found.next
    assert type(said("OperationNotAllowed", "The VM is marked for deletion.", 409)) is InvalidRequest
    assert type(said("OperationNotAllowed", "Too many requests.", 429)) is RateLimited


def test_what_is_inside_an_error_tells_more_than_its_envelope():
    details = [{"code": "ZonalAllocationFailed", "message": "Allocation failed. Read more there."}]
    found = said("DeploymentFailed", details=details)
    assert type(found) is NoCapacity
    assert found.message.endswith("Allocation failed (ZonalAllocationFailed).")


def test_what_is_not_found_of_an_option_is_a_fault_of_that_option():
    found = said("ResourceNotFound", status=404, field="--subnet")
    assert (type(found), found.field) == (InvalidRequest, "--subnet")


def test_how_long_to_wait_is_read():
    assert said("TooManyRequests", status=429, headers={"Retry-After": "17"}).retry_after == 17.0


def test_a_missing_permission_is_named():
    sentence = (
        "The client 'x' does not have authorization to perform action 'Microsoft.Compute/disks/write' over scope '/y'."
    )
    found = said("AuthorizationFailed", sentence, 403)
    assert (type(found), found.value) == (AuthFailed, "Microsoft.Compute/disks/write")
    assert "cloudgpu doctor" in found.next


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token"), AuthFailed, "There are no"),
        (ClientAuthenticationError("AADSTS7000215: Invalid client secret hunter2"), AuthFailed, "(AADSTS7000215)"),
        (ClientAuthenticationError("Azure CLI: AADSTS90033: A transient error"), ProviderUnavailable, "(AADSTS90033)"),
        (ClientAuthenticationError("AADSTS700024: It is late"), AuthFailed, "clock of this machine is wrong"),
        (ServiceRequestError("Connection refused"), ProviderUnavailable, "did not answer"),
        (DecodeError("<html>"), ProviderUnavailable, "something that is not an answer"),
        (refusal("ExpiredAuthenticationToken", status=401, kind=ClientAuthenticationError), AuthFailed, "have expired"),
    ],
)
def test_what_is_no_answer_is_said_without_what_it_held(error, kind, words):
    found = translated(error, CallContext("write", "eastus", "lab", NOW))
    assert type(found) is kind
    assert words in found.message
    assert "hunter2" not in str(found.as_dict())
    assert "<html>" not in found.message


def test_a_login_that_nobody_answered_is_no_login_that_is_missing():
    error = ClientAuthenticationError("Authentication failed: Connection refused")
    error.__cause__ = ServiceRequestError("Connection refused")
    found = translated(error, CallContext("write", "eastus", "lab", NOW))
    assert (type(found), found.message) == (
        ProviderUnavailable,
        "Entra ID did not answer the login of account lab: Connection refused.",
    )


def test_what_the_sdk_logs_of_a_failed_login_is_on_nobodys_stderr():
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("azure").handlers)


def test_the_credentials_of_the_environment_are_named_only_where_all_of_them_are_set(monkeypatch):
    for name in (
        "IDENTITY_ENDPOINT",
        "MSI_ENDPOINT",
        "AZURE_POD_IDENTITY_AUTHORITY_HOST",
        "AZURE_FEDERATED_TOKEN_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_CLIENT_ID", "c")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "s")
    monkeypatch.delenv("AZURE_TENANT_ID", raising=False)  # azure-identity goes on to az login without it
    assert said("ExpiredAuthenticationToken", status=401).value == "the default credentials of this machine"
    monkeypatch.setenv("AZURE_TENANT_ID", "t")
    assert said("ExpiredAuthenticationToken", status=401).value == "AZURE_CLIENT_ID of the environment"


@pytest.mark.parametrize(("hours", "field"), [(1, "clock"), (-1, "clock"), (0, "credentials")])
def test_a_wrong_clock_shows_in_the_time_of_an_answer_that_refuses_credentials(hours, field):
    there = {"Date": format_datetime(NOW + timedelta(hours=hours), usegmt=True)}
    found = said("ExpiredAuthenticationToken", status=401, headers=there)
    assert (type(found), found.field) == (AuthFailed, field)
    assert said("AuthorizationFailed", status=403, headers=there).field == "permission"


def test_a_defect_of_ours_is_no_fault_of_azure():
    assert translated(SerializationError("x"), CallContext("write", "eastus", "lab", NOW)) is None
    assert translated(KeyError("x"), CallContext("write", "eastus", "lab", NOW)) is None


def test_the_code_of_an_error_of_ours_can_be_read_back():
    fault = NoCapacity("no")
    assert code_of(fault) == ""
    fault.__cause__ = refusal("AllocationFailed")
    assert code_of(fault) == "AllocationFailed"
