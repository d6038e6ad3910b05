"""Every reason that Google publishes has its meaning, and every error its way out."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
import requests
from google.api import error_reason_pb2
from google.api_core.exceptions import from_http_response
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError
from google.rpc import code_pb2

from cloudgpu.errors import (
    AuthFailed,
    InstanceNotFound,
    InvalidRequest,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    RateLimited,
)
from cloudgpu.providers.gcp.error_codes import CODE_BY_STATUS, ERROR_MAPPINGS
from cloudgpu.providers.gcp.errors import CallContext, code_of, is_gone, operation_error, translate_error
from cloudgpu.providers.shared.errors import MAX_SENTENCE

NOW = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)
WHO = "the default credentials"
ASKED = CallContext("compute.instances.insert", "us-central1-a", "lab", "cloudgpu-test", WHO, NOW, "v")
# Reasons of an answer: "Standard error responses" of Google's JSON APIs, those that Compute Engine's pages name.
REASONS = """
    accessNotConfigured accountDisabled alreadyExists authError backendError badRequest conditionNotMet conflict
    dailyLimitExceeded duplicate expired failedPrecondition forbidden insufficientPermissions internalError invalid
    invalidParameter invalidQuery limitExceeded methodNotAllowed notFound notImplemented operationInProgress parseError
    quotaExceeded rateLimitExceeded required resourceInUseByAnotherResource resourceNotReady serviceUnavailable
    unknownField unsupportedOperation userRateLimitExceeded""".split()
# Codes inside operations: Compute Engine's error catalogue, "Troubleshoot resource availability errors",
# "Troubleshooting VM creation", and those that public programs handle.
CODES = """
    CONDITION_NOT_MET CPU_PLATFORM_MISMATCH FIELD_SIZE_TOO_LARGE INTERNAL_ERROR INVALID_FIELD_VALUE
    INVALID_MACHINE_IMAGE_UPDATE INVALID_USAGE IP_SPACE_EXHAUSTED LIMIT_EXCEEDED MISSING_REQUIRED_FIELD
    NETWORK_NOT_FOUND PERMISSIONS_ERROR PROJECT_CONSTRAINT_VIOLATED PROJECT_NOT_FOUND QUOTA_EXCEEDED
    REGION_RESOURCE_POOL_EXHAUSTED RESOURCE_ALREADY_EXISTS RESOURCE_IN_USE_BY_ANOTHER_RESOURCE RESOURCE_NOT_FOUND
    RESOURCE_NOT_READY RESOURCE_OPERATION_RATE_EXCEEDED RESOURCE_POOL_EXHAUSTED SERVICE_ACCOUNT_ACCESS_DENIED
    SERVICE_ACCOUNT_NOT_FOUND SERVICE_UNAVAILABLE_FOR_LOCATION UNSUPPORTED_OPERATION VM_MIN_COUNT_NOT_REACHED
    ZONE_RESOURCE_POOL_EXHAUSTED ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS""".split()


def answered(status, body, headers=None):
    """Return what Google's client raises for an answer."""
    response = requests.Response()
    response.status_code = status
    response._content = (body if isinstance(body, str) else json.dumps(body)).encode()
    response.headers.update({"Content-Type": "application/json", **(headers or {})})
    response.request = requests.Request("POST", "http://127.0.0.1/compute/v1/x").prepare()
    return from_http_response(response)


def refused(status, reason="", message="Google says so.", *, details=(), headers=None, asked=ASKED):
    said = {"code": status, "message": message, "details": list(details)}
    if reason:
        said["errors"] = [{"reason": reason, "domain": "global", "message": message}]
    return translate_error(answered(status, {"error": said}, headers), asked)


def test_no_published_reason_is_without_a_meaning():
    published = set(error_reason_pb2.ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"}
    of_calls = set(code_pb2.Code.keys()) - {"OK"}
    assert sorted((published | of_calls | {*REASONS, *CODES}) - set(ERROR_MAPPINGS)) == []


def test_no_meaning_is_invented():
    """A code that stands nowhere here would be one that nobody has seen."""
    published = {*error_reason_pb2.ErrorReason.keys(), *code_pb2.Code.keys(), *REASONS, *CODES}
    elsewhere = """
        CLOUD_OPERATION_FAILED CONCURRENT_OPERATIONS_QUOTA_EXCEEDED IMAGE_NOT_FOUND IP_SPACE_EXHAUSTED_WITH_DETAILS
        RESOURCE_IN_USE SPECIFIC_ALLOCATION_NOT_FOUND SUBNETWORK_NOT_FOUND accessDenied billingNotEnabled
        insufficientCapacity invalidResourceUsage operationQuotaExceeded resourcePoolExhausted""".split()
    assert sorted(set(ERROR_MAPPINGS) - published - set(elsewhere)) == []


def test_an_unknown_code_is_no_knowledge():
    fault = refused(418, "teapot")
    assert type(fault) is ProviderUnavailable
    assert "teapot" in fault.message
    assert type(operation_error({"error": {"errors": [{"code": "NEW", "message": "x"}]}}, ASKED)) is ProviderUnavailable


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, AuthFailed),
        (403, AuthFailed),
        (404, InstanceNotFound),
        (409, InvalidRequest),
        (412, InvalidRequest),
        (429, RateLimited),
        (500, ProviderUnavailable),
        (503, ProviderUnavailable),
    ],
)
def test_an_answer_without_a_reason_is_read_by_its_status(status, kind):
    fault = refused(status)
    assert type(fault) is kind
    assert code_of(fault) == CODE_BY_STATUS[status] or kind is AuthFailed


@pytest.mark.parametrize(
    ("status", "reason", "kind", "field"),
    [
        (403, "quotaExceeded", QuotaExceeded, "quota"),
        (403, "rateLimitExceeded", RateLimited, "provider"),
        (403, "accessNotConfigured", AuthFailed, "project"),
        (403, "billingNotEnabled", AuthFailed, "project"),
        (403, "forbidden", AuthFailed, "permission"),
        (401, "authError", AuthFailed, "credentials"),
        (400, "resourceInUseByAnotherResource", InvalidRequest, "instance"),
    ],
)
def test_a_reason_says_more_than_its_status(status, reason, kind, field):
    fault = refused(status, reason)
    assert (type(fault), fault.field) == (kind, field)
    assert fault.message.endswith(".")


def test_a_reason_among_the_details_is_heard_too():
    disabled = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED"}
    fault = refused(403, "forbidden", details=[disabled])
    assert fault.field in ("project", "permission")
    alone = refused(403, details=[disabled])
    assert alone.next == "Run: gcloud services enable compute.googleapis.com --project cloudgpu-test"


def test_a_missing_permission_is_named_as_google_names_it():
    fault = refused(403, "forbidden", "Required 'compute.disks.create' permission for 'projects/cloudgpu-test'")
    assert fault.value == "compute.disks.create"
    assert refused(403, "forbidden", "no").value == "compute.instances.create"


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("projects/p/zones/us-central1-a/instances/cg-1", InstanceNotFound),
        ("projects/p", InvalidRequest),
        ("projects/p/zones/us-central1-q", InvalidRequest),
    ],
)
def test_only_a_machine_that_is_missing_is_gone(named, kind):
    """Google answers for a project that there is not as for a machine: then nothing is known of it."""
    asked = CallContext("compute.instances.get", "us-central1-a", "lab", "p", "x", NOW)
    assert type(refused(404, "notFound", f"The resource '{named}' was not found", asked=asked)) is kind


def test_what_is_not_there_is_no_machine_elsewhere():
    asked = CallContext("compute.firewalls.get", "", "lab", "p", "x", NOW)
    fault = refused(404, "notFound", asked=asked)
    assert type(fault) is InvalidRequest
    assert is_gone(fault)


def test_a_wait_that_google_names_is_kept():
    assert refused(429, "rateLimitExceeded", headers={"Retry-After": "12"}).retry_after == 12
    assert refused(429, "rateLimitExceeded", headers={"Retry-After": "1e9"}).retry_after == 86_400
    assert refused(429, "rateLimitExceeded", headers={"Retry-After": "\u00b2"}).retry_after is None
    assert refused(429, "rateLimitExceeded").retry_after is None


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        (["ZONE_RESOURCE_POOL_EXHAUSTED"], NoCapacity),
        (["VM_MIN_COUNT_NOT_REACHED", "QUOTA_EXCEEDED"], QuotaExceeded),
        (["NEVER_SEEN", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"], NoCapacity),
        (["PERMISSIONS_ERROR"], AuthFailed),
        (["RESOURCE_OPERATION_RATE_EXCEEDED"], RateLimited),
    ],
)
def test_an_operation_tells_what_says_most(codes, kind):
    operation = {"status": "DONE", "error": {"errors": [{"code": one, "message": "no"} for one in codes]}}
    fault = operation_error(operation, ASKED)
    assert type(fault) is kind


def test_an_operation_that_did_not_fail_is_no_error():
    assert operation_error({"status": "DONE"}, ASKED) is None
    assert operation_error({"status": "DONE", "httpErrorStatusCode": 200}, ASKED) is None
    assert type(operation_error({"httpErrorStatusCode": 503, "httpErrorMessage": "busy"}, ASKED)) is ProviderUnavailable


def of_metadata(said):
    """Return what google.auth raises where the metadata server gives no token (compute_engine/credentials.py)."""
    error = RefreshError(TransportError(f"Failed to retrieve the token. {said}"))
    error.__cause__ = error.args[0]
    return error


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (requests.ConnectionError("http://10.0.0.7 refused"), ProviderUnavailable),
        (requests.Timeout("slow"), ProviderUnavailable),
        (TransportError("nobody"), ProviderUnavailable),
        (json.JSONDecodeError("page of a proxy", "<html>", 0), ProviderUnavailable),
        (DefaultCredentialsError("secret-token"), AuthFailed),
        (RefreshError("secret-token"), AuthFailed),
        (RefreshError("secret-token", retryable=True), ProviderUnavailable),
        (RefreshError("<html>502 Bad Gateway secret-token</html>"), ProviderUnavailable),
        (RefreshError("Unable to acquire impersonated credentials", '{"error": {"code": 503}}'), ProviderUnavailable),
        (RefreshError("Unable to acquire impersonated credentials", '{"error": {"code": 403}}'), AuthFailed),
        (of_metadata("Status: 503 Response: busy"), ProviderUnavailable),
        (of_metadata("Status: 429 Response: slow down"), ProviderUnavailable),
        (of_metadata("Compute Engine Metadata server unavailable"), ProviderUnavailable),
        (of_metadata("Status: 404 Response: no service account"), AuthFailed),
    ],
)
def test_what_comes_in_place_of_an_answer(raised, kind):
    fault = translate_error(raised, ASKED)
    assert type(fault) is kind
    assert "secret-token" not in f"{fault.message} {fault.next} {fault.value}"


def test_a_page_that_is_no_answer_is_not_shown():
    fault = translate_error(answered(502, "<html>internal proxy 10.0.0.7</html>"), ASKED)
    assert type(fault) is ProviderUnavailable
    assert len(fault.message) < MAX_SENTENCE + 200


@pytest.mark.parametrize("page", ["", "<html>404 Not Found</html>"])
def test_a_proxy_that_finds_nothing_says_nothing_of_a_machine(page):
    assert type(translate_error(answered(404, page), ASKED)) is ProviderUnavailable


@pytest.mark.parametrize(
    ("there", "field"), [("12:00:00", "clock"), ("09:00:00", "clock"), ("11:01:00", "credentials")]
)
def test_a_wrong_clock_shows_in_the_time_of_an_answer_that_refuses_credentials(there, field):
    fault = refused(401, "authError", headers={"Date": f"Fri, 20 Nov 2026 {there} GMT"})
    assert (type(fault), fault.field) == (AuthFailed, field)
    assert ("11:00 UTC here" in fault.message) == (field == "clock")
    assert refused(403, "forbidden", headers={"Date": f"Fri, 20 Nov 2026 {there} GMT"}).field == "permission"


def test_a_key_that_google_refuses_for_its_time_is_the_clock():
    says = "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
    fault = translate_error(RefreshError(f"('invalid_grant: {says}', {{'error': 'invalid_grant'}})"), ASKED)
    assert (type(fault), fault.field) == (AuthFailed, "clock")


def test_a_defect_of_ours_is_not_hidden():
    assert translate_error(KeyError("zone"), ASKED) is None
