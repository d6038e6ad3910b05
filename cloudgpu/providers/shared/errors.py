"""What the errors of all clouds share: the table of what codes mean, and the sentences about refusals and silence.

A code decides the class of the error, never the wording. This imports no SDK: each cloud reads its own answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InvalidRequest,
    MissingExtra,
    NoCapacity,
    ProviderUnavailable,
    RateLimited,
)

MAX_SENTENCE = 300  # characters of a cloud's own sentence that a person has to read
MAX_RETRY_AFTER_S = 86_400.0


@dataclass(frozen=True, slots=True)
class ErrorMapping:
    """The error that a cloud's error code stands for.

    `kind` is its class, `field` the option or subject that it names, `remedy` its `next`: what the user does about it,
    empty where the cloud's own sentence says that.
    """

    kind: type[CloudgpuError]
    field: str = "provider"
    remedy: str = ""


UNKNOWN = ErrorMapping(ProviderUnavailable)
"""For a code that nobody mapped: nothing is known of what the call did."""

RETRY_LATER = ErrorMapping(ProviderUnavailable, remedy="Run it again in a while.")
Codes = str | Iterable[str]  # error codes; a string has several, separated by spaces


def error_mappings(
    *others: tuple[Codes, ErrorMapping],
    no_capacity: Codes,
    throttled: Codes,
    down: Codes,
    invalid: Mapping[str, Codes],
    remedies: Mapping[str, str],
) -> dict[str, ErrorMapping]:
    """Return the error of each error code of a cloud; where a code is listed twice, the later one holds.

    `no_capacity`, `throttled` and `down` (the cloud has a failure) are codes of these classes, `others` are pairs of
    codes and their error. `invalid` has the codes of InvalidRequest by the field that is wrong, `remedies` what to
    do about it, by that field.
    """
    pairs = (
        (no_capacity, ErrorMapping(NoCapacity, "offer")),
        (throttled, ErrorMapping(RateLimited, remedy="Wait a minute and run it again.")),
        (down, RETRY_LATER),
        *others,
        *((codes, ErrorMapping(InvalidRequest, field, remedies.get(field, ""))) for field, codes in invalid.items()),
    )
    return {code: mapping for codes, mapping in pairs for code in (codes.split() if isinstance(codes, str) else codes)}


def refusal_error(
    mapping: ErrorMapping, sentence: str, *, value: str | None, region: str, headers: Mapping[str, str] | None = None
) -> CloudgpuError:
    """Return the error for a refused call. `sentence` is its message, `value` the refused value of `mapping.field`.

    `region` replaces REGION in the remedy; `headers` of the answer say when to retry.
    """
    remedy = mapping.remedy.replace("REGION", region) or None
    if mapping.kind is RateLimited:
        return RateLimited(
            sentence, retry_after=retry_after(headers or {}), field=mapping.field, value=value, next=remedy
        )
    return mapping.kind(sentence, field=mapping.field, value=value, next=remedy)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3), at most a day; None without one, or for a date."""
    text = next((text for name, text in headers.items() if name.lower() == "retry-after"), "")
    try:
        return min(max(0.0, float(text)), MAX_RETRY_AFTER_S)
    except ValueError:
        return None


def denied_error(credentials: str, action: str, where: str, *, grant: str = "the permission") -> AuthFailed:
    """Return the error for a missing permission: "`credentials` may not do `action``where`", `where` with its space.

    `grant` is what the user has to request: the permission itself, or a role that allows it.
    """
    remedy = f"Ask for {grant} {action}; cloudgpu doctor names all that are missing."
    return AuthFailed(f"{credentials} may not do {action}{where}.", field="permission", value=action, next=remedy)


def unanswered_error(sentence: str, value: str | None) -> ProviderUnavailable:
    """Return the error for no answer, or for one that is not the cloud's. `sentence` has no full stop yet.

    `value` is what was asked about: an id, say.
    """
    return ProviderUnavailable(f"{sentence}.", field="provider", value=value)


def missing_sdk_error(
    provider: str, error: ModuleNotFoundError, *, what: str = "The provider", field: str = "provider"
) -> MissingExtra:
    """Return the error for a cloud's SDK that is not installed; `what` begins the sentence, before the provider."""
    message = f"{what} {provider} needs {error.name}, which is not installed."
    return MissingExtra(message, field=field, value=provider, next=f"Run: pip install 'cloudgpu[{provider}]'")


def invalid_id_error(id: str, what: str, remedy: str, *, field: str = "id") -> InvalidRequest:  # noqa: A002
    """Return the error for a text that is no id of `what` ("a machine on AWS"): the cloud was not asked about it."""
    return InvalidRequest(f"{id!r} is not an id of {what}.", field=field, value=id, next=remedy)


def shorten(text: str) -> str:
    """Return a cloud's sentence on one line, at most MAX_SENTENCE characters, without its full stop."""
    one_line = " ".join(text.split())
    return (one_line if len(one_line) <= MAX_SENTENCE else one_line[: MAX_SENTENCE - 3] + "...").rstrip(". ")


class Tolerating:
    """A context manager that suppresses errors with one of these codes; `code_of` returns the cloud's code of one."""

    def __init__(self, code_of: Callable[[CloudgpuError], str], *codes: str) -> None:
        self._code_of, self._codes = code_of, codes

    def __enter__(self) -> None:
        """Enter; there is nothing to prepare."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """Leave; return whether the error is suppressed."""
        return isinstance(error, CloudgpuError) and self._code_of(error) in self._codes
