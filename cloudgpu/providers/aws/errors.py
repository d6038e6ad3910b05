"""Maps what boto3 raises to the classes of `cloudgpu.errors`: the code decides the class, never the wording."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    EndRefused,
    InvalidRequest,
    NoCapacity,
    ProviderUnavailable,
)
from cloudgpu.providers.aws.error_codes import CREDENTIAL, DENIED, ERROR_MAPPINGS, SKEWED
from cloudgpu.providers.shared.calls import is_skewed, wrong_clock
from cloudgpu.providers.shared.errors import UNKNOWN, denied_error, refusal_error, shorten, unanswered_error

_CLOCK_ERROR = re.compile(r"signature (has )?expired|not yet current|is now (earlier|later) than", re.IGNORECASE)
THROTTLED, SERVER_ERROR = 429, 500  # HTTP statuses; all above 500 are server errors, too
# What botocore says where the service that gives a container its credentials is throttled, down or not reached
_SERVICE_BUSY = re.compile(r"non 200 response (?:429|5\d\d)\b|error when attempting to retrieve container metadata")
NOT_PERMITTED = "OperationNotPermitted"
# "The instance 'i-...' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again."
# Stop protection keeps a machine from its termination too; that the message names it likewise is an assumption.
_PROTECTED_ID = re.compile(r"instance '(i-[0-9a-f]+)' may not be \w+\. Modify its '(disableApi(?:Termination|Stop))'")
_PROTECTIONS = {
    "disableApiTermination": ("termination protection", "--no-disable-api-termination"),
    "disableApiStop": ("stop protection", "--no-disable-api-stop"),
}
_DENIED_ACTION = re.compile(r"perform:? ([a-z0-9-]+:[A-Za-z0-9]+)")

_WRONG_SECRET = ("SignatureDoesNotMatch", "InvalidSignatureException")

# What botocore raises before or instead of an answer, by the name of its class.
NO_CREDENTIALS = frozenset(
    "ConfigNotFound ConfigParseError CredentialRetrievalError InfiniteLoopConfigError InvalidConfigError LoginError "
    "MetadataRetrievalError NoAuthTokenError NoCredentialsError PartialCredentialsError ProfileNotFound "
    "RefreshWithMFAUnsupportedError SSOError TokenRetrievalError UnknownCredentialError "
    "UnknownTokenProviderError".split()
)
EXPIRED_LOGIN = frozenset("LoginError SSOError TokenRetrievalError".split())
OUR_DEFECTS = frozenset(
    "OperationNotPageableError PaginationError ParamValidationError StubResponseError UnknownClientMethodError "
    "ValidationError WaiterConfigError".split()
)
BAD_SETTINGS = frozenset(
    "BaseEndpointResolverError EndpointProviderError InvalidChecksumConfigError InvalidDefaultsMode "
    "InvalidEndpointConfigurationError InvalidIMDSEndpointError InvalidIMDSEndpointModeError InvalidProxiesConfigError "
    "InvalidRegionError InvalidRetryConfigurationError InvalidSTSRegionalEndpointsConfigError NoRegionError "
    "UnknownRegionError".split()
)

# What botocore says, in a plain RuntimeError, of keys that the environment or a process gives after their end.
_STILL_EXPIRED = "credentials are still expired"


@dataclass(frozen=True, slots=True)
class CallContext:
    """A call to AWS, as its errors describe it. `action` is `RunInstances`, or `ssm:GetParameter` for another service.

    `now` is this computer's clock, aware UTC. `value` is what the user named, where the call is about that.
    `sign_in_status` is the HTTP status with which AWS's sign-in service answered last, 0: not asked.
    """

    action: str
    region: str
    account: str
    now: datetime
    profile: str | None = None
    value: str | None = None
    sign_in_status: int = 0

    @property
    def permission(self) -> str:
        """The action as IAM spells it."""
        return self.action if ":" in self.action else f"ec2:{self.action}"

    @property
    def used_profile(self) -> str | None:
        """The profile whose credentials botocore uses, or None; keys in the environment come before AWS_PROFILE."""
        return self.profile or (None if "AWS_ACCESS_KEY_ID" in os.environ else os.environ.get("AWS_PROFILE"))

    @property
    def credentials_label(self) -> str:
        """Whose credentials are used, in words: never the credential itself."""
        if profile := self.used_profile:
            return f"the profile {profile}"
        if "AWS_ACCESS_KEY_ID" in os.environ:
            return "AWS_ACCESS_KEY_ID of the environment"
        return "the default credentials of this machine"


def translated(error: Exception, call: CallContext) -> CloudgpuError | None:
    """Return our error for what boto3 raised; None for what is a defect of ours.

    A code that nobody mapped is ProviderUnavailable: nothing is known.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    if isinstance(error, ClientError):
        return _end_refused_error(error.response, call) or _error_of_answer(error.response, call)
    if isinstance(error, ResponseParserError):  # a proxy's page, say; it is not shown
        return unanswered_error(
            f"AWS {call.region} answered {call.action} with something that is not an answer of AWS's", call.value
        )
    return _sdk_error(error, call) if isinstance(error, BotoCoreError) else _unnamed_error(error, call)


def _unnamed_error(error: Exception, call: CallContext) -> CloudgpuError | None:
    """Return the error for what botocore raises of settings and credentials without a class of its own."""
    if isinstance(error, RuntimeError) and _STILL_EXPIRED in str(error):
        return _bad_credentials_error("ExpiredToken", call)
    if isinstance(error, OSError):  # a credential_process, or a file with a token, that is not there
        return _no_credentials_error(error, set(), call)
    is_setting = isinstance(error, ValueError) and call.action == "credentials"  # AWS_MAX_ATTEMPTS, say
    return _bad_settings_error(error, call) if is_setting else None


def _sdk_error(error: Exception, call: CallContext) -> CloudgpuError | None:
    """Return the error for what the SDK raised before or instead of an answer."""
    class_names = {kind.__name__ for kind in type(error).__mro__}
    if class_names & NO_CREDENTIALS:
        return _no_credentials_error(error, class_names, call)
    if class_names & BAD_SETTINGS:
        return _bad_settings_error(error, call)
    if class_names & OUR_DEFECTS:
        return None
    return unanswered_error(f"AWS {call.region} did not answer {call.action}: {_shortened(str(error))}", call.value)


def _bad_settings_error(error: Exception, call: CallContext) -> InvalidRequest:
    message = f"The AWS settings of account {call.account} cannot be used: {_shortened(str(error))}."
    remedy = "Correct them in ~/.aws/config, or in the environment."
    return InvalidRequest(message, field="provider", value=call.value, next=remedy)


def _error_of_answer(response: Mapping[str, Any], call: CallContext) -> CloudgpuError:
    """Return the error for an answer with an error in it."""
    error_answer = response.get("Error", {})
    code, message = str(error_answer.get("Code", "")), str(error_answer.get("Message", ""))
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    if code in SKEWED or (code in CREDENTIAL and (_CLOCK_ERROR.search(message) or is_skewed(headers, call.now))):
        return wrong_clock("AWS", call.region, headers, call.now)
    if code in CREDENTIAL:
        return _bad_credentials_error(code, call)
    if code in DENIED:
        denied_action = _DENIED_ACTION.search(message)
        credentials = f"The AWS credentials of account {call.account} ({call.credentials_label})"
        return denied_error(credentials, denied_action[1] if denied_action else call.permission, f" in {call.region}")
    meaning = ERROR_MAPPINGS.get(code, UNKNOWN)
    if meaning is UNKNOWN and not code.replace(".", "").isalnum():
        return unanswered_error(
            f"AWS {call.region} answered {call.action} with something that is not an answer of AWS's", call.value
        )
    if meaning.kind is NoCapacity:  # one sentence: AWS goes on to advise what the launch tries next anyway
        message = message.partition(". ")[0]
    sentence = f"AWS {call.region} refused {call.action}: {_shortened(message)} ({code})."
    return refusal_error(meaning, sentence, value=call.value, region=call.region, headers=headers)


def code_of(error: CloudgpuError) -> str:
    """Return the code with which AWS answered; empty where it did not answer."""
    response: Mapping[str, Any] = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _end_refused_error(response: Mapping[str, Any], call: CallContext) -> EndRefused | None:
    """Return the error for a machine that is protected from termination; None for every other answer."""
    error_answer = response.get("Error", {})
    protected_id = (
        _PROTECTED_ID.search(str(error_answer.get("Message", "")))
        if error_answer.get("Code") == NOT_PERMITTED
        else None
    )
    if protected_id is None:
        return None
    machine, attribute = protected_id.groups()
    name, option = _PROTECTIONS[attribute]
    profile = f" --profile {call.profile}" if call.profile else ""
    return EndRefused(
        f"{machine} has {name} (its attribute {attribute[0].upper()}{attribute[1:]} is set), so AWS refused "
        f"{call.action}.",
        lifts=f"aws ec2 modify-instance-attribute --instance-id {machine} {option} --region {call.region}{profile}",
        field="instance",
        value=call.value,
    )


def _bad_credentials_error(code: str, call: CallContext) -> AuthFailed:
    problem = {
        "ExpiredToken": "have expired",
        "ExpiredTokenException": "have expired",
        "TokenRefreshRequired": "have expired",
        **dict.fromkeys(_WRONG_SECRET, "do not fit together: the secret key is not the one of this access key"),
    }.get(code, "are not accepted")
    not_accepted_where = (
        f"in {call.region}, or this account has not enabled that region" if code == "AuthFailure" else "by AWS"
    )
    sentence = f"The AWS credentials of account {call.account} ({call.credentials_label}) {problem}"
    sentence += f" {not_accepted_where} ({code})." if problem == "are not accepted" else f" ({code})."
    return AuthFailed(sentence, field="credentials", value=call.credentials_label, next=_renewal_remedy(code, call))


def _renewal_remedy(code: str, call: CallContext) -> str:
    """Return what gives the user good credentials, by where these come from."""
    if profile := call.used_profile:
        if code in _WRONG_SECRET:  # only keys that somebody wrote down do not fit together
            return f"Correct the keys of that profile: aws configure --profile {profile}"
        return f"Run: aws sso login --profile {profile} (or renew the keys of that profile in ~/.aws/credentials)"
    if "AWS_ACCESS_KEY_ID" in os.environ:
        return (
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY again (AWS_SESSION_TOKEN too), or unset them and run: "
            "aws configure"
        )
    return (
        "See where they come from: aws configure list. Renew keys with aws configure, a login with aws sso login; "
        "AWS itself renews those of an EC2 role or a container: for these, run it again in a while"
    )


def _no_credentials_error(error: Exception, class_names: set[str], call: CallContext) -> CloudgpuError:
    unavailable_service = _SERVICE_BUSY.search(str(error))
    if unavailable_service:
        return _credentials_unavailable(call, f"could not be fetched ({shorten(unavailable_service[0])})")
    if class_names & EXPIRED_LOGIN and (call.sign_in_status == THROTTLED or call.sign_in_status >= SERVER_ERROR):
        return _credentials_unavailable(
            call, f"could not be renewed: AWS's sign-in service answered with {call.sign_in_status}"
        )
    profile = call.profile or os.environ.get("AWS_PROFILE")
    if "ProfileNotFound" in class_names:
        sentence = f"The AWS profile {profile} of account {call.account} is not in ~/.aws/config."
        remedy = f"Make it: aws configure --profile {profile}; or correct the profile in config.toml."
        return AuthFailed(sentence, field="profile", value=profile, next=remedy)
    if class_names & EXPIRED_LOGIN:
        sentence = f"The AWS login of account {call.account} ({call.credentials_label}) has expired or is not there."
        verb = "aws login" if "LoginError" in class_names else "aws sso login"
        return AuthFailed(
            sentence,
            field="credentials",
            value=profile,
            next=f"Run: {verb}" + (f" --profile {profile}" if profile else ""),
        )
    if "NoCredentialsError" in class_names:
        sentence = f"There are no AWS credentials for account {call.account} ({call.credentials_label})."
        remedy = "Run: aws configure (or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)."
        return AuthFailed(sentence, field="credentials", value=profile, next=remedy)
    sentence = f"The AWS credentials of account {call.account} cannot be read: {_shortened(str(error))}."
    return AuthFailed(sentence, field="credentials", value=profile, next="Correct them in ~/.aws/config.")


def _credentials_unavailable(call: CallContext, problem: str) -> ProviderUnavailable:
    """Return the error where the service that issues credentials failed: whether they are valid is not known."""
    message = f"The AWS credentials of account {call.account} ({call.credentials_label}) {problem}."
    return ProviderUnavailable(message, field="provider", value=call.value, next="Run it again in a while.")


def _shortened(message: str) -> str:
    """Return a sentence of AWS's cut short, without the encoded message."""
    return shorten(message.partition("Encoded authorization failure message")[0])
