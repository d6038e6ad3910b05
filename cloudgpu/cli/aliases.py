"""Words that people type for a verb: synonyms of verbs, and error messages for words that are none."""

from __future__ import annotations

import difflib
import os

from cloudgpu.cli.verbs import VERBS
from cloudgpu.core.values.naming import did_you_mean
from cloudgpu.errors import CloudgpuError, InvalidRequest

# Each word means exactly what its verb does. `status` is here too, and with a name it is `show`.
SYNONYMS = {
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
    "remove": "down",
    "renew": "extend",
    "shell": "ssh",
    "machines": "ls",
    "instances": "ls",
    "connect": "ssh",
    "scp": "cp",
    "jupyter": "tunnel",
    "notebook": "tunnel",
    "price": "gpus",
    "prices": "gpus",
    "pricing": "gpus",
    "types": "gpus",
    "bill": "cost",
    "billing": "cost",
    "costs": "cost",
    "spending": "cost",
    "configure": "init",
    "setup": "init",
}
# Alone, each is the list of what its verb deals with; before an action, it is the verb.
PLURALS = {"budgets": "budget", "images": "image", "policies": "policy", "volumes": "volume"}
# Verbs and synonyms that end machines, or let something end them. They are proposed only for an obvious typing error.
RISKY = frozenset(
    {"down", "stop", "reap", "watch", "spot", *(word for word, verb in SYNONYMS.items() if verb == "down")}
)
# Ratios of difflib: the least similarity of a proposal, and by how much a synonym must be more similar than a verb.
_MIN_SIMILARITY, _VERB_BONUS = 0.6, 0.1
_HELP_SUFFIXES = {"help": "", "version": ""}  # what follows a proposed word in the remedy, where that is not --help
_LOGIN_REMEDY = "Run: aws configure, gcloud auth application-default login, or az login. Then: cloudgpu doctor"
_STOP_OR_DOWN = "cloudgpu stop NAME keeps its disk; cloudgpu down NAME removes everything."
# For each word: the error message, and what to do instead.
ANSWERS = {
    **dict.fromkeys(
        ("login", "logout", "auth"),
        ("cloudgpu has no login of its own: it uses the credentials of each cloud's own tool.", _LOGIN_REMEDY),
    ),
    **dict.fromkeys(
        ("config", "settings"),
        ("The settings are in {config}.", "To change them: cloudgpu init. To check them: cloudgpu doctor"),
    ),
    **dict.fromkeys(
        ("account", "accounts", "whoami"),
        ("The accounts are in {config}.", "To check them: cloudgpu doctor. To add one: cloudgpu init"),
    ),
    **dict.fromkeys(
        ("upload", "download", "sync"),
        (
            "To copy files: cloudgpu cp.",
            "cloudgpu cp FILE NAME:PATH copies to a machine, cloudgpu cp NAME:PATH . from it.",
        ),
    ),
    **dict.fromkeys(
        ("clean", "cleanup", "prune"),
        ("What launches left, and still costs, is called orphans.", "Run: cloudgpu orphans. It removes nothing."),
    ),
    **dict.fromkeys(
        ("template", "templates"),
        ("A template is a file, and has no verb of its own.", "To use one: cloudgpu up --template NAME"),
    ),
    **dict.fromkeys(
        ("update", "upgrade"),
        ("cloudgpu does not update itself.", "Run: uv tool upgrade cloudgpu, or: pip install --upgrade cloudgpu"),
    ),
    **dict.fromkeys(("dashboard", "ui", "web"), ("cloudgpu has no page of its own.", "Run: cloudgpu ls --watch")),
    **dict.fromkeys(
        ("top", "stats"),
        ("No verb is called {word}.", "How busy a machine is: cloudgpu show NAME. All of them: cloudgpu ls --watch"),
    ),
    "history": ("No verb is called history.", "What happened to a machine: cloudgpu show NAME --history"),
    "completion": (
        "Tab completes words once that is installed.",
        "Run: cloudgpu --install-completion, and open a new terminal",
    ),
    **dict.fromkeys(
        ("start-instance", "start-instances"), ("To start a machine again: cloudgpu start.", "Run: cloudgpu start NAME")
    ),
    **dict.fromkeys(
        (*("stop-instance", "stop-instances"), *("terminate-instance", "terminate-instances")),
        ("There are two ways to end a machine.", _STOP_OR_DOWN),
    ),
    **dict.fromkeys(
        ("kill", "halt", "pause", "poweroff", "shutdown", "suspend", "hibernate"),
        ("There are two ways to end a machine.", _STOP_OR_DOWN),
    ),
    **dict.fromkeys(
        ("reboot", "restart"),
        ("No verb restarts a machine.", "Run: cloudgpu stop NAME, then: cloudgpu start NAME"),
    ),
    "open": ("No verb is called open.", "To open Jupyter in the browser: cloudgpu tunnel NAME --open"),
}


def resolve_verb(args: list[str]) -> list[str]:
    """Return the typed arguments with a verb as the first word; `help` alone is dropped, which shows all verbs.

    Raises InvalidRequest for an unknown word: with its entry in ANSWERS, or with the verb that is probably meant.
    """
    if not args:
        return []
    word, rest = args[0], args[1:]
    if word == "help":
        resolved = resolve_verb(rest)
        return [*resolved[: 2 if " ".join(resolved[:2]) in VERBS else 1], "--help"] if resolved else []
    if word == "version":
        return ["--version"]
    return args if word in VERBS else [*_resolve_word(word, rest), *rest]


def _resolve_word(word: str, rest: list[str]) -> list[str]:
    """Return the verb, and perhaps its action, that another word for it means before the `rest`."""
    if word == "status" and any(not word.startswith("-") for word in _without_output_value(rest)):
        return ["show"]
    if word in SYNONYMS:
        return [SYNONYMS[word]]
    if word in PLURALS:
        return [PLURALS[word], "ls"] if not rest or rest[0].startswith("-") else [PLURALS[word]]
    raise _unknown_verb_error(word)


def _without_output_value(rest: list[str]) -> list[str]:
    """Return the words that could be a name: not the value of -o."""
    return [
        word for previous_word, word in zip(["", *rest], rest, strict=False) if previous_word not in ("-o", "--output")
    ]


def _unknown_verb_error(word: str) -> InvalidRequest:
    if word in ANSWERS:
        message, remedy = ANSWERS[word]
        return InvalidRequest(message.format(config=_config_file(), word=word), field="verb", value=word, next=remedy)
    nearest = nearest_verb(word)
    return InvalidRequest(
        f"There is no verb {word!r}" + did_you_mean(nearest, "."),
        field="verb",
        value=word,
        next=f"Run: cloudgpu {nearest}{_HELP_SUFFIXES.get(nearest, ' --help')}" if nearest else "Run: cloudgpu --help",
    )


def nearest_verb(word: str) -> str | None:
    """Return the verb, or a synonym, that is probably meant; None where none is similar.

    A verb that ends machines is meant only by a word with its first letter and its letters: in another order, with one
    more, or without the last.
    """
    for risky in sorted(RISKY):
        is_typo = sorted(word) == sorted(risky) or word == risky[:-1] or _has_one_letter_more(word, risky)
        if word[:1] == risky[0] and is_typo:
            return risky
    harmless_synonyms = sorted({*SYNONYMS, "help", "version"} - RISKY)
    (verb_similarity, verb), (synonym_similarity, synonym) = (
        _nearest(word, sorted(VERBS.keys() - RISKY)),
        _nearest(word, harmless_synonyms),
    )
    if max(verb_similarity, synonym_similarity) < _MIN_SIMILARITY:
        return None
    return verb if verb_similarity + _VERB_BONUS >= synonym_similarity else synonym


def _nearest(word: str, candidates: list[str]) -> tuple[float, str]:
    return max((difflib.SequenceMatcher(None, candidate, word.lower()).ratio(), candidate) for candidate in candidates)


def _has_one_letter_more(longer: str, shorter: str) -> bool:
    return any(longer[:index] + longer[index + 1 :] == shorter for index in range(len(longer)))


def _config_file() -> str:
    from cloudgpu.config.files.user_files import find_home

    try:
        return str(find_home(os.environ).config_file)
    except CloudgpuError:  # a CLOUDGPU_HOME that is none
        return "config.toml in CLOUDGPU_HOME"
