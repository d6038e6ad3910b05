"""Policies: how long machines live and what ends them, as data, found by name: in files, and in the ledger.

What a launch is under stays in the ledger: the texts of its policy and limits, so that every pass goes by the same. A
file lies in one home. What it said at the launch stands in the launch's line, as the row's `terms`. The home where it
lies reads it anew, and its passes write what has changed; every other home goes by what stands in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cloudgpu.config.files.user_files import data_dir, file_names, read_text, shown
from cloudgpu.config.files.yaml import Table, parse_yaml, read_yaml
from cloudgpu.config.policies.kinds import Kind, Misread
from cloudgpu.config.policies.schema import LIMITS, POLICY, Key, Keys, Section
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import terms_set
from cloudgpu.core.model.facts import Terms, TermsText
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.policies.policy import (
    NO_LIMITS,
    Act,
    Idle,
    LabelRule,
    Limits,
    MachineBudget,
    Policy,
    Retention,
    Stoppers,
    Unknown,
    Unpausable,
    narrowest_limits,
)
from cloudgpu.core.policies.schedule import EVERY_DAY, Schedule
from cloudgpu.core.values.naming import NAME, NAME_RULE, closest_match, did_you_mean, unknown_word
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.config.files.user_files import Home
    from cloudgpu.core.policies.description import Choices
    from cloudgpu.core.team.rights import Published

_PLACE = Path("ledger")  # where errors say that a published text stands
_AT_LAUNCH = "the ledger, as the home that launched it last read it"
LIMITS_NAME = "limits"  # a file of this name beside the policies is the lab's limits, and no policy


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
    if name == LIMITS_NAME:
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
    return tuple(name for name in file_names("policies", search) if name != LIMITS_NAME)


def _rule_of(name: str) -> str:
    return "limits.yaml holds the lab's limits" if name == LIMITS_NAME else NAME_RULE


def policy_paths(home: Home) -> tuple[Path, ...]:
    """Return where policies are looked for before the shipped ones: the project's, then the user's own."""
    return (Path.cwd() / ".cloudgpu" / "policies", home.policies)


def lab_limits(published: Mapping[str, Published]) -> Limits:
    """Return the limits that are published; without any, no limits."""
    one = published.get(LIMITS_NAME)
    if one is None:
        return NO_LIMITS
    return replace(limits_from(parse_yaml(one.text, _PLACE / f"{LIMITS_NAME}.yaml")), places=(one.origin,))


def published_policy(published: Mapping[str, Published], name: str) -> Found | None:
    """Return the published policy of this name, None for none such; raise InvalidRequest for a fault in it."""
    one = published.get(name)
    if one is None or name == LIMITS_NAME:
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


Values = dict[str, Any]
_SHARE = 100  # samples are written in percent
REMEMBERED = timedelta(days=1)  # by agents, and no more of it is asked for (`cloudgpu.agent.sampler`)
# What somebody may look for here, and where it is.
_ELSEWHERE = {
    "on": "cloudgpu ends machines by the clock and starts none; cron can: cloudgpu start NAME --yes.",
    "hold": "A hold is set on a machine: cloudgpu hold NAME 2h.",
    "budgets": "Budgets of projects and people have files of their own: policies/budgets.",
}


def policy_from(table: Table, name: str, *, tz: str = "UTC") -> Policy:
    """Return the policy that a file's table describes; `tz` is the zone of a schedule that names none.

    Raises InvalidRequest with the line and field of a fault, also for what contradicts itself.
    """
    values = read_keys(table, POLICY)
    lease, renew_until = values["lease"], values["renew_until"]
    if renew_until < lease:
        says = f"is shorter than the lease ({duration_text(lease)}): a machine could not live to the end of its lease"
        raise table.fault("renew_until", says, next="Make it at least as long as the lease.")
    _check_reached(table, values, renew_until)
    return Policy(
        name,
        lease,
        renew_until,
        Unpausable(values.get("spot", {}).get("unpausable", Unpausable.PARK)),
        values.get("description", ""),
        _idle(table, values.get("idle", {})),
        tuple(_schedule(one, tz) for one in values.get("schedule", ())),
        Unknown(values.get("unknown", Unknown.RENEW)),
        **_rules(values),
    )


def read_keys(table: Table, keys: Keys) -> Values:
    """Return what a table says, each value read as its key's kind; raise InvalidRequest for the first fault."""
    _check_keys(table, table.values, keys, "")
    for name, key in keys.items():
        if isinstance(key, Key) and key.needed and name not in table.values:
            raise table.fault(name, "is missing", next=f"Add a line that begins with {name}:")
    return {name: _value(table, name, value, keys[name]) for name, value in table.values.items()}


def _value(table: Table, path: str, value: Any, key: Key | Section) -> Any:
    if isinstance(key, Key):
        return _read(table, path, value, key.kind)
    if not key.many:
        return _section(table, path, value, key)
    items = {f"{path}[{number}]": item for number, item in enumerate(value)} if isinstance(value, list) else None
    if items == {}:
        raise table.fault(path, "is an empty list", next="Write one, or remove the key.")
    return tuple(_section(table, option, item, key) for option, item in (items or {path: value}).items())


def _section(table: Table, path: str, value: Any, section: Section) -> Values:
    if not isinstance(value, dict):
        first = next(iter(section.keys))
        raise table.fault(path, "has to be a table", next=f"Write lines like `  {first}: ...` below it.")
    _check_keys(table, value, section.keys, f"{path}.")
    for name, key in section.keys.items():
        if key.needed and name not in value:
            raise table.fault(path, f"does not say {name}", next=f"Add a line `  {name}: ...` below it.")
    return {name: _read(table, f"{path}.{name}", one, section.keys[name].kind) for name, one in value.items()}


def _read(table: Table, path: str, value: Any, kind: Kind) -> Any:
    try:
        return kind.read(value)
    except Misread as error:
        raise table.fault(path, error.says, next=error.next) from None


def _check_keys(table: Table, values: Any, keys: Keys, prefix: str) -> None:
    for name in values:
        if name not in keys:
            says = "is not a known key" + did_you_mean(None if name in _ELSEWHERE else closest_match(name, keys))
            way_out = _ELSEWHERE.get(name) or f"Use one of: {', '.join(keys)}."
            raise table.fault(f"{prefix}{name}", says, next=way_out)


def _check_reached(table: Table, values: Values, renew_until: timedelta) -> None:
    """Refuse a rule that could never hold, since the machine is ended before: whoever wrote it believes in it."""
    for section, key in (("idle", "after"), ("idle", "uptime"), ("unlabelled", "after")):
        span = values.get(section, {}).get(key)
        if span is not None and span > renew_until:
            says = f"is {duration_text(span)}, longer than renew_until ({duration_text(renew_until)}): it never comes"
            raise table.fault(f"{section}.{key}", says, next="Make it shorter, or renew_until longer.")


def _idle(table: Table, values: Values) -> Idle:
    """Return the rule about idle time; a grace that is left out is never longer than `after`."""
    usual = Idle()
    after = values.get("after", usual.after)
    grace = values.get("grace", min(usual.grace, after))
    if after > REMEMBERED:
        says = f"is {duration_text(after)}, and machines remember a day: none would ever be known to be idle so long"
        raise table.fault(
            "idle.after", says, next="Make it 24h or shorter; who wants no end for idle time says do: off."
        )
    if grace > after:
        _refuse_grace(table, grace, after)
    rest = {
        name: values[name] for name in ("gpu", "cpu", "network", "disk", "terminal_output", "uptime") if name in values
    }
    return Idle(
        after=after,
        grace=grace,
        do=Act(values.get("do", usual.do)),
        scratch=Act(values.get("scratch", usual.scratch)),
        share=values["samples"] / _SHARE if "samples" in values else usual.share,
        **rest,
    )


def _refuse_grace(table: Table, grace: timedelta, after: timedelta) -> NoReturn:
    says = f"is {duration_text(grace)}, longer than idle.after ({duration_text(after)})"
    raise table.fault("idle.grace", says, next="A warning is waited out for at most as long as it took to be given.")


def _schedule(values: Values, tz: str) -> Schedule:
    days, excepts = values.get("days", EVERY_DAY), values.get("except", frozenset())
    return Schedule(values.get("tz", tz), values["off"], days, excepts, values.get("until"))


def _rules(values: Values) -> Values:
    """Return the rules that only hold where they are written."""
    found: Values = {}
    if (rule := values.get("budget")) is not None:
        found["budget"] = MachineBudget(rule["amount"], Act(rule.get("do", Act.WARN)))
    if (rule := values.get("unlabelled")) is not None:
        required = rule.get("require", ("owner", "project"))
        found["unlabelled"] = LabelRule(required, rule["after"], Act(rule.get("do", Act.WARN)))
    for name in ("stopped", "images"):
        if (rule := values.get(name)) is not None:
            found[name] = Retention(rule["after"], Act(rule.get("do", Act.WARN)))
    return found


FILE = "limits.yaml"


def load_limits(search: Sequence[Path]) -> Limits:
    """Return the narrowest of what every `limits.yaml` in these directories says; without one, no limits.

    Raises InvalidRequest, with file and line, for the first fault.
    """
    tables = (read_yaml(directory / FILE) for directory in search)
    return narrowest_limits(limits_from(table) for table in tables if table is not None)


def limits_from(table: Table) -> Limits:
    """Return the limits that a file's table says; raise InvalidRequest with the line and field of a fault."""
    values = read_keys(table, LIMITS)
    lease, renew_until, idle_after = values.get("lease"), values.get("renew_until"), values.get("idle_after")
    if lease and renew_until and lease > renew_until:
        says = f"is longer than renew_until ({duration_text(renew_until)})"
        raise table.fault("lease", says, next="No machine can have a lease longer than its renew-until.")
    if idle_after and renew_until and idle_after > renew_until:
        says = f"is longer than renew_until ({duration_text(renew_until)}), so it limits nothing"
        raise table.fault("idle_after", says, next="Make it shorter, or leave it out.")
    stop = Stoppers(values["stop"]) if "stop" in values else None
    return Limits(
        lease,
        renew_until,
        idle_after,
        values.get("policies"),
        values.get("payers", ()),
        stop,
        values.get("price_jump"),
        (str(table.path),),
    )
