"""The examples of docs/policies.md are policies and limits, and the table of the shipped ones is what they say."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest

from cloudgpu.config.files.yaml import parse_yaml
from cloudgpu.config.policies.find import limits_from, load_policy, policy_from, policy_names
from cloudgpu.config.policies.schema import limits_schema, policy_schema
from cloudgpu.config.settings import settings_from_text
from cloudgpu.core.policies.policy import Idle, RuleAction, thresholds
from cloudgpu.core.reaper.rules import RULES
from cloudgpu.core.values.times import duration_text, parse_duration

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TOML = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=[text.split("\n")[0] for text in EXAMPLES])
def test_every_example_is_read_and_an_editor_marks_nothing(text):
    table = parse_yaml(text, Path("example.yaml"))
    if "limits.yaml" in text:
        jsonschema.validate(dict(table.values), limits_schema())
        assert limits_from(table).policies
    else:
        jsonschema.validate(dict(table.values), policy_schema())
        assert policy_from(table, "example").lease


def test_the_example_of_idle_time_says_what_counts_without_it():
    (text,) = (one for one in EXAMPLES if "terminal_output" in one)
    found = policy_from(parse_yaml(text, Path("example.yaml")), "example")
    assert thresholds(found)._replace(after=0) == thresholds(load_policy("default").policy)._replace(after=0)
    assert found.idle.scratch is Idle().scratch


def test_the_choices_of_the_example_are_policies_there_are():
    (text,) = TOML
    choices = settings_from_text(text, login="ada").policies
    assert {*choices.projects.values(), *choices.tags.values()} <= set(policy_names())


def test_the_table_of_the_shipped_ones_is_what_they_say():
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \| (\w+) \| .* \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in rows] == [
        "default",
        "notebook",
        "training",
        "nightly",
        "classroom",
        "never",
        "throwaway",
        "job",
    ]
    for name, lease, renew, idle in rows:
        policy = load_policy(name).policy
        assert (parse_duration(lease), parse_duration(renew)) == (policy.lease, policy.renew_until), name
        assert idle == ("never" if policy.idle.do is RuleAction.DISABLED else duration_text(policy.idle.after)), name


def test_the_page_of_json_names_the_rules_in_the_order_in_which_they_are_tried():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "json.md").read_text()
    listed = [re.findall(r"`([a-z-]+)`", line)[1:] for line in page.splitlines() if "`budget`, `renew-until`" in line]
    known = [str(one.rule) for one in RULES]
    assert len(set(map(tuple, listed))) == 2
    for names in listed:
        assert names == [rule for rule in known if rule in names]
    assert max(listed, key=len) == [rule for rule in known if rule != "none"]
