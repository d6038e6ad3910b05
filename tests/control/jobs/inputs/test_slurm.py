"""What `run` asks of Slurm, word by word."""

from __future__ import annotations

import pytest

from cloudgpu.control.jobs.inputs.slurm import SlurmRequest, parse_slurm
from cloudgpu.errors import InvalidRequest


def test_what_is_asked_is_read_as_it_is_typed() -> None:
    found = parse_slurm(
        {"nodes": "4", "gpus_per_node": 2, "array": "0-9%4", "once": True, "slurm_account": "a1"}, "train"
    )
    given = ("--nodes", "--gpus-per-node", "--array", "--slurm-account", "--once")
    assert found == SlurmRequest(4, 2, "0-9%4", account="a1", once=True, typed_options=given)


def test_nothing_asked_is_one_node() -> None:
    assert parse_slurm({"nodes": None, "once": False}, None) == SlurmRequest()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("nodes", "0"),
        ("nodes", 10_001),
        ("nodes", True),
        ("gpus_per_node", "-1"),
        ("array", "9%"),
        ("array", "0-9; rm"),
        ("array", "9" * 5000),
        ("array", "0-\u0663"),
        ("array", "0-9%" + "9" * 5000),
        ("after", "--wrap=x"),
        ("partition", "gpu x"),
        ("slurm_account", ""),
    ],
)
def test_a_word_that_cannot_be_meant_is_refused_with_its_option(option: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_slurm({option: value}, "train")
    assert refused.value.field == f"--{option.replace('_', '-')}"
    assert refused.value.next


def test_options_of_slurm_need_a_place() -> None:
    with pytest.raises(InvalidRequest, match="--array is for a job in Slurm, and no cluster is named"):
        parse_slurm({"array": "0-9"}, None)
