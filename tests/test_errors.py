from __future__ import annotations

import inspect
import re

import pytest

from cloudgpu import errors
from cloudgpu.errors import CloudgpuError, LaunchUncertain, ProviderUnavailable, RateLimited


def all_kinds() -> list[type[CloudgpuError]]:
    here = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, CloudgpuError)]
    return [kind for kind in here if kind.__module__ == errors.__name__]


def drawn() -> dict[str, tuple[str | None, int]]:
    """Read the tree at the top of the file: class -> (parent, exit code)."""
    found: dict[str, tuple[str | None, int]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"([|` -]*)(\w+) +(\d+) ", line)
        if match:
            depth = len(match[1]) // 4
            above[depth:] = [match[2]]
            found[match[2]] = (above[depth - 1] if depth else None, int(match[3]))
    return found


def test_the_tree_at_the_top_is_the_tree() -> None:
    classes = {
        kind.__name__: (None if kind is CloudgpuError else kind.__bases__[0].__name__, kind.exit_code)
        for kind in all_kinds()
    }
    assert drawn() == classes


def test_every_kind_has_its_own_word() -> None:
    words = [kind.kind for kind in all_kinds()]
    assert len(set(words)) == len(words)
    assert all(re.fullmatch(r"[a-z_]+", word) for word in words)


def test_exit_codes_are_those_of_the_contract() -> None:
    assert {kind.exit_code for kind in all_kinds()} == set(range(1, 11))


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.__name__)
def test_an_error_carries_its_sentence_and_the_way_out(kind: type[CloudgpuError]) -> None:
    error = kind("the lease cannot be 'soon'", field="lease", value="soon", next="write it as 8h")
    assert str(error) == "the lease cannot be 'soon'"
    assert error.as_dict() == {
        "kind": kind.kind,
        "field": "lease",
        "value": "soon",
        "message": "the lease cannot be 'soon'",
        "next": "write it as 8h",
    }


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.__name__)
def test_an_error_may_be_a_sentence_alone(kind: type[CloudgpuError]) -> None:
    assert kind("it did not answer").as_dict() == {
        "kind": kind.kind, "field": None, "value": None, "message": "it did not answer", "next": None,
    }  # fmt: skip


def test_a_rate_limit_says_how_long() -> None:
    assert RateLimited("slower", retry_after=2.5).retry_after == 2.5
    assert RateLimited("slower").retry_after is None


def test_knowing_nothing_is_never_not_found() -> None:
    assert issubclass(LaunchUncertain, ProviderUnavailable)
    assert not issubclass(ProviderUnavailable, errors.InstanceNotFound)
    assert not issubclass(errors.InstanceNotFound, ProviderUnavailable)


def test_every_class_says_what_it_means() -> None:
    assert all(kind.__doc__ and kind.__doc__.splitlines()[0].endswith(".") for kind in all_kinds())
