"""What the errors of all clouds share: the table of what codes mean, and the sentences about refusals and silence.

A code decides the class of the error, never the wording. This imports no SDK: each cloud reads its own answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, NoCapacity, ProviderUnavailable, RateLimited

MAX_SENTENCE = 300  # characters of a cloud's own sentence that a person has to read


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code means. `field` is what it is about, `remedy` is empty where the cloud's sentence has to do."""

    kind: type[CloudgpuError]
    field: str = "provider"
    remedy: str = ""


UNKNOWN = Meaning(ProviderUnavailable)
"""What a code means that nobody mapped: nothing is known."""

RETRY_LATER = Meaning(ProviderUnavailable, remedy="Run it again in a while.")
Codes = str | Iterable[str]  # a text has them between spaces


def meanings(
    *others: tuple[Codes, Meaning],
    no_capacity: Codes,
    throttled: Codes,
    down: Codes,
    requests: Mapping[str, Codes],
    remedies: Mapping[str, str],
) -> dict[str, Meaning]:
    """Return what each code of a cloud means; where a code is listed twice, the later one holds.

    `requests` has the codes by the field that a request got wrong, `remedies` has what to do about it by that field.
    """
    listed = (
        (no_capacity, Meaning(NoCapacity, "offer")),
        (throttled, Meaning(RateLimited, remedy="Wait a minute and run it again.")),
        (down, RETRY_LATER),
        *others,
        *((codes, Meaning(InvalidRequest, field, remedies.get(field, ""))) for field, codes in requests.items()),
    )
    return {code: one for codes, one in listed for code in (codes.split() if isinstance(codes, str) else codes)}


def refusal(
    meaning: Meaning, sentence: str, *, value: str | None, region: str, headers: Mapping[str, str] | None = None
) -> CloudgpuError:
    """Return the error for a refusal. `region` replaces REGION in the remedy; `headers` say when to retry."""
    remedy = meaning.remedy.replace("REGION", region) or None
    if meaning.kind is RateLimited:
        wait = retry_after(headers or {})
        return RateLimited(sentence, retry_after=wait, field=meaning.field, value=value, next=remedy)
    return meaning.kind(sentence, field=meaning.field, value=value, next=remedy)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a cloud wants to be asked again; None where it does not say, or says a date."""
    text = next((text for name, text in headers.items() if name.lower() == "retry-after"), "")
    return float(text) if text.replace(".", "", 1).isdigit() else None


def denied(credentials: str, action: str, where: str, *, grant: str = "the permission") -> AuthFailed:
    """Return the error for a missing permission. `credentials` begins the sentence, `where` (with its space) ends it.

    `grant` is what has to be asked for: the permission itself, or a role that allows it.
    """
    remedy = f"Ask for {grant} {action}; cloudgpu doctor names all that are missing."
    return AuthFailed(f"{credentials} may not do {action}{where}.", field="permission", value=action, next=remedy)


def silent(sentence: str, value: str | None) -> ProviderUnavailable:
    """Return the error for no answer, or for one that is not the cloud's. `sentence` has no full stop yet."""
    return ProviderUnavailable(f"{sentence}.", field="provider", value=value)


def shorten(text: str) -> str:
    """Return a cloud's sentence on one line, at most MAX_SENTENCE characters, without its full stop."""
    plain = " ".join(text.split())
    return (plain if len(plain) <= MAX_SENTENCE else plain[: MAX_SENTENCE - 3] + "...").rstrip(". ")


class Tolerating:
    """A context that lets out no error whose code, as the cloud's `code_of` tells it, is one of these."""

    def __init__(self, code_of: Callable[[CloudgpuError], str], *codes: str) -> None:
        self._code_of, self._codes = code_of, codes

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """End; say whether the error is tolerated."""
        return isinstance(error, CloudgpuError) and self._code_of(error) in self._codes
