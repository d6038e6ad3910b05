"""Policies: how long machines live and what ends them, as data, found by name: in files, and in the ledger.

What a launch is under stays in the ledger: the texts of its policy and limits, so that every pass goes by the same. A
file lies in one home. What it said at the launch stands in the launch's line, as the row's `terms`. The home where it
lies reads it anew, and its passes write what has changed; every other home goes by what stands in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.config.files.paths import data_dir, file_names
from cloudgpu.config.files.text import read_text, shown
from cloudgpu.config.files.yaml import parse_yaml, read_yaml
from cloudgpu.config.policies.file import FILE, limits_from, policy_from
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import terms_set
from cloudgpu.core.model.facts import Terms, TermsText
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.policies.limits import NO_LIMITS, Limits, narrowest_limits
from cloudgpu.core.policies.policy import Policy
from cloudgpu.core.values.naming import NAME, NAME_RULE, unknown_word
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.config.files.paths import Home
    from cloudgpu.core.policies.description import Choices
    from cloudgpu.core.team.rights import Published

_PLACE = Path("ledger")  # where errors say that a published text stands
_AT_LAUNCH = "the ledger, as the home that launched it last read it"
LIMITS = "limits"  # a file of this name beside the policies is the lab's limits, and no policy


@dataclass(frozen=True, slots=True)
class Found:
    """A policy and the file that says it."""

    policy: Policy
    path: Path
    origin: str = ""  # who published it in the ledger, and when; empty for a file


def load_policy(name: str, *, search: Sequence[Path] = (), tz: str = "UTC") -> Found:
    """Return the policy called `name`: the first in the directories of `search`, else the shipped one.

    `tz` is the time zone of a schedule that names none.

    Raises InvalidRequest for an unknown name, with the near one, and for a fault in the file, with its line.
    """
    if name == LIMITS:
        raise _no_name(name, search)
    check_policy_name(name, search=search)
    for directory in (*search, data_dir("policies")):
        table = read_yaml(directory / f"{name}.yaml")
        if table is not None:
            return Found(policy_from(table, name, tz=tz), table.path)
    names = policy_names(search=search)
    own = f", or write {search[-1] / name}.yaml" if search else ""
    raise unknown_word(
        f"No policy is called {name!r}", name, names, field="policy", next=f"Use one of: {', '.join(names)}{own}."
    )


def check_policy_name(name: str, *, search: Sequence[Path] = ()) -> None:
    """Raise InvalidRequest for what cannot be the name of a policy, or of the limits."""
    if not NAME.fullmatch(name):
        raise _no_name(name, search)


def _no_name(name: str, search: Sequence[Path]) -> InvalidRequest:
    return InvalidRequest(
        f"{shown(name)!r} cannot be a policy's name: {_rule_of(name)}.",
        field="policy",
        value=shown(name),
        next=f"Use one of: {', '.join(policy_names(search=search))}.",
    )


def policy_names(*, search: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the names of all policies there are, sorted."""
    return tuple(name for name in file_names("policies", search) if name != LIMITS)


def _rule_of(name: str) -> str:
    return "limits.yaml holds the lab's limits" if name == LIMITS else NAME_RULE


def policy_paths(home: Home) -> tuple[Path, ...]:
    """Return where policies are looked for before the shipped ones: the project's, then the user's own."""
    return (Path.cwd() / ".cloudgpu" / "policies", home.policies)


def lab_limits(published: Mapping[str, Published]) -> Limits:
    """Return the limits that are published; without any, no limits."""
    one = published.get(LIMITS)
    if one is None:
        return NO_LIMITS
    return replace(limits_from(parse_yaml(one.text, _PLACE / f"{LIMITS}.yaml")), places=(one.origin,))


def published_policy(published: Mapping[str, Published], name: str) -> Found | None:
    """Return the published policy of this name, None for none such; raise InvalidRequest for a fault in it."""
    one = published.get(name)
    if one is None or name == LIMITS:
        return None
    file = _PLACE / f"{one.name}.yaml"
    return Found(policy_from(parse_yaml(one.text, file), one.name, tz=one.tz), file, one.origin)


@dataclass(frozen=True, slots=True)
class HomeTerms:
    """What a home says of its machines.

    `search` is where its policies are looked for, its own directory last; `tz` the time zone of schedules that name
    none; `policy` the usual one, where no word of `choices` counts.
    """

    id: str
    search: tuple[Path, ...]
    tz: str
    price_jump: str
    policy: str
    choices: Choices | None

    @property
    def policies(self) -> Path:
        """The directory of its own policies."""
        return self.search[-1]


def is_from(home: HomeTerms, machine: Machine) -> bool:
    """Say whether this home has launched a machine: its files are the ones that count."""
    terms = machine.terms
    return terms is not None and bool(terms.home == home.id)


def policy_in(terms: Terms, name: str, *, here: bool) -> Found | None:
    """Return the policy that stands in a machine's terms, None for a shipped one; raise InvalidRequest for a fault."""
    one = terms.policy
    if one is None:
        return None
    is_there = here and one.place is not None and Path(one.place).is_file()
    file = Path(str(one.place)) if is_there else Path("ledger") / f"{name}.yaml"
    return Found(policy_from(parse_yaml(one.text, file), name, tz=str(one.tz)), file, "" if is_there else _AT_LAUNCH)


def limits_in(terms: Terms) -> Limits:
    """Return the narrowest of the limits that stand in a machine's terms; raise InvalidRequest for a fault."""
    return narrowest_limits(limits_from(parse_yaml(one.text, Path(str(one.place)))) for one in terms.limits)


def terms_of(home: HomeTerms, found: Found, published: Mapping[str, Published]) -> Terms:
    """Return what a launch from this home under this policy is under.

    `policy` is None for a shipped policy, and its `place` for a published one. `price_jump` is the home's setting: an
    alert has one threshold, whoever's pass raises it.
    """
    limits = [_text_at(directory / FILE) for directory in home.search]
    return Terms(
        home.id,
        _policy_text(home, found, published),
        tuple([one for one in limits if one is not None]),
        home.price_jump,
    )


def _policy_text(home: HomeTerms, found: Found, published: Mapping[str, Published]) -> TermsText | None:
    if found.origin:
        one = published[found.policy.name]
        return TermsText(None, one.text, one.tz)
    if found.path.parent == data_dir("policies"):
        return None
    text = _text_at(found.path)
    return None if text is None else text._replace(tz=home.tz)


def terms_now(home: HomeTerms, machine: Machine) -> Terms:
    """Return the terms of a row that has some: of a machine that this home has launched, with the files as they are.

    A file that is gone leaves what it said, but for this home's own limits. Raises InvalidRequest for a file that
    cannot be read.
    """
    terms = not_none(machine.terms)
    if not is_from(home, machine):
        return terms
    own = str(home.policies / FILE)
    known = {not_none(one.place): one for one in terms.limits}
    read = {path: _text_at(Path(path)) for path in dict.fromkeys([*known, own])}
    limits = [text or (None if path == own else known[path]) for path, text in read.items()]
    return terms._replace(
        policy=_policy_now(home, machine, terms),
        limits=tuple([one for one in limits if one is not None]),
        price_jump=home.price_jump,
    )


def _policy_now(home: HomeTerms, machine: Machine, terms: Terms) -> TermsText | None:
    """Return the text of the policy; a file of this home that has the name of a shipped one counts from now on."""
    known = terms.policy
    if known is not None and known.place is None:
        return known
    path = known and known.place
    text = _text_at(Path(path) if path else home.policies / f"{machine.policy}.yaml")
    return known if text is None else text._replace(tz=home.tz)


def _text_at(path: Path) -> TermsText | None:
    text = read_text(path, path.name)
    return None if text is None else TermsText(str(path), text)


def changed_terms(home: HomeTerms, machines: Sequence[Machine], now: datetime) -> Iterator[Draft]:
    """Yield a line for each machine of this home whose policy or limits say something else by now."""
    read: dict[str, Terms] = {}
    for machine in machines:
        if not machine.policy or machine.terminated_at is not None or not is_from(home, machine):
            continue
        words = repr((machine.policy, machine.terms))
        if words not in read:
            read[words] = terms_now(home, machine)
        if read[words] != machine.terms:
            yield terms_set(machine.id, read[words], now)
