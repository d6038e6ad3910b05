"""Names, tags, keys and tokens: which characters they may have, and how one is derived from another."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from cloudgpu.errors import InvalidRequest

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
TAG_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
NAME_RULE = "a name is 1 to 40 characters: a letter first, then letters, digits and hyphens, all lower case"

_ADJECTIVES = (
    "amber brave bright calm clever copper coral crisp daring eager early fair fleet gentle glad golden "
    "grand green happy hardy honest humble jolly keen kind lively loyal lucid lucky mellow merry mild "
    "modest neat nimble noble patient plain proud quick quiet rapid ready rosy royal rustic sandy sharp "
    "silent silver simple sleek smart snowy solid steady sunny swift tidy tough vivid warm wise witty"
).split()
_NOUNS = (
    "acorn anchor aspen badger beacon birch bison brook canyon cedar cliff comet crane creek dune eagle "
    "elm ember falcon fern finch fjord fox glacier grove harbor hawk heron hill island ivy jay juniper "
    "kestrel lake lark linden lotus lynx maple marsh meadow mesa moose oak orchid osprey otter owl peak "
    "pebble pine plover pond quail raven reef ridge river robin sparrow spruce stone summit swan thistle "
    "tiger trout tulip valley violet walrus willow wren"
).split()

NUMBER_WORDS = "no one two three four five six seven eight nine ten eleven twelve".split()  # as sentences count


def digest(*parts: str) -> str:
    """Return 64 hexadecimal digits that depend on every part and on where one ends and the next begins."""
    import hashlib  # loads OpenSSL, which `ls` does not need

    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode(errors="surrogatepass")).hexdigest()


def generated_name(key: str, taken: Collection[str]) -> str:
    """Return a name of two words, derived from the key: the first that is not taken."""
    for attempt in range(10_000):
        number = int(digest(key, str(attempt))[:12], 16)
        name = f"{_ADJECTIVES[number % len(_ADJECTIVES)]}-{_NOUNS[number // len(_ADJECTIVES) % len(_NOUNS)]}"
        if attempt > len(_ADJECTIVES) * 20:
            name = f"{name}-{number % 1000}"
        if name not in taken:
            return name
    raise ValueError("no free name is left")


def machine_id(ledger: str, key: str) -> str:
    """Return the cloudgpu-id of a machine by its ledger and launch key: it survives park and start."""
    return "cg-" + digest("machine", ledger, key)[:16]


def token(ledger: str, key: str, attempt: int) -> str:
    """Return the launch token of one attempt: at most 64 characters, letters and digits only."""
    return digest("token", ledger, key, str(attempt))[:48]


def tag_value(text: str) -> str:
    """Return `text` reduced to what a tag may hold, `[a-z0-9_-]{0,63}`; the ledger has the full text."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:63]


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, which takes an s in the plural: `1 machine`, `3 machines`."""
    return f"{count} {noun}" + "s" * (count != 1)


def first_few(names: Sequence[str], limit: int = 4) -> str:
    """Return these names for a sentence, the first `limit` of them and how many more there are: `a, b and 7 more`."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


SIMILAR = 0.6  # of 1: slips of the keyboard have at least 0.7, and `terminate` has 0.59 with `estimate`
MIN_PART = 3  # characters of a part of a word that is enough to suggest the word


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to `word`, else one that contains it, or None."""
    from difflib import get_close_matches  # slow to load, and `ls` does not need it

    spelling = {name.lower(): str(name) for name in sorted(known)}
    close_matches = get_close_matches(word.lower(), spelling, n=1, cutoff=SIMILAR)
    close_matches += [name for name in spelling if len(word) >= MIN_PART and word.lower() in name]
    return spelling[close_matches[0]] if close_matches else None


def did_you_mean(match: str | None, otherwise: str = "") -> str:
    """Return how a sentence about an unknown word ends: `; did you mean 'x'?`, or `otherwise` where none is close."""
    return f"; did you mean {match!r}?" if match else otherwise


def unknown_word(
    message: str,
    word: str,
    known: Iterable[str],
    *,
    field: str,
    value: str | None = None,
    use: str = "",
    next: str = "",  # noqa: A002  (the word of the JSON contract)
) -> InvalidRequest:
    """Return the error for a word that is not among the known ones: `message`, and the most similar known word.

    `use` is the advice where there is a similar word, which replaces its `{}`. Otherwise the advice is `next`, or
    without that the list of the known words. `value` is the word itself unless another is given.
    """
    words = tuple(known)
    match = closest_match(word, words)
    return InvalidRequest(
        message + did_you_mean(match, "."),
        field=field,
        value=word if value is None else value,
        next=use.format(match) if use and match else next or f"Use one of: {', '.join(words)}.",
    )


def derived_key(fingerprint: str, generation: int) -> str:
    """Return the launch key of a request that was given none; `generation` counts its machines, one after another."""
    return f"auto-{fingerprint[:20]}-{generation}"


def lock_name(key: str) -> str:
    """Return the lock under which this key is launched; all generations and all nodes of one request share it."""
    key = re.sub(r"--\d+$", "", key)  # the number of a cluster's node
    match = re.fullmatch(r"(auto-[0-9a-f]{20})-\d+", key)
    return match[1] if match else f"key-{key}"


def account_sync_subject(provider: str, identity: str) -> str:
    """Return the ledger subject under which syncs of one account are recorded, by the account's identity."""
    return f"scope:{provider}/{identity}"
