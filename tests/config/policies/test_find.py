from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, time, timedelta
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, strategies as st

from cloudgpu.config.files.user_files import Home, data_dir
from cloudgpu.config.files.yaml import parse_yaml
from cloudgpu.config.policies.find import load_policy, policy_from, policy_names, policy_paths
from cloudgpu.config.policies.schema import POLICY, Key, flattened_keys, limits_schema, policy_schema
from cloudgpu.core.policies.policy import (
    Idle,
    LabelRule,
    MachineBudget,
    Policy,
    Retention,
    RuleAction,
    Unknown,
    Unpausable,
    thresholds,
)
from cloudgpu.core.policies.schedule import Schedule
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest

USUAL = "lease: 8h\nrenew_until: 3d\n"
MINUTE = timedelta(minutes=1)
FULL = """\
description: all of it
lease: 8h
renew_until: 3d
unknown: end
idle:
  after: 45m
  grace: 5m
  do: warn
  gpu: 7.5
  cpu: 1
  network: 2 MB/s
  disk: 500kB/s
  terminal_output: 3h
  samples: 80
  uptime: 20m
  scratch: stop
schedule:
  - off: 19:00
    days: weekdays
    tz: Europe/Paris
    except: [2026-12-24, 2026-12-31 to 2027-01-02]
  - off: "7:05"
    days: [sat, sun]
    until: mon 6:30
spot:
  unpausable: warn
budget:
  amount: 12.50
  do: stop
unlabelled:
  require: [owner]
  after: 2h
  do: stop
stopped:
  after: 14d
  do: image
images:
  after: 60d
  do: remove
"""
READ = Policy(
    "own",
    timedelta(hours=8),
    timedelta(days=3),
    Unpausable.WARN,
    "all of it",
    Idle(
        after=45 * MINUTE,
        grace=5 * MINUTE,
        do=RuleAction.WARN,
        gpu=7.5,
        cpu=1.0,
        network=2e6,
        disk=5e5,
        terminal_output=180 * MINUTE,
        share=0.8,
        uptime=20 * MINUTE,
        scratch=RuleAction.STOP,
    ),
    (
        Schedule(
            "Europe/Paris",
            time(19),
            frozenset(range(5)),
            frozenset({date(2026, 12, 24), date(2026, 12, 31), date(2027, 1, 1), date(2027, 1, 2)}),
        ),
        Schedule("Asia/Seoul", time(7, 5), frozenset({5, 6}), until=(0, time(6, 30))),
    ),
    Unknown.END,
    MachineBudget(Money.usd("12.50"), RuleAction.STOP),
    LabelRule(("owner",), timedelta(hours=2), RuleAction.STOP),
    Retention(timedelta(days=14), RuleAction.IMAGE),
    Retention(timedelta(days=60), RuleAction.REMOVE),
)


def policy(text):
    return policy_from(parse_yaml(text, Path("/p/own.yaml")), "own")


def fits(text, schema=None):
    """Say whether an editor that knows the published schema finds nothing wrong."""
    try:
        jsonschema.validate(dict(parse_yaml(text, Path("own.yaml")).values), schema or policy_schema())
    except jsonschema.ValidationError:
        return False
    return True


def fault(text):
    with pytest.raises(InvalidRequest) as caught:
        policy(text)
    return caught.value


def test_the_usual_policy_is_a_working_day_and_parks():
    usual = load_policy("default").policy
    assert (usual.lease, usual.renew_until) == (timedelta(hours=8), timedelta(hours=72))
    assert usual.unpausable is Unpausable.PARK


def test_the_throwaway_policy_keeps_nothing():
    assert load_policy("throwaway").policy.unpausable is Unpausable.TERMINATE


def test_the_policy_of_jobs_stops_soon_and_keeps_the_disk():
    found = load_policy("job").policy
    assert (found.idle.after, found.idle.grace) == (timedelta(minutes=10), timedelta(minutes=2))
    assert found.unpausable is Unpausable.PARK
    assert found.lease < found.renew_until


def test_every_shipped_policy_is_read_and_says_what_it_is_for():
    files = {file.stem for file in data_dir("policies").glob("*.yaml")}
    assert files == set(policy_names()) >= {"default", "throwaway"}
    assert all(load_policy(name).policy.description for name in files)


def test_every_key_is_read():
    assert policy_from(parse_yaml(FULL, Path("/p/own.yaml")), "own", tz="Asia/Seoul") == READ
    assert {path for path, _ in flattened_keys(POLICY)} == {
        path for path, _ in _said(parse_yaml(FULL, Path("own")).values)
    }


def _said(values, prefix=""):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _said(value, f"{prefix}{key}.")
        elif key == "schedule":
            yield from {path: 0 for one in value for path, _ in _said(one, "schedule.")}.items()
        else:
            yield f"{prefix}{key}", value


def test_what_a_file_leaves_out_is_as_the_table_of_keys_says():
    """The defaults that editors and pages show are those that count."""
    written = {name: key.default for name, key in POLICY.items() if isinstance(key, Key) and key.default is not None}
    for section in ("idle", "spot"):
        written[section] = {name: key.default for name, key in POLICY[section].keys.items()}
    written |= {"unlabelled": {"require": ["owner", "project"], "after": "1h", "do": "warn"}}
    written |= {"budget": {"amount": 1, "do": "warn"}, "schedule": {"off": "19:00", "days": "daily"}}
    written |= {name: {"after": "1h", "do": "warn"} for name in ("stopped", "images")}
    needed = {"lease": "8h", "renew_until": "3d"}
    bare = {"unlabelled": {"after": "1h"}, "budget": {"amount": 1}, "schedule": {"off": "19:00"}}
    bare |= {"stopped": {"after": "1h"}, "images": {"after": "1h"}}
    assert policy(json.dumps(written | needed)) == policy(json.dumps(bare | needed))
    assert policy(USUAL).idle == Idle()


def test_with_a_pass_every_ten_minutes_the_default_ends_an_idle_machine_within_ninety():
    """A sign of life may be a sample old; the pass that warns and the one that stops each come up to ten later."""
    usual = load_policy("default").policy
    assert usual.idle.do is RuleAction.STOP
    assert usual.idle.after + usual.idle.grace + 2 * timedelta(minutes=10) <= timedelta(minutes=90)
    assert (usual.unknown, usual.schedules, usual.budget) == (Unknown.RENEW, (), None)


def test_never_is_ended_by_its_lease_and_by_nothing_else():
    never = load_policy("never").policy
    assert never.idle.do is RuleAction.DISABLED
    assert (never.schedules, never.budget, never.unlabelled) == ((), None, None)
    assert never.lease < never.renew_until <= timedelta(days=7)


def test_a_shipped_schedule_goes_by_the_users_clock():
    assert [one.tz for one in load_policy("nightly", tz="Asia/Seoul").policy.schedules] == ["Asia/Seoul"]
    assert [one.tz for one in load_policy("nightly").policy.schedules] == ["UTC"]


def test_what_a_policy_counts_as_use_is_what_machines_are_judged_by():
    found = thresholds(READ)._asdict()
    assert found == {
        "after": 2700.0,
        "gpu": 7.5,
        "cpu": 1.0,
        "network": 2e6,
        "disk": 5e5,
        "terminal_output": 10800.0,
        "share": 0.8,
        "uptime": 1200.0,
    }


def test_a_grace_that_is_left_out_is_never_longer_than_the_window():
    assert policy(f"{USUAL}idle:\n  after: 4m\n").idle.grace == 4 * MINUTE
    assert policy(f"{USUAL}idle:\n  after: 4h\n").idle.grace == 10 * MINUTE


@pytest.mark.parametrize("off", ["19:00", '"19:00"', "'19:00'"])
def test_a_time_of_day_is_no_number_in_base_sixty(off):
    assert policy(f"{USUAL}schedule:\n  off: {off}\n").schedules == (Schedule("UTC", time(19)),)


@pytest.mark.parametrize("word", ["off", '"off"'])
def test_off_is_a_word_and_a_key_and_never_false(word):
    assert policy(f"{USUAL}idle:\n  do: {word}\n").idle.do is RuleAction.DISABLED
    assert policy(f'{USUAL}schedule:\n  "off": 19:00\n').schedules[0].off == time(19)


def test_limits_is_no_policys_name(tmp_path):
    (tmp_path / "limits.yaml").write_text("lease: 8h\n")
    assert "limits" not in policy_names(search=(tmp_path,))
    with pytest.raises(InvalidRequest, match=r"limits\.yaml holds the lab's limits"):
        load_policy("limits", search=(tmp_path,))


def test_what_a_file_leaves_out_is_park():
    assert policy(USUAL) == Policy("own", timedelta(hours=8), timedelta(days=3), Unpausable.PARK)
    assert policy(f"{USUAL}spot: {{}}\n").unpausable is Unpausable.PARK


@pytest.mark.parametrize("word", list(Unpausable))
def test_each_word_for_what_cannot_be_stopped_is_read(word):
    assert policy(f"{USUAL}spot:\n  unpausable: {word}\n").unpausable is word


def test_the_first_directory_wins_and_a_shipped_one_comes_last(tmp_path):
    project, user = tmp_path / "project", tmp_path / "user"
    for place, lease in ((project, "1h"), (user, "2h")):
        place.mkdir()
        (place / "default.yaml").write_text(f"lease: {lease}\nrenew_until: 3h\n")
    (user / "own.yaml").write_text(USUAL)
    found = load_policy("default", search=(project, user))
    assert (found.policy.lease, found.path) == (timedelta(hours=1), project / "default.yaml")
    assert load_policy("own", search=(project, user)).path == user / "own.yaml"
    assert load_policy("throwaway", search=(project, user)).path.parent == data_dir("policies")


BAD = [
    ("lease: 8h\n", 1, "renew_until", "is missing"),
    ("renew_until: 8h\n", 1, "lease", "is missing"),
    ("lease: soon\nrenew_until: 3d\n", 1, "lease", "not a duration"),
    ("lease: 8\nrenew_until: 3d\n", 1, "lease", "90m"),
    ("lease:\nrenew_until: 3d\n", 1, "lease", "not a duration"),
    ("lease: [8h]\nrenew_until: 3d\n", 1, "lease", "not a duration"),
    ("lease: 8h\nrenew_until: 0h\n", 2, "renew_until", "not a duration"),
    ("lease: 8h\nrenew_until: 7h\n", 2, "renew_until", "shorter than the lease (8h)"),
    (f"{USUAL}description: [a]\n", 3, "description", "has to be one line of text"),
    (f"{USUAL}leese: 1h\n", 3, "leese", "did you mean 'lease'?"),
    (f"{USUAL}spot: park\n", 3, "spot", "has to be a table"),
    (f"{USUAL}spot:\n  unpausible: park\n", 4, "spot.unpausible", "did you mean 'unpausable'?"),
    (f"{USUAL}spot:\n  unpausable: parks\n", 4, "spot.unpausable", "did you mean 'park'?"),
    (f"{USUAL}spot:\n  unpausable: true\n", 4, "spot.unpausable", "park, terminate, warn"),
    (f"{USUAL}spot:\n  unpausable: [park]\n", 4, "spot.unpausable", "park, terminate, warn"),
    (f"{USUAL}unknown: maybe\n", 3, "unknown", "renew, end"),
    (f"{USUAL}idle:\n", 3, "idle", "has to be a table"),
    (f"{USUAL}idle:\n  aftr: 1h\n", 4, "idle.aftr", "did you mean 'after'?"),
    (f"{USUAL}idle:\n  after: 0m\n", 4, "idle.after", "not a duration"),
    (f"{USUAL}idle:\n  uptime: -30m\n", 4, "idle.uptime", "not a duration"),
    (f"{USUAL}idle:\n  gpu: 300\n", 4, "idle.gpu", "above 0 and up to 100"),
    (f"{USUAL}idle:\n  gpu: 0\n", 4, "idle.gpu", "above 0 and up to 100"),
    (f"{USUAL}idle:\n  gpu: -1\n", 4, "idle.gpu", "above 0 and up to 100"),
    (f"{USUAL}idle:\n  gpu: true\n", 4, "idle.gpu", "above 0 and up to 100"),
    (f"{USUAL}idle:\n  samples: 101\n", 4, "idle.samples", "up to 100"),
    (f"{USUAL}idle:\n  network: 100\n", 4, "idle.network", "100 kB/s"),
    (f"{USUAL}idle:\n  network: 100 kbit/s\n", 4, "idle.network", "bytes a second"),
    (f"{USUAL}idle:\n  disk: 0 B/s\n", 4, "idle.disk", "above zero"),
    (f"{USUAL}idle:\n  do: false\n", 4, "idle.do", "did you mean 'off'?"),
    (f"{USUAL}idle:\n  do: terminate\n", 4, "idle.do", "stop, warn, off"),
    (f"{USUAL}idle:\n  scratch: off\n", 4, "idle.scratch", "warn, stop"),
    (f"{USUAL}schedule: []\n", 3, "schedule", "is an empty list"),
    (f"{USUAL}schedule: 19:00\n", 3, "schedule", "`  off: ...`"),
    (f"{USUAL}schedule:\n  - days: daily\n", 4, "schedule[0]", "does not say off"),
    (f"{USUAL}schedule:\n  - off: 25:00\n", 4, "schedule[0].off", "not a time of day"),
    (f"{USUAL}schedule:\n  - off: 24:00\n", 4, "schedule[0].off", "00:00 to 23:59"),
    (f"{USUAL}schedule:\n  - off: 19:60\n", 4, "schedule[0].off", "not a time of day"),
    (f"{USUAL}schedule:\n  - off: 1140\n", 4, "schedule[0].off", 'did you mean "19:00"?'),
    (f"{USUAL}schedule:\n  off: 7pm\n", 4, "schedule.off", "not a time of day"),
    (f"{USUAL}schedule:\n  off: 19:00\n  on: 07:00\n", 5, "schedule.on", "starts none"),
    (f"{USUAL}schedule:\n  off: 19:00\n  days: monday\n", 5, "schedule.days", "did you mean 'mon'?"),
    (f"{USUAL}schedule:\n  off: 19:00\n  days: [weekdays, sat]\n", 5, "schedule.days", "a list of mon"),
    (f"{USUAL}schedule:\n  off: 19:00\n  days: []\n", 5, "schedule.days", "names no day"),
    (f"{USUAL}schedule:\n  off: 19:00\n  except: 2026-12-24\n", 5, "schedule.except", "has to be a list"),
    (f"{USUAL}schedule:\n  off: 19:00\n  except: [24.12.2026]\n", 5, "schedule.except", "not a date"),
    (f"{USUAL}budget:\n  do: stop\n", 3, "budget", "does not say amount"),
    (f"{USUAL}budget:\n  amount: 0\n", 4, "budget.amount", "above zero"),
    (f"{USUAL}budget:\n  amount: $5\n", 4, "budget.amount", "12.50"),
    (f"{USUAL}unlabelled:\n  after: 1h\n  require: []\n", 5, "unlabelled.require", "at least one"),
    (f"{USUAL}unlabelled:\n  after: 1h\n  require: [team]\n", 5, "unlabelled.require", "owner, project"),
    (f"{USUAL}stopped:\n  do: warn\n", 3, "stopped", "does not say after"),
    (f"{USUAL}stopped:\n  after: 1d\n  do: remove\n", 5, "stopped.do", "warn, image, terminate"),
    (f"{USUAL}images:\n  after: 1d\n  do: terminate\n", 5, "images.do", "warn, remove"),
]
# What only the reader knows: names of zones, days of the calendar, and what contradicts something else.
BAD_TO_THE_READER = [
    (f"{USUAL}idle:\n  after: 20m\n  grace: 30m\n", 5, "idle.grace", "longer than idle.after (20m)"),
    (f"{USUAL}idle:\n  after: 4d\n", 4, "idle.after", "longer than renew_until (3d)"),
    (f"{USUAL}idle:\n  after: 25h\n", 4, "idle.after", "machines remember a day"),
    (f"{USUAL}idle:\n  uptime: 4d\n", 4, "idle.uptime", "it never comes"),
    (f"{USUAL}unlabelled:\n  after: 4d\n", 4, "unlabelled.after", "it never comes"),
    (f"{USUAL}schedule:\n  off: 19:00\n  tz: Europe/Pariss\n", 5, "schedule.tz", "did you mean 'Europe/Paris'?"),
    (
        f"{USUAL}schedule:\n  off: 19:00\n  tz: localtime\n",
        5,
        "schedule.tz",
        "is 'localtime', which is not a time zone",
    ),
    (f"{USUAL}schedule:\n  off: 19:00\n  except: [2026-02-30]\n", 5, "schedule.except", "not a date"),
    (
        f"{USUAL}schedule:\n  off: 19:00\n  except: [2027-01-03 to 2026-12-24]\n",
        5,
        "schedule.except",
        "after it begins",
    ),
]
BAD += BAD_TO_THE_READER


@pytest.mark.parametrize(("text", "line", "key", "says"), BAD, ids=[f"{row[2]} {row[3]}" for row in BAD])
def test_a_fault_is_refused_with_its_line_and_key(text, line, key, says):
    error = fault(text)
    assert (error.exit_code, error.field) == (2, f"own.yaml:{line}: {key}")
    assert says in f"{error.message} {error.next}"
    assert "/p/own.yaml" in error.next


@pytest.mark.parametrize(("text", "field"), [("", "own.yaml:1"), ("# nothing\n", "own.yaml:1"), ("8h\n", "own.yaml:1")])
def test_an_empty_file_is_no_policy(text, field):
    error = fault(text)
    assert (error.exit_code, error.field) == (2, field)
    assert "holds no `key: value` lines" in error.message


@pytest.mark.parametrize("name", ["defualt", "../config", "", "desktops/rtx3090", "A"])
def test_an_unknown_name_is_answered_with_those_there_are(name, tmp_path):
    with pytest.raises(InvalidRequest) as caught:
        load_policy(name, search=(tmp_path,))
    assert caught.value.field == "policy"
    assert "default, job, never, nightly, notebook, throwaway, training" in caught.value.next
    assert ("did you mean 'default'?" in caught.value.message) == (name == "defualt")


WORDS = st.sampled_from(
    ["lease", "renew_until", "spot", "unpausable", "8h", "3d", "park", ":", "\n", "  ", "-", "[", "1"]
)


@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=14).map(" ".join)))
def test_whatever_the_file_holds_a_policy_lets_its_lease_end_or_is_refused(text):
    try:
        read = policy(text)
    except InvalidRequest as refused:
        assert refused.field.startswith("own.yaml")  # noqa: PT017  (either way is right)
    else:
        assert timedelta(0) < read.lease <= read.renew_until


def test_the_published_schemas_are_those_of_the_table_of_keys():
    for name, made in (("schema.json", policy_schema()), ("limits.schema.json", limits_schema())):
        written = json.loads((data_dir("policies") / name).read_text())
        assert written == made, f"write policies/{name} anew: cloudgpu policy schema"
        jsonschema.Draft7Validator.check_schema(written)


def test_every_shipped_policy_names_the_schema_and_fits_it():
    for file in data_dir("policies").glob("*.yaml"):
        assert file.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
        assert fits(file.read_text())
    assert fits(FULL)


ZEROS = ("0h", "0m", "0 B/s")  # a pattern cannot say that they are none
STRUCTURAL = [
    row
    for row in BAD
    if row not in BAD_TO_THE_READER and "shorter than" not in row[3] and not any(zero in row[0] for zero in ZEROS)
]


@pytest.mark.parametrize("text", [row[0] for row in STRUCTURAL], ids=[f"{row[2]} {row[3]}" for row in STRUCTURAL])
def test_an_editor_marks_what_the_reader_refuses(text):
    assert not fits(text)


@pytest.mark.parametrize(("rate", "fits_schema"), [("0 kB/s", False), ("0.00MB/s", False), ("0.05 MB/s", True)])
def test_an_editor_marks_a_rate_of_zero(rate, fits_schema):
    assert fits(f"{USUAL}idle:\n  network: {rate}\n") is fits_schema


WORDS_AND_LISTS = "8h 0h soon off stop warn remove 100kB/s 19:00 25:00 weekdays mon Europe/Paris Mars renew".split()
POOL = st.sampled_from(
    [*WORDS_AND_LISTS, 3, 0, -1, 250, 0.5, True, None, {}, [], ["mon", "sun"], ["owner"], ["2026-12-24"]]
)
sections = {
    name: st.dictionaries(st.sampled_from([*section.keys, "odd"]), POOL, max_size=3)
    for name, section in POLICY.items()
    if not isinstance(section, Key)
}
files = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("description", "lease", "renew_until", "unknown", "odd"), POOL) | sections
).map(lambda said: {"lease": "8h", "renew_until": "3d"} | said)


@given(files)
def test_what_the_reader_takes_an_editor_does_not_mark(said):
    try:
        read = policy(json.dumps(said))
    except InvalidRequest as refused:
        assert refused.field.startswith("own.yaml:1: ")  # noqa: PT017  (either way is right)
    else:
        assert fits(json.dumps(said))
        assert replace(read, name="own") == read


def test_until_is_a_weekday_with_a_time():
    found = policy(f'{USUAL}schedule:\n  off: "19:00"\n  days: [fri]\n  until: mon 07:00\n')
    assert found.schedules == (Schedule("UTC", time(19), frozenset({4}), until=(0, time(7))),)


@pytest.mark.parametrize("word", ["monday 07:00", "mon", "07:00", "mon 24:00", "mon  07:00", "1"])
def test_no_other_until_is_taken(word):
    with pytest.raises(InvalidRequest, match="not a weekday with a time"):
        policy(f'{USUAL}schedule:\n  off: "19:00"\n  until: {word}\n')


def test_a_working_directory_that_was_removed_is_no_project_and_no_error(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    home = Home(tmp_path / "home")
    assert policy_paths(home) == (tmp_path / "project" / ".cloudgpu" / "policies", home.policies)
    (tmp_path / "project").rmdir()  # under a `watch` that runs on
    assert policy_paths(home) == (home.policies,)
    (home.policies / "budgets").mkdir(parents=True)
    assert home.policies / "budgets" in home.budget_dirs
