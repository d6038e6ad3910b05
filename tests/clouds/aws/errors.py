"""AWS's errors in AWS's shapes. The codes and sentences are from its documentation and from public reports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from xml.sax.saxutils import escape

# Where IAM has another word than the call's (Service Authorization Reference, AWS Budget Service).
PERMISSIONS = {
    "budgets:CreateBudget": "budgets:ModifyBudget",
    "budgets:CreateNotification": "budgets:ModifyBudget",
    "budgets:CreateSubscriber": "budgets:ModifyBudget",
    "budgets:DeleteBudget": "budgets:ModifyBudget",
    "budgets:DeleteSubscriber": "budgets:ModifyBudget",
    "budgets:DescribeBudget": "budgets:ViewBudget",
    "budgets:DescribeSubscribersForNotification": "budgets:ViewBudget",
    "budgets:UpdateBudget": "budgets:ModifyBudget",
}
SENTENCES = {
    "AccessDenied": (403, "User is not authorized to perform this action."),
    "AccessDeniedException": (400, "User is not authorized to perform this action."),
    "AuthFailure": (401, "AWS was not able to validate the provided access credentials"),
    "ExpiredToken": (400, "The security token included in the request is expired"),
    "ExpiredTokenException": (400, "The security token included in the request is expired"),
    "InsufficientInstanceCapacity": (
        500,
        (
            "We currently do not have sufficient capacity in the Availability Zone you requested. "
            "Our system will be working on provisioning additional capacity."
        ),
    ),
    "InternalError": (500, "An internal error has occurred"),
    "InvalidClientTokenId": (403, "The security token included in the request is invalid."),
    "MaxSpotInstanceCountExceeded": (400, "Max spot instance count exceeded"),
    "OptInRequired": (401, "You are not subscribed to this service. Please go to http://aws.amazon.com to subscribe."),
    "RequestExpired": (400, "Request has expired."),
    "RequestLimitExceeded": (503, "Request limit exceeded."),
    "ServiceUnavailable": (503, "Service Unavailable"),
    "SpotMaxPriceTooLow": (
        400,
        "Your Spot request price is lower than the minimum required Spot request fulfillment price.",
    ),
    "ThrottlingException": (400, "Rate exceeded"),
    "Unavailable": (503, "The service is unavailable. Please try again shortly."),
    "UnauthorizedOperation": (403, "You are not authorized to perform this operation."),
    "VcpuLimitExceeded": (
        400,
        (
            "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that "
            "the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to "
            "request an adjustment to this limit."
        ),
    ),
}


@dataclass
class AwsError(Exception):
    """An answer with an error: its code, its sentence (AWS's own unless given) and its HTTP status."""

    code: str
    message: str = ""
    status: int = 0

    def __post_init__(self) -> None:
        status, message = SENTENCES.get(self.code, (400, self.code))
        self.message = self.message or message
        self.status = self.status or status

    def body(self, service: str) -> tuple[str, bytes]:
        """Return the content type and the body in which a service says it."""
        if service == "ec2":
            return "text/xml", _EC2.format(code=escape(self.code), message=escape(self.message)).encode()
        if service in {"iam", "sts", "sns", "monitoring"}:
            return "text/xml", _QUERY.format(code=escape(self.code), message=escape(self.message)).encode()
        return "application/x-amz-json-1.1", json.dumps({"__type": self.code, "message": self.message}).encode()


_EC2 = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message>'
    "</Error></Errors><RequestID>00000000-0000-4000-8000-000000000000</RequestID></Response>"
)
_QUERY = (
    "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    "<RequestId>00000000-0000-4000-8000-000000000000</RequestId></ErrorResponse>"
)
