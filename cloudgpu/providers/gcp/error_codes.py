"""What each error code of Google's means: the class of our error, its field, and its remedy.

Google's codes are in three places: `error.errors[].reason` of an answer (`quotaExceeded`), the ErrorInfo among
`error.details` (`SERVICE_DISABLED`), and `error.errors[].code` inside an operation that has ended (`QUOTA_EXCEEDED`).
Sources: Compute Engine's error catalogue (docs.cloud.google.com/compute/docs/reference/rest/v1/errors), its pages
"Troubleshoot resource availability errors" and "Troubleshooting VM creation", google.api.error_reason, and the codes
that public programs handle. A code that is not here is read by the answer's HTTP status, else it is
ProviderUnavailable: nothing is known.
"""

from __future__ import annotations

from cloudgpu.errors import AuthFailed, InstanceNotFound, InvalidRequest, QuotaExceeded
from cloudgpu.providers.shared.errors import ErrorMapping, error_mappings

# Codes of AuthFailed: credentials that Google does not accept, a missing permission (DENIED), an API that is not
# enabled (DISABLED), a project without billing.
CREDENTIAL = frozenset(
    "authError expired UNAUTHENTICATED ACCESS_TOKEN_EXPIRED ACCESS_TOKEN_SCOPE_INSUFFICIENT "
    "ACCESS_TOKEN_TYPE_UNSUPPORTED ACCOUNT_STATE_INVALID ACCOUNT_TYPE_UNSUPPORTED API_KEY_INVALID CREDENTIALS_MISSING "
    "CREDENTIAL_ANDROID_APP_INVALID CREDENTIAL_TYPE_UNSUPPORTED JWT_TOKEN_INVALID OVERLOADED_CREDENTIALS "
    "SESSION_COOKIE_INVALID insufficientPermissions".split()
)
DENIED = frozenset("forbidden accessDenied PERMISSIONS_ERROR PERMISSION_DENIED IAM_PERMISSION_DENIED".split())
DISABLED = frozenset("accessNotConfigured SERVICE_DISABLED".split())
BILLING = frozenset(
    "accountDisabled billingNotEnabled BILLING_DISABLED CONSUMER_INVALID CONSUMER_SUSPENDED GCP_SUSPENDED".split()
)
_FORBIDDEN = """
    API_KEY_ANDROID_APP_BLOCKED API_KEY_HTTP_REFERRER_BLOCKED API_KEY_IOS_APP_BLOCKED API_KEY_IP_ADDRESS_BLOCKED
    API_KEY_SERVICE_BLOCKED ENDPOINT_USAGE_RESTRICTION_VIOLATED LOCATION_ORG_POLICY_VIOLATED LOCATION_POLICY_VIOLATED
    LOCATION_TAX_POLICY_VIOLATED MCP_SERVER_DISABLED MISSING_ORIGIN ORG_RESTRICTION_HEADER_INVALID
    ORG_RESTRICTION_VIOLATION RESOURCE_PROJECT_INVALID RESOURCE_USAGE_RESTRICTION_VIOLATED SECURITY_POLICY_VIOLATED
    SERVICE_NOT_VISIBLE TLS_CIPHER_RESTRICTION_VIOLATED TLS_ORG_POLICY_VIOLATED USER_BLOCKED_BY_ADMIN
    USER_PROJECT_DENIED"""

_NO_CAPACITY = """
    ZONE_RESOURCE_POOL_EXHAUSTED ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS REGION_RESOURCE_POOL_EXHAUSTED
    RESOURCE_POOL_EXHAUSTED resourcePoolExhausted insufficientCapacity VM_MIN_COUNT_NOT_REACHED
    SPECIFIC_ALLOCATION_NOT_FOUND IP_SPACE_EXHAUSTED IP_SPACE_EXHAUSTED_WITH_DETAILS CPU_PLATFORM_MISMATCH"""
_QUOTA = """
    EMULATOR_QUOTA_EXCEEDED LIMIT_EXCEEDED QUOTA_EXCEEDED RESOURCE_EXHAUSTED RESOURCE_QUOTA_EXCEEDED limitExceeded
    quotaExceeded"""
_THROTTLED = """
    rateLimitExceeded userRateLimitExceeded RATE_LIMIT_EXCEEDED RESOURCE_OPERATION_RATE_EXCEEDED
    CONCURRENT_OPERATIONS_QUOTA_EXCEEDED operationQuotaExceeded dailyLimitExceeded"""
_DOWN = """
    backendError internalError INTERNAL_ERROR INTERNAL serviceUnavailable UNAVAILABLE
    SERVICE_UNAVAILABLE_FOR_LOCATION CANCELLED CLOUD_OPERATION_FAILED DATA_LOSS DEADLINE_EXCEEDED UNKNOWN"""
_NOT_FOUND = "notFound NOT_FOUND RESOURCE_NOT_FOUND"
_REQUESTS = {  # by the field that the request got wrong
    "--image": "IMAGE_NOT_FOUND INVALID_MACHINE_IMAGE_UPDATE",
    "--subnet": "NETWORK_NOT_FOUND SUBNETWORK_NOT_FOUND",
    "project": "PROJECT_NOT_FOUND PROJECT_CONSTRAINT_VIOLATED CONDITION_NOT_MET",
    "instance": """
        resourceNotReady RESOURCE_NOT_READY resourceInUseByAnotherResource RESOURCE_IN_USE_BY_ANOTHER_RESOURCE
        RESOURCE_IN_USE alreadyExists ALREADY_EXISTS RESOURCE_ALREADY_EXISTS conflict duplicate ABORTED
        operationInProgress invalidResourceUsage""",
    "service_account": "SERVICE_ACCOUNT_NOT_FOUND SERVICE_ACCOUNT_ACCESS_DENIED",
    "provider": """
        conditionNotMet invalid invalidParameter invalidQuery badRequest required parseError unknownField notImplemented
        unsupportedOperation failedPrecondition methodNotAllowed FAILED_PRECONDITION FIELD_SIZE_TOO_LARGE
        INVALID_ARGUMENT INVALID_FIELD_VALUE INVALID_USAGE MISSING_REQUIRED_FIELD OUT_OF_RANGE
        SYSTEM_PARAMETER_UNSUPPORTED UNIMPLEMENTED UNSUPPORTED_OPERATION""",
}
_REMEDIES = {
    "--image": "See what there is: cloudgpu image ls, or gcloud compute images list",
    "--subnet": "See what there is: gcloud compute networks list; name one with --subnet, or `network` in config.toml.",
}
_POLICY_REMEDY = "Ask whoever keeps the project's organisation policies and service perimeters."
STALE = "conditionNotMet"  # with status 412: labels or metadata were changed since they were read
ALREADY_EXISTS = frozenset("alreadyExists ALREADY_EXISTS RESOURCE_ALREADY_EXISTS conflict duplicate".split())
NOT_READY = frozenset("resourceNotReady RESOURCE_NOT_READY operationInProgress".split())


ERROR_MAPPINGS = error_mappings(
    (
        _QUOTA,
        ErrorMapping(QuotaExceeded, "quota", "See it and ask for more: cloudgpu quota --provider gcp --region REGION"),
    ),
    (_NOT_FOUND, ErrorMapping(InvalidRequest, "provider")),
    (CREDENTIAL | DENIED | DISABLED | BILLING, ErrorMapping(AuthFailed, "credentials")),
    (_FORBIDDEN, ErrorMapping(AuthFailed, "project", _POLICY_REMEDY)),
    no_capacity=_NO_CAPACITY,
    throttled=_THROTTLED,
    down=_DOWN,
    invalid=_REQUESTS,
    remedies=_REMEDIES,
)
"""The meaning of each known code."""

NO_MACHINE = ErrorMapping(InstanceNotFound, "instance")
NOT_FOUND = frozenset(_NOT_FOUND.split())

# For an answer without a known code: the code to use, by its HTTP status; any other status is ProviderUnavailable.
CODE_BY_STATUS = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "conflict",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
    500: "internalError",
    501: "notImplemented",
    502: "backendError",
    503: "backendError",
    504: "backendError",
}
