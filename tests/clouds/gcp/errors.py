"""Google's errors in Google's shapes: of a request, and inside an operation.

The reasons and sentences are from its documentation of errors and from public reports of them.
"""

from __future__ import annotations

import re
from typing import Any

from tests.clouds.rest import Refusal, Reply

SENTENCES = {  # by reason: status, sentence
    "accessNotConfigured": (
        403,
        "Compute Engine API has not been used in project 123456789012 before or it is disabled.",
    ),
    "alreadyExists": (409, "The resource already exists"),
    "authError": (401, "Request had invalid authentication credentials. Expected OAuth 2 access token."),
    "backendError": (503, "Internal error. Please try again or contact Google Support."),
    "badRequest": (400, "Bad request"),
    "conditionNotMet": (412, "Supplied fingerprint does not match current fingerprint."),
    "forbidden": (403, "Forbidden"),
    "internalError": (500, "Internal error. Please try again or contact Google Support."),
    "invalid": (400, "Invalid value"),
    "invalidResourceUsage": (400, "Invalid resource usage"),
    "notFound": (404, "The resource was not found"),
    "quotaExceeded": (403, "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally."),
    "rateLimitExceeded": (429, "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'."),
    "required": (400, "Required field not specified"),
    "resourceInUseByAnotherResource": (400, "The resource is already being used by another resource"),
    "resourceNotReady": (400, "The resource is not ready"),
    "userProjectAccountClosed": (403, "The billing account for the owning project is disabled in state closed"),
}
BY_STATUS = {401: "authError", 403: "forbidden", 404: "notFound", 429: "rateLimitExceeded", 500: "internalError"}
BY_STATUS |= {503: "backendError", 412: "conditionNotMet", 409: "alreadyExists"}
CANONICAL = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
CANONICAL |= {409: "ALREADY_EXISTS", 412: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
# Codes that come inside an operation: the status and the word that the operation has beside them.
INSIDE = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": (503, "SERVICE UNAVAILABLE"),
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": (503, "SERVICE UNAVAILABLE"),
    "QUOTA_EXCEEDED": (403, "FORBIDDEN"),
    "RESOURCE_NOT_FOUND": (404, "NOT FOUND"),
    "RESOURCE_ALREADY_EXISTS": (409, "CONFLICT"),
    "UNSUPPORTED_OPERATION": (400, "BAD REQUEST"),
    "CONDITION_NOT_MET": (412, "PRECONDITION FAILED"),
    "INTERNAL_ERROR": (500, "INTERNAL SERVER ERROR"),
    "PERMISSIONS_ERROR": (403, "FORBIDDEN"),
}
IN_CAPITALS = re.compile(r"[A-Z][A-Z0-9_]+")


class OperationFailed(Exception):
    """What ends an operation with an error: its code, its sentence, its details."""

    def __init__(self, code: str, message: str = "", details: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message or code)
        self.code, self.message, self.details = code, message or code, details or []

    def fields(self) -> dict[str, Any]:
        """Return the fields of an operation that say it."""
        status, word = INSIDE.get(self.code, (400, "BAD REQUEST"))
        one: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details:
            one["errorDetails"] = self.details
        return {"error": {"errors": [one]}, "httpErrorStatusCode": status, "httpErrorMessage": word}


def is_inside(code: str) -> bool:
    """Say whether a code comes inside an operation: those are in capitals."""
    return bool(IN_CAPITALS.fullmatch(code))


def stockout(project: str, zone: str, kind: str, gpus: str) -> OperationFailed:
    """Return what Google says where it has no machine left (public reports of 2024 and 2026)."""
    metadatas = {"vmType": kind, "attachment": gpus, "zone": zone, "zonesAvailable": ""}
    details = [{"errorInfo": {"domain": "compute.googleapis.com", "reason": "resource_availability"}}]
    details[0]["errorInfo"]["metadatas"] = metadatas  # type: ignore[assignment]
    sentence = f"The zone 'projects/{project}/zones/{zone}' does not have enough resources available to fulfill the "
    return OperationFailed("ZONE_RESOURCE_POOL_EXHAUSTED", f"{sentence}request.  '(resource type:compute)'.", details)


def over_quota(metric: str, limit: float, region: str) -> OperationFailed:
    """Return what Google says over a limit; without a region it is that of all of them."""
    where = f"in region {region}" if region else "globally"
    info: dict[str, Any] = {
        "metricName": f"compute.googleapis.com/{metric.lower()}",
        "limitName": f"{metric.replace('_', '-')}-per-project{'-region' if region else ''}",
        "limit": limit,
        "dimensions": {"region": region} if region else {},
    }
    sentence = f"Quota '{metric}' exceeded.  Limit: {float(limit)} {where}."
    return OperationFailed("QUOTA_EXCEEDED", sentence, [{"quotaInfo": info}])


def reply(refusal: Refusal) -> Reply:
    """Return a request's error as Google says it."""
    reason = refusal.code or BY_STATUS.get(refusal.status, "badRequest" if refusal.status else "internalError")
    status, sentence = SENTENCES.get(reason, (400, reason))
    status, sentence = refusal.status or status, refusal.message or sentence
    error: dict[str, Any] = {
        "code": status,
        "message": sentence,
        "errors": [{"message": sentence, "domain": "global", "reason": reason}],
    }
    if status in CANONICAL:
        error["status"] = CANONICAL[status]
    if reason == "accessNotConfigured":
        info = {"reason": "SERVICE_DISABLED", "domain": "googleapis.com"}
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **info}]
    return Reply(status, {"error": error}, error=reason)
