from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest

from cloudgpu.config.files.yaml import parse_yaml
from cloudgpu.config.policies.find import limits_from, load_limits, load_policy
from cloudgpu.config.policies.schema import LIMITS, limits_schema
from cloudgpu.core.policies.policy import NO_LIMITS, Limits, Stoppers
from cloudgpu.errors import InvalidRequest

H = timedelta(hours=1)
FULL = {
    "description": "our lab",
    "lease": "12h",
    "renew_until": "5d",
    "idle_after": "2h",
    "policies": ["default", "notebook"],
    "payers": ["Ana <ana@example.org>"],
    "stop": "members",
    "price_jump": 2,
}


def limits(text):
    return limits_from(parse_yaml(text, Path("/p/limits.yaml")))


def test_every_key_is_read():
    assert set(FULL) == set(LIMITS)
    jsonschema.validate(FULL, limits_schema())
    assert limits(json.dumps(FULL)) == Limits(
        12 * H,
        120 * H,
        2 * H,
        ("default", "notebook"),
        ("Ana <ana@example.org>",),
        Stoppers.MEMBERS,
        Decimal(2),
        ("/p/limits.yaml",),
    )


def test_without_a_file_there_are_none(tmp_path):
    assert load_limits((tmp_path, tmp_path / "nowhere")) == NO_LIMITS


def test_a_projects_limits_and_a_homes_both_hold(tmp_path):
    (tmp_path / "limits.yaml").write_text("lease: 6h\npolicies: [default, nightly]\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / "limits.yaml").write_text("lease: 9h\nidle_after: 1h\npolicies: [nightly, never]\n")
    found = load_limits((tmp_path, home))
    assert (found.lease, found.idle_after, found.policies) == (6 * H, H, ("nightly",))
    assert found.sources == (str(tmp_path / "limits.yaml"), str(home / "limits.yaml"))


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("leese: 8h\n", 1, "leese", "did you mean 'lease'?"),
        ("lease: long\n", 1, "lease", "not a duration"),
        ("renew_until: 3h\nlease: 4h\n", 2, "lease", "longer than renew_until (3h)"),
        ("idle_after: 4h\nrenew_until: 3h\n", 1, "idle_after", "limits nothing"),
        ("policies: default\n", 1, "policies", "has to be a list"),
        ("policies: []\n", 1, "policies", "at least one policy"),
        ("policies: [Default]\n", 1, "policies", "all lower case"),
        ("payers: ana\n", 1, "payers", "has to be a list"),
        ("payers: [4]\n", 1, "payers", "in quotes"),
    ],
)
def test_a_fault_is_refused_with_its_line_and_key(text, line, key, says):
    with pytest.raises(InvalidRequest) as caught:
        limits(text)
    error = caught.value
    assert (error.exit_code, error.field) == (2, f"limits.yaml:{line}: {key}")
    assert says in f"{error.message} {error.next}"


def test_an_empty_file_limits_nothing_and_is_refused():
    with pytest.raises(InvalidRequest, match="holds no `key: value` lines"):
        limits("# later\n")


def test_a_file_of_the_other_ending_is_refused_and_does_not_silently_limit_nothing(tmp_path):
    (tmp_path / "limits.yml").write_text("lease: 6h\n")
    (tmp_path / "default.yml").write_text("lease: 2h\nrenew_until: 6h\n")
    with pytest.raises(InvalidRequest, match=r"limits\.yml is not read: its name has to end in \.yaml") as caught:
        load_limits((tmp_path,))
    assert str(tmp_path / "limits.yaml") in str(caught.value.next)
    with pytest.raises(InvalidRequest, match=r"default\.yml is not read"):
        load_policy("default", search=(tmp_path,))
    (tmp_path / "limits.yaml").write_text("lease: 9h\n")
    with pytest.raises(InvalidRequest, match=r"limits\.yml is not read"):
        load_limits((tmp_path,))
    (tmp_path / "limits.yml").rename(tmp_path / "limits.yaml")
    assert load_limits((tmp_path,)).lease == 6 * H
