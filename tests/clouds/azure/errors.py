"""Azure's errors: the status that goes with a code, and the JSON that says it."""

from __future__ import annotations

from typing import Any

from tests.clouds.rest import Reply

# As public reports and the REST reference have them. A quota and a size that is not offered are 409 like a conflict.
STATUSES = {
    "AllocationFailed": 200,  # inside an operation only
    "AuthorizationFailed": 403,
    "Conflict": 409,
    "ExpiredAuthenticationToken": 401,
    "ImageNotFound": 404,
    "InternalServerError": 500,
    "InUseNetworkSecurityGroupCannotBeDeleted": 400,
    "InUseSubnetCannotBeDeleted": 400,
    "InvalidAuthenticationToken": 401,
    "InvalidAuthenticationTokenTenant": 401,
    "InvalidParameter": 400,
    "InvalidRequestContent": 400,
    "LinkedAuthorizationFailed": 403,
    "MissingSubscriptionRegistration": 409,
    "NicInUse": 400,
    "NoRegisteredProviderFound": 400,
    "OperationNotAllowed": 409,
    "OverconstrainedAllocationRequest": 200,
    "PlatformImageNotFound": 404,
    "PrincipalNotFound": 400,
    "PropertyChangeNotAllowed": 409,
    "PublicIPAddressCannotBeDeleted": 400,
    "QuotaExceeded": 409,
    "ReadOnlyDisabledSubscription": 409,
    "ResourceGroupBeingDeleted": 409,
    "ResourceGroupNotFound": 404,
    "ResourceNotFound": 404,
    "RoleAssignmentExists": 409,
    "RoleAssignmentNotFound": 404,
    "RoleDefinitionDoesNotExist": 404,
    "RoleDefinitionHasAssignments": 400,
    "RoleDefinitionWithSameNameExists": 409,
    "ServiceUnavailable": 503,
    "SkuNotAvailable": 409,
    "SubscriptionNotFound": 404,
    "SubscriptionNotRegistered": 409,
    "TooManyRequests": 429,
    "ZonalAllocationFailed": 200,
}
MESSAGES = {
    "AllocationFailed": (
        "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. "
        "Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance"
    ),
    "OverconstrainedAllocationRequest": (
        "Allocation failed. VM(s) with the following constraints cannot be allocated, because the condition is too "
        "restrictive. Please remove some constraints and try again."
    ),
    "ZonalAllocationFailed": (
        "Allocation failed. We do not have sufficient capacity for the requested VM size in this zone. "
        "Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance"
    ),
    "SkuNotAvailable": (
        "The requested VM size is currently not available in this location. Please try another size or deploy to a "
        "different location or different zone."
    ),
    "TooManyRequests": "The request is being throttled as the limit has been reached for operation type.",
    "ServiceUnavailable": "The service is temporarily unavailable.",
}


def said(code: str, message: str = "", status: int = 0, **headers: str) -> Reply:
    """Return an error as ARM says it; a code that only operations have is a 409 when a call says it."""
    usual = STATUSES.get(code, 400)
    error: dict[str, Any] = {"code": code, "message": message or MESSAGES.get(code, code)}
    found = status or (409 if usual == 200 else usual)
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    challenge = {"WWW-Authenticate": 'Bearer error="invalid_token"'} if found == 401 else {}
    return Reply(found, {"error": error}, {**challenge, **named}, code)
