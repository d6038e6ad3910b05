from __future__ import annotations

import pytest

from cloudgpu.config.settings import settings_from_text
from cloudgpu.core.policies.description import Choices
from cloudgpu.errors import InvalidRequest


def test_projects_and_tags_choose_a_policy():
    tags = '[policies.tags]\n"owner=ada" = "notebook"\n"market=spot" = "training"\n'
    text = f'[policies.projects]\nthesis = "nightly"\n{tags}'
    found = settings_from_text(text, login="ada").policies
    assert found == Choices({"thesis": "nightly"}, {"owner=ada": "notebook", "market=spot": "training"})
    assert settings_from_text("", login="ada").policies is None


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ('policies = "nightly"', "policies", "[policies.projects]"),
        ("[policies.project]\n", "policies.project", "did you mean 'projects'?"),
        ('[policies]\nprojects = "nightly"', "policies.projects", "has to be a table"),
        ("[policies.projects]\nthesis = 3", "policies.projects.thesis", "not a policy's name"),
        ('[policies.projects]\nthesis = "Nightly"', "policies.projects.thesis", "all lower case"),
        ('[policies.tags]\nada = "nightly"', "policies.tags.ada", "KEY=VALUE"),
        ('[policies.tags]\n"onwer=ada" = "nightly"', "policies.tags.onwer=ada", "did you mean owner=...?"),
        ('[policies.tags]\n"owner=" = "nightly"', "policies.tags.owner=", "KEY=VALUE"),
    ],
)
def test_a_fault_is_refused_with_its_key(text, field, says):
    with pytest.raises(InvalidRequest) as caught:
        settings_from_text(text, login="ada")
    assert (caught.value.exit_code, caught.value.field) == (2, f"config.toml: {field}")
    assert says in f"{caught.value.message} {caught.value.next}"
