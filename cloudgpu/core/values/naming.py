"""Names, tags, keys and tokens: what may be written in them, and how they follow from each other."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from cloudgpu.errors import InvalidRequest

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
TAG_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
NAME_RULE = "a name is 1 to 40 characters: a letter first, then letters, digits and hyphens, all lower case"

_FIRST = (
    "amber brave bright calm clever copper coral crisp daring eager early fair fleet gentle glad golden "
    "grand green happy hardy honest humble jolly keen kind lively loyal lucid lucky mellow merry mild "
    "modest neat nimble noble patient plain proud quick quiet rapid ready rosy royal rustic sandy sharp "
    "silent silver simple sleek smart snowy solid steady sunny swift tidy tough vivid warm wise witty"
).split()
_SECOND = (
    "acorn anchor aspen badger beacon birch bison brook canyon cedar cliff comet crane creek dune eagle "
    "elm ember falcon fern finch fjord fox glacier grove harbor hawk heron hill island ivy jay juniper "
    "kestrel lake lark linden lotus lynx maple marsh meadow mesa moose oak orchid osprey otter owl peak "
    "pebble pine plover pond quail raven reef ridge river robin sparrow spruce stone summit swan thistle "
    "tiger trout tulip valley violet walrus willow wren"
).split()


def digest(*parts: str) -> str:
    """Return 64 hexadecimal digits that depend on every part and on where one ends and the next begins."""
    import hashlib  # loads OpenSSL, which `ls` need not pay for

    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode(errors="surrogatepass")).hexdigest()


def made_name(key: str, taken: Collection[str]) -> str:
    """Return two words that follow from the key, the first such pair that is not taken."""
    for turn in range(10_000):
        number = int(digest(key, str(turn))[:12], 16)
        name = f"{_FIRST[number % len(_FIRST)]}-{_SECOND[number // len(_FIRST) % len(_SECOND)]}"
        if turn > len(_FIRST) * 20:
            name = f"{name}-{number % 1000}"
        if name not in taken:
            return name
    message = "no free name is left"
    raise ValueError(message)


def machine_id(ledger: str, key: str) -> str:
    """Return the cloudgpu-id of a key in a ledger: it survives park and start."""
    return "cg-" + digest("machine", ledger, key)[:16]


def token(ledger: str, key: str, attempt: int) -> str:
    """Return the launch token of one attempt: at most 64 characters, letters and digits only."""
    return digest("token", ledger, key, str(attempt))[:48]


def tag_value(text: str) -> str:
    """Return `text` as a tag may carry it, `[a-z0-9_-]{0,63}`; the full text stands in the ledger."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:63]


def counted(number: int, what: str) -> str:
    """Return how many there are of what has an ordinary plural: `1 machine`, `3 machines`."""
    return f"{number} {what}" + "s" * (number != 1)


def first_few(names: Sequence[str], most: int = 4) -> str:
    """Return these names for a sentence, the first `most` of them and how many more there are: `a, b and 7 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def near(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` most probably meant, or None."""
    from difflib import get_close_matches  # `ls` does without

    written = {one.lower(): str(one) for one in sorted(known)}
    close_matches = get_close_matches(word.lower(), written, n=1, cutoff=0.5)
    return written[close_matches[0]] if close_matches else None


def did_you_mean(meant: str | None, otherwise: str = "") -> str:
    """Return how a sentence about an unknown word ends: `; did you mean 'x'?`, or `otherwise` where none is close."""
    return f"; did you mean {meant!r}?" if meant else otherwise


def unknown_word(
    says: str,
    word: str,
    known: Iterable[str],
    *,
    field: str,
    value: str | None = None,
    use: str = "",
    next: str = "",  # noqa: A002  (the word of the JSON contract)
) -> InvalidRequest:
    """Return the error for a word that is not among the known ones: `says`, and the word that was probably meant.

    `use` is the way out where there is such a word, which takes the place of its `{}`. Otherwise `next` is, and without
    it the list of the known words. `value` is the word itself unless another is given.
    """
    words = tuple(known)
    meant = near(word, words)
    return InvalidRequest(
        says + did_you_mean(meant, "."),
        field=field,
        value=word if value is None else value,
        next=use.format(meant) if use and meant else next or f"Use one of: {', '.join(words)}.",
    )


def derived_key(fingerprint: str, generation: int) -> str:
    """Return the launch key of the `generation`-th machine of a request that was given no key."""
    return f"auto-{fingerprint[:20]}-{generation}"


def lock_name(key: str) -> str:
    """Return the lock under which this key is launched: all generations of one request share it, and all nodes."""
    key = re.sub(r"--\d+$", "", key)  # of a node of a cluster
    match = re.fullmatch(r"(auto-[0-9a-f]{20})-\d+", key)
    return match[1] if match else f"key-{key}"


def scope_of(provider: str, identity: str) -> str:
    """Return the subject under which syncs of one account are written, by the account's identity."""
    return f"scope:{provider}/{identity}"
