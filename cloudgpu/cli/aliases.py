"""Words that people type for a verb: other names of a verb, and a sentence where no verb means that word."""

from __future__ import annotations

import difflib
import os

from cloudgpu.cli.verbs import VERBS
from cloudgpu.core.values.naming import did_you_mean
from cloudgpu.errors import CloudgpuError, InvalidRequest

# Each word means exactly what its verb does. `status` is here too, and with a name it is `show`.
SAME = {
    "ps": "ls",
    "list": "ls",
    "status": "ls",
    "describe": "show",
    "info": "show",
    "launch": "up",
    "create": "up",
    "resume": "start",
    "terminate": "down",
    "delete": "down",
    "destroy": "down",
    "rm": "down",
    "connect": "ssh",
    "scp": "cp",
    "jupyter": "tunnel",
    "notebook": "tunnel",
    "prices": "gpus",
    "configure": "init",
    "setup": "init",
}
# Only proposed for a word that can hardly mean anything else: each of them ends machines, or lets something end them.
RISKY = frozenset({"down", "stop", "reap", "watch", "spot", *(word for word, verb in SAME.items() if verb == "down")})
_CLOSE, _OWN_FIRST = 0.6, 0.1  # of difflib: how near a proposal has to be, and how much nearer another name
_HELP = {"help": "", "version": ""}  # what follows a proposed word, where that is not --help
_CREDENTIALS = "Run: aws configure, gcloud auth application-default login, or az login. Then: cloudgpu doctor"
_ENDS = "cloudgpu stop NAME keeps its disk; cloudgpu down NAME removes everything."
# word: what is said of it, and the way out.
SENTENCES = {
    **dict.fromkeys(
        ("login", "logout", "auth"),
        ("cloudgpu has no login of its own: it uses the credentials of each cloud's own tool.", _CREDENTIALS),
    ),
    **dict.fromkeys(
        ("config", "settings"),
        ("The settings are in {config}.", "To change them: cloudgpu init. To check them: cloudgpu doctor"),
    ),
    **dict.fromkeys(("kill", "halt", "pause", "poweroff", "shutdown"), ("There are two ways to end a machine.", _ENDS)),
    **dict.fromkeys(
        ("reboot", "restart"),
        ("No verb restarts a machine.", "Run: cloudgpu stop NAME, then: cloudgpu start NAME"),
    ),
    "run": (
        "No verb runs a program on a machine of its own yet.",
        "To launch one: cloudgpu up. To run a command there: cloudgpu exec NAME -- CMD",
    ),
    "logs": (
        "cloudgpu keeps no output of programs.",
        "What happened to a machine: cloudgpu show NAME --history",
    ),
    "open": ("No verb is called open.", "To open Jupyter in the browser: cloudgpu tunnel NAME --open"),
}


def understood(args: list[str]) -> list[str]:
    """Return what was typed with a verb for its first word, without words for the list of all verbs.

    Raises InvalidRequest for a word that no verb means: with a sentence, or with the verb that is meant probably.
    """
    if not args:
        return []
    word, rest = args[0], args[1:]
    if word == "help":
        found = understood(rest)
        return [*found[: 2 if " ".join(found[:2]) in VERBS else 1], "--help"] if found else []
    if word == "version":
        return ["--version"]
    if word in VERBS:
        return args
    if word == "status" and any(not one.startswith("-") for one in _before_output(rest)):
        return ["show", *rest]
    if word in SAME:
        return [SAME[word], *rest]
    raise _refused(word)


def _before_output(rest: list[str]) -> list[str]:
    """Return the words that could be a name: not what -o is given."""
    return [one for before, one in zip(["", *rest], rest, strict=False) if before not in ("-o", "--output")]


def _refused(word: str) -> InvalidRequest:
    if word in SENTENCES:
        says, way = SENTENCES[word]
        return InvalidRequest(says.format(config=_config_file()), field="verb", value=word, next=way)
    meant = meant_by(word)
    return InvalidRequest(
        f"There is no verb {word!r}" + did_you_mean(meant, "."),
        field="verb",
        value=word,
        next=f"Run: cloudgpu {meant}{_HELP.get(meant, ' --help')}" if meant else "Run: cloudgpu --help",
    )


def meant_by(word: str) -> str | None:
    """Return the verb, or other name of one, that is meant probably; None where none is near.

    A verb that ends machines is meant only by its own letters and first letter: in another order, one too many, or
    without the last.
    """
    for known in sorted(RISKY):
        slips = sorted(word) == sorted(known) or word == known[:-1] or _without_one(word, known)
        if word[:1] == known[0] and slips:
            return known
    others = sorted({*SAME, "help", "version"} - RISKY)
    (own, verb), (other, name) = _nearest(word, sorted(VERBS.keys() - RISKY)), _nearest(word, others)
    if max(own, other) < _CLOSE:
        return None
    return verb if own + _OWN_FIRST >= other else name


def _nearest(word: str, known: list[str]) -> tuple[float, str]:
    return max((difflib.SequenceMatcher(None, one, word.lower()).ratio(), one) for one in known)


def _without_one(longer: str, shorter: str) -> bool:
    return any(longer[:place] + longer[place + 1 :] == shorter for place in range(len(longer)))


def _config_file() -> str:
    from cloudgpu.config.files.paths import find_home

    try:
        return str(find_home(os.environ).config_file)
    except CloudgpuError:  # a CLOUDGPU_HOME that is none
        return "config.toml in CLOUDGPU_HOME"
