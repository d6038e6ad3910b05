"""Maps what boto3 raises to the error tree, code by code."""

from __future__ import annotations

from typing import Any

from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    RateLimited,
)

CODES: dict[str, type[CloudgpuError]] = {
    "InsufficientInstanceCapacity": NoCapacity,
    "VcpuLimitExceeded": QuotaExceeded,
    "RequestLimitExceeded": RateLimited,
    "UnauthorizedOperation": AuthFailed,
    "InvalidInstanceID.NotFound": InstanceNotFound,
    "InvalidParameterValue": InvalidRequest,
}


def translated(
    error: Exception, *, action: str, region: str, account: str, value: str | None = None
) -> CloudgpuError | None:
    """Return our error for what boto3 raised; None for what is a defect of ours.

    A code that nobody mapped is ProviderUnavailable: nothing is known.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    if isinstance(error, ClientError):
        answer: dict[str, Any] = error.response.get("Error", {})
        code = str(answer.get("Code", "Unknown"))
        kind = CODES.get(code, ProviderUnavailable)
        message = f"AWS {region} refused {action}: {answer.get('Message', '')} ({code})."
        return kind(message, field="provider", value=value)
    if isinstance(error, BotoCoreError):
        return ProviderUnavailable(f"AWS {region} did not answer {action}: {error}.", field="provider", value=value)
    return None
