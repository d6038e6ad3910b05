"""Finds policies (how long machines live and what ends them) and limits by name: in files, and in the ledger.

The ledger entry of a launch has the texts of its policy and limits, as the machine's `terms`, so that every home
decides by the same. The home that has the files reads them again, and its runs of the reaper record changes in the
ledger; every other home uses the terms in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cloudgpu.config.files.user_files import data_dir, project_dirs, read_text, shown, yaml_names
from cloudgpu.config.files.yaml import Table, parse_yaml, read_named_yaml
from cloudgpu.config.policies.kinds import Kind, WrongValue
from cloudgpu.config.policies.schema import LIMITS, POLICY, Key, Keys, Section
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import terms_set
from cloudgpu.core.model.facts import Terms, TermsText
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.policies.policy import (
    NO_LIMITS,
    Idle,
    LabelRule,
    Limits,
    MachineBudget,
    Policy,
    Retention,
    RuleAction,
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

_LEDGER_PATH = Path("ledger")  # what errors give as the file of a published text
_ORIGIN_AT_LAUNCH = "the ledger, as the home that launched it last read it"
LIMITS_NAME = "limits"  # a file of this name beside the policies has the lab's limits; it is no policy


@dataclass(frozen=True, slots=True)
class FoundPolicy:
    """A policy and its file."""

    policy: Policy
    path: Path
    origin: str = ""  # who published it in the ledger, and when; empty for a file


def load_policy(name: str, *, search: Sequence[Path] = (), tz: str = "UTC") -> FoundPolicy:
    """Return the policy called `name`: the first in the directories of `search`, else the shipped one.

    `tz` is the time zone of a schedule that names none.

    Raises InvalidRequest for an unknown name, with the nearest name, and for an error in the file, with its line.
    """
    if name == LIMITS_NAME:
        raise _name_error(name, search)
    check_policy_name(name, search=search)
    for directory in (*search, data_dir("policies")):
        table = read_named_yaml(directory, name)
        if table is not None:
            return FoundPolicy(policy_from(table, name, tz=tz), table.path)
    names = policy_names(search=search)
    suggestion = f", or write {search[-1] / name}.yaml" if search else ""
    raise unknown_word(
        f"No policy is called {name!r}",
        name,
        names,
        field="policy",
        next=f"Use one of: {', '.join(names)}{suggestion}.",
    )


def check_policy_name(name: str, *, search: Sequence[Path] = ()) -> None:
    """Raise InvalidRequest for what cannot be the name of a policy, or of the limits."""
    if not NAME.fullmatch(name):
        raise _name_error(name, search)


def _name_error(name: str, search: Sequence[Path]) -> InvalidRequest:
    rule = "limits.yaml holds the lab's limits" if name == LIMITS_NAME else NAME_RULE
    return InvalidRequest(
        f"{shown(name)!r} cannot be a policy's name: {rule}.",
        field="policy",
        value=shown(name),
        next=f"Use one of: {', '.join(policy_names(search=search))}.",
    )


def policy_names(*, search: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the names of all policies there are, sorted."""
    return tuple(name for name in yaml_names("policies", search) if name != LIMITS_NAME)


def policy_paths(home: Home) -> tuple[Path, ...]:
    """Return where policies are looked for before the shipped ones: the project's, then the user's own."""
    return (*project_dirs("policies"), home.policies)


def lab_limits(published: Mapping[str, Published]) -> Limits:
    """Return the limits that are published; without any, no limits."""
    limits = published.get(LIMITS_NAME)
    if limits is None:
        return NO_LIMITS
    return replace(limits_from(parse_yaml(limits.text, _LEDGER_PATH / f"{LIMITS_NAME}.yaml")), sources=(limits.origin,))


def published_policy(published: Mapping[str, Published], name: str) -> FoundPolicy | None:
    """Return the published policy of this name, None for none such; raise InvalidRequest for an error in it."""
    policy = published.get(name)
    if policy is None or name == LIMITS_NAME:
        return None
    file = _LEDGER_PATH / f"{policy.name}.yaml"
    return FoundPolicy(policy_from(parse_yaml(policy.text, file), policy.name, tz=policy.tz), file, policy.origin)


@dataclass(frozen=True, slots=True)
class HomeTerms:
    """The settings of a home that decide the terms of its machines.

    `search` are the directories of its policies, its own last; `tz` is the time zone of schedules that name none;
    `policy` is the default policy, if none of `choices` applies; `price_jump` is the factor by which a price has to
    move to raise an alert, as text.
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


def is_launched_by(home: HomeTerms, machine: Machine) -> bool:
    """Say whether this home launched a machine, so that its files apply."""
    terms = machine.terms
    return terms is not None and bool(terms.home == home.id)


def policy_of_terms(terms: Terms, name: str, *, launched_here: bool) -> FoundPolicy | None:
    """Return the policy in a machine's terms, None for a shipped one; raise InvalidRequest for an error in it."""
    policy_text = terms.policy
    if policy_text is None:
        return None
    file_exists = launched_here and policy_text.place is not None and Path(policy_text.place).is_file()
    file = Path(str(policy_text.place)) if file_exists else Path("ledger") / f"{name}.yaml"
    return FoundPolicy(
        policy_from(parse_yaml(policy_text.text, file), name, tz=str(policy_text.tz)),
        file,
        "" if file_exists else _ORIGIN_AT_LAUNCH,
    )


def limits_of_terms(terms: Terms) -> Limits:
    """Return the narrowest of the limits in a machine's terms; raise InvalidRequest for an error in one."""
    return narrowest_limits(
        limits_from(parse_yaml(limits_text.text, Path(str(limits_text.place)))) for limits_text in terms.limits
    )


def terms_for_launch(home: HomeTerms, policy: FoundPolicy, published: Mapping[str, Published]) -> Terms:
    """Return the terms of a launch from this home under this policy.

    Their `policy` is None for a shipped policy, its `place` None for a published one. `price_jump` is the home's
    setting, so that an alert has one threshold in all homes; `tz`, too, so that a shipped schedule has one clock.
    """
    policy_text = _policy_text(home, policy, published)
    limits = [_terms_text(directory / LIMITS_FILE) for directory in home.search]
    return Terms(
        home.id,
        policy_text,
        tuple([one for one in limits if one is not None]),
        home.price_jump,
        home.tz if policy_text is None else None,
    )


def _policy_text(home: HomeTerms, policy: FoundPolicy, published: Mapping[str, Published]) -> TermsText | None:
    if policy.origin:
        publication = published[policy.policy.name]
        return TermsText(None, publication.text, publication.tz)
    if policy.path.parent == data_dir("policies"):
        return None
    text = _terms_text(policy.path)
    return None if text is None else text._replace(tz=home.tz)


def current_terms(home: HomeTerms, machine: Machine) -> Terms:
    """Return a machine's terms; if this home launched it, with the texts of its files as they are now.

    A file that was deleted leaves its last text, except this home's own limits. Raises InvalidRequest for a file that
    cannot be read. The machine has to have terms.
    """
    terms = not_none(machine.terms)
    if not is_launched_by(home, machine):
        return terms
    own_limits = str(home.policies / LIMITS_FILE)
    stored_texts = {not_none(one.place): one for one in terms.limits}
    read_texts = {path: _terms_text(Path(path)) for path in dict.fromkeys([*stored_texts, own_limits])}
    limits = [text or (None if path == own_limits else stored_texts[path]) for path, text in read_texts.items()]
    policy_text = _current_policy_text(home, machine, terms)
    return terms._replace(
        policy=policy_text,
        limits=tuple([one for one in limits if one is not None]),
        price_jump=home.price_jump,
        tz=home.tz if policy_text is None else None,
    )


def _current_policy_text(home: HomeTerms, machine: Machine, terms: Terms) -> TermsText | None:
    """Return the current text of a machine's policy: that of its file, also if a new file hides a shipped policy."""
    stored_text = terms.policy
    if stored_text is not None and stored_text.place is None:
        return stored_text
    path = stored_text and stored_text.place
    text = _terms_text(Path(path) if path else home.policies / f"{machine.policy}.yaml")
    return stored_text if text is None else text._replace(tz=home.tz)


def _terms_text(path: Path) -> TermsText | None:
    text = read_text(path, path.name)
    return None if text is None else TermsText(str(path), text)


def changed_terms(home: HomeTerms, machines: Sequence[Machine], now: datetime) -> Iterator[Draft]:
    """Yield a ledger entry for each machine of this home whose policy or limits have changed."""
    terms_by_key: dict[str, Terms] = {}
    for machine in machines:
        if not machine.policy or machine.terminated_at is not None or not is_launched_by(home, machine):
            continue
        cache_key = repr((machine.policy, machine.terms))
        if cache_key not in terms_by_key:
            terms_by_key[cache_key] = current_terms(home, machine)
        if terms_by_key[cache_key] != machine.terms:
            yield terms_set(machine.id, terms_by_key[cache_key], now)


Values = dict[str, Any]
_PERCENT = 100  # by which the policy key `samples` is divided to become a fraction
MAX_AGENT_HISTORY = timedelta(days=1)  # how long agents keep samples (`cloudgpu/agent/sampler.py`)
# Keys that users may expect in a policy, and where such a setting is instead.
_HINTS = {
    "on": "cloudgpu ends machines by the clock and starts none; cron can: cloudgpu start NAME --yes.",
    "hold": "A hold is set on a machine: cloudgpu hold NAME 2h.",
    "budgets": "Budgets of projects and people have files of their own: policies/budgets.",
}


def policy_from(table: Table, name: str, *, tz: str = "UTC") -> Policy:
    """Return the policy that a file's table describes; `tz` is the zone of a schedule that names none.

    Raises InvalidRequest with the line and field of an error, also for contradictions.
    """
    values = read_keys(table, POLICY)
    lease, renew_until = values["lease"], values["renew_until"]
    if renew_until < lease:
        raise table.error(
            "renew_until",
            f"is shorter than the lease ({duration_text(lease)}): a machine could not live to the end of its lease",
            next="Make it at least as long as the lease.",
        )
    _check_applies_before_end(table, values, renew_until)
    return Policy(
        name,
        lease,
        renew_until,
        Unpausable(values.get("spot", {}).get("unpausable", Unpausable.PARK)),
        values.get("description", ""),
        _idle_rule(table, values.get("idle", {})),
        tuple(_schedule(schedule, tz) for schedule in values.get("schedule", ())),
        Unknown(values.get("unknown", Unknown.RENEW)),
        **_optional_rules(values),
    )


def rules_from(table: Table, name: str, *, tz: str = "UTC") -> Policy | Limits:
    """Return what a file's table describes: the limits if they are named, else a policy. Raises InvalidRequest."""
    return limits_from(table) if name == LIMITS_NAME else policy_from(table, name, tz=tz)


def read_keys(table: Table, keys: Keys) -> Values:
    """Return a table's values, each read as its key's kind; raise InvalidRequest for the first error."""
    _check_keys(table, table.values, keys, "")
    for name, key in keys.items():
        if isinstance(key, Key) and key.needed and name not in table.values:
            raise table.error(name, "is missing", next=f"Add a line that begins with {name}:")
    return {name: _value(table, name, value, keys[name]) for name, value in table.values.items()}


def _value(table: Table, path: str, value: Any, key: Key | Section) -> Any:
    if isinstance(key, Key):
        return _read(table, path, value, key.kind)
    if not key.many:
        return _section(table, path, value, key)
    items = {f"{path}[{number}]": item for number, item in enumerate(value)} if isinstance(value, list) else None
    if items == {}:
        raise table.error(path, "is an empty list", next="Write one, or remove the key.")
    return tuple(_section(table, option, item, key) for option, item in (items or {path: value}).items())


def _section(table: Table, path: str, value: Any, section: Section) -> Values:
    if not isinstance(value, dict):
        example_key = next(iter(section.keys))
        raise table.error(path, "has to be a table", next=f"Write lines like `  {example_key}: ...` below it.")
    _check_keys(table, value, section.keys, f"{path}.")
    for name, key in section.keys.items():
        if key.needed and name not in value:
            raise table.error(path, f"does not say {name}", next=f"Add a line `  {name}: ...` below it.")
    return {name: _read(table, f"{path}.{name}", item, section.keys[name].kind) for name, item in value.items()}


def _read(table: Table, path: str, value: Any, kind: Kind) -> Any:
    try:
        return kind.read(value)
    except WrongValue as error:
        raise table.error(path, error.problem, next=error.next) from None


def _check_keys(table: Table, values: Any, keys: Keys, prefix: str) -> None:
    for name in values:
        if name not in keys:
            problem = "is not a known key" + did_you_mean(None if name in _HINTS else closest_match(name, keys))
            remedy = _HINTS.get(name) or f"Use one of: {', '.join(keys)}."
            raise table.error(f"{prefix}{name}", problem, next=remedy)


def _check_applies_before_end(table: Table, values: Values, renew_until: timedelta) -> None:
    """Raise InvalidRequest for a rule that could never apply, since the machine is terminated before."""
    for section, key in (("idle", "after"), ("idle", "uptime"), ("unlabelled", "after")):
        duration = values.get(section, {}).get(key)
        if duration is not None and duration > renew_until:
            raise table.error(
                f"{section}.{key}",
                f"is {duration_text(duration)}, longer than renew_until ({duration_text(renew_until)}): it never comes",
                next="Make it shorter, or renew_until longer.",
            )


def _idle_rule(table: Table, values: Values) -> Idle:
    """Return the rule about idle time; a grace that is left out is never longer than `after`."""
    defaults = Idle()
    after = values.get("after", defaults.after)
    grace = values.get("grace", min(defaults.grace, after))
    if after > MAX_AGENT_HISTORY:
        raise table.error(
            "idle.after",
            f"is {duration_text(after)}, and machines remember a day: none would ever be known to be idle so long",
            next="Make it 24h or shorter; who wants no end for idle time says do: off.",
        )
    if grace > after:
        _raise_grace_too_long(table, grace, after)
    thresholds = {
        name: values[name] for name in ("gpu", "cpu", "network", "disk", "terminal_output", "uptime") if name in values
    }
    return Idle(
        after=after,
        grace=grace,
        do=RuleAction(values.get("do", defaults.do)),
        scratch=RuleAction(values.get("scratch", defaults.scratch)),
        share=values["samples"] / _PERCENT if "samples" in values else defaults.share,
        **thresholds,
    )


def _raise_grace_too_long(table: Table, grace: timedelta, after: timedelta) -> NoReturn:
    raise table.error(
        "idle.grace",
        f"is {duration_text(grace)}, longer than idle.after ({duration_text(after)})",
        next="A warning is waited out for at most as long as it took to be given.",
    )


def _schedule(values: Values, tz: str) -> Schedule:
    days, excepted_dates = values.get("days", EVERY_DAY), values.get("except", frozenset())
    return Schedule(values.get("tz", tz), values["off"], days, excepted_dates, values.get("until"))


def _optional_rules(values: Values) -> Values:
    """Return the rules that have no default."""
    rules: Values = {}
    if (rule := values.get("budget")) is not None:
        rules["budget"] = MachineBudget(rule["amount"], RuleAction(rule.get("do", RuleAction.WARN)))
    if (rule := values.get("unlabelled")) is not None:
        required = rule.get("require", ("owner", "project"))
        rules["unlabelled"] = LabelRule(required, rule["after"], RuleAction(rule.get("do", RuleAction.WARN)))
    for name in ("stopped", "images"):
        if (rule := values.get(name)) is not None:
            rules[name] = Retention(rule["after"], RuleAction(rule.get("do", RuleAction.WARN)))
    return rules


LIMITS_FILE = "limits.yaml"


def load_limits(search: Sequence[Path]) -> Limits:
    """Return the narrowest of the limits in every `limits.yaml` of these directories; without one, no limits.

    Raises InvalidRequest, with file and line, for the first error.
    """
    tables = (read_named_yaml(directory, LIMITS_NAME) for directory in search)
    return narrowest_limits(limits_from(table) for table in tables if table is not None)


def limits_from(table: Table) -> Limits:
    """Return the limits in a file's table; raise InvalidRequest with the line and field of an error."""
    values = read_keys(table, LIMITS)
    lease, renew_until, idle_after = values.get("lease"), values.get("renew_until"), values.get("idle_after")
    if lease and renew_until and lease > renew_until:
        raise table.error(
            "lease",
            f"is longer than renew_until ({duration_text(renew_until)})",
            next="No machine can have a lease longer than its renew-until.",
        )
    if idle_after and renew_until and idle_after > renew_until:
        raise table.error(
            "idle_after",
            f"is longer than renew_until ({duration_text(renew_until)}), so it limits nothing",
            next="Make it shorter, or leave it out.",
        )
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
