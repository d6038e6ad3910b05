"""Which policy a machine is under: the launch's word, then its project's, its tag's, the usual one."""

from __future__ import annotations

import pytest

from cloudgpu.core.policies.description import Choices, choose

CHOICES = Choices(
    projects={"thesis": "nightly", "Big Vision": "training"},
    tags={"owner=ada": "notebook", "market=spot": "training", "owner=bob": "classroom"},
)


@pytest.mark.parametrize(
    ("typed", "facts", "name", "why"),
    [
        ("never", {"project": "thesis", "owner": "ada"}, "never", "--policy"),
        (None, {"project": "thesis", "owner": "ada"}, "nightly", "policies.projects.thesis of config.toml"),
        (None, {"project": "other", "owner": "ada"}, "notebook", 'policies.tags."owner=ada" of config.toml'),
        (None, {"owner": "ada", "market": "spot"}, "notebook", 'policies.tags."owner=ada" of config.toml'),
        (None, {"owner": "bob", "market": "spot"}, "training", 'policies.tags."market=spot" of config.toml'),
        (None, {"owner": "eve", "market": None}, "default", "policy of config.toml"),
        (None, {"project": "big-vision"}, "training", "policies.projects.Big Vision of config.toml"),
    ],
)
def test_the_nearest_word_chooses(typed, facts, name, why):
    found = choose(typed, facts, CHOICES, "default")
    assert (found.name, found.why) == (name, why)


def test_without_choices_the_usual_one_is_meant():
    assert choose(None, {"project": "thesis"}, None, "nightly").name == "nightly"
