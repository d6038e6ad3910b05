from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgpu.config.data import data_dir
from cloudgpu.config.policies import load_policy, policy_from, policy_names
from cloudgpu.config.yamlfile import parse_yaml
from cloudgpu.core.policy import Policy, Unpausable
from cloudgpu.errors import InvalidRequest

USUAL = "lease: 8h\nrenew_until: 3d\n"


def policy(text):
    return policy_from(parse_yaml(text, Path("/p/own.yaml")), "own")


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


def test_every_shipped_policy_is_read_and_says_what_it_is_for():
    files = {file.stem for file in data_dir("policies").glob("*.yaml")}
    assert files == set(policy_names()) >= {"default", "throwaway"}
    assert all(load_policy(name).policy.description for name in files)


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
    ("lease: soon\nrenew_until: 3d\n", 1, "lease", "no duration"),
    ("lease: 8\nrenew_until: 3d\n", 1, "lease", "90m"),
    ("lease:\nrenew_until: 3d\n", 1, "lease", "no duration"),
    ("lease: [8h]\nrenew_until: 3d\n", 1, "lease", "no duration"),
    ("lease: 8h\nrenew_until: 0h\n", 2, "renew_until", "no duration"),
    ("lease: 8h\nrenew_until: 7h\n", 2, "renew_until", "shorter than the lease (8h)"),
    (f"{USUAL}description: [a]\n", 3, "description", "has to be one line of text"),
    (f"{USUAL}leese: 1h\n", 3, "leese", "did you mean 'lease'?"),
    (f"{USUAL}spot: park\n", 3, "spot", "has to be a table"),
    (f"{USUAL}spot:\n  unpausible: park\n", 4, "spot.unpausible", "did you mean 'unpausable'?"),
    (f"{USUAL}spot:\n  unpausable: parks\n", 4, "spot.unpausable", "did you mean 'park'?"),
    (f"{USUAL}spot:\n  unpausable: true\n", 4, "spot.unpausable", "park, terminate, warn"),
    (f"{USUAL}spot:\n  unpausable: [park]\n", 4, "spot.unpausable", "park, terminate, warn"),
]


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
    assert "default, never, nightly, notebook, throwaway, training" in caught.value.next
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
