"""The shipped figures of recommendations, each with its source, and what is refused in such a file."""

from __future__ import annotations

from dataclasses import fields
from datetime import date
from pathlib import Path

import pytest

from cloudgpu.config.desktops.workloads import shipped_workload_data, workload_data_from
from cloudgpu.config.files.user_files import data_dir
from cloudgpu.config.files.yaml import parse_yaml
from cloudgpu.core.advice.workloads import SourceQuality
from cloudgpu.core.catalog.gpus import Workload
from cloudgpu.errors import InvalidRequest

TEXT = (data_dir("policies") / "work" / "work.yaml").read_text()


def read(text):
    return workload_data_from(parse_yaml(text, Path("/d/work.yaml")))


def test_the_memory_that_kinds_of_work_take_is_as_published():
    # T. Dettmers, Which GPU(s) to Get for Deep Learning, 2020: in GB
    found = {
        name: kind.memory_gib for name, kind in shipped_workload_data().kinds.items() if "2020" in kind.source.text
    }
    published = {"kaggle": 8, "prototyping": 10, "vision": 10, "transformers": 11, "research": 24, "video": 24}
    assert {name: gib for name, gib in found.items() if name != "fine-tuning" and gib} == published | {
        "reinforcement-learning": 10
    }


def test_what_follows_from_a_model_has_no_memory_of_its_own():
    kinds = shipped_workload_data().kinds
    assert [name for name, kind in kinds.items() if kind.memory_gib is None] == ["fine-tuning", "inference"]
    assert [name for name, kind in kinds.items() if kind.speed_workload is Workload.INFERENCE] == ["inference"]


def test_everything_says_what_it_rests_on():
    rules = shipped_workload_data()
    figures = [getattr(rules.figures, field.name) for field in fields(rules.figures)]
    sources = [one.source for one in (*figures, *rules.kinds.values(), *rules.notes.values())]
    assert all(source.text and date(2019, 1, 1) < source.as_of <= date(2026, 11, 27) for source in sources)
    assert {source.quality for source in sources} == set(SourceQuality)
    assert all((source.quality is SourceQuality.ASSUMED) == ("own assumption" in source.text) for source in sources)


@pytest.mark.parametrize(
    ("old", "new", "field", "says"),
    [
        ("    memory_gib: 8\n", "    memory_gib: eight\n", "memory_gib", "number from 1 to 1000"),
        ("    memory_gib: 8\n", "    memory_gib: 0\n", "memory_gib", "number from 1 to 1000"),
        (
            "    memory_gib: 8\n    speed: training",
            "    memory_gib: 8\n    speed: fast",
            "speed",
            "training, inference",
        ),
        ("    value: 12\n", "    value: -12\n", "value", "number from 0.001"),
        ("    value: 12\n", "    valeu: 12\n", "valeu", "did you mean 'value'"),
        ("    source: zero\n", "    source: one\n", "source", "none of those above"),
        ("    basis: derived\n", "    basis: guessed\n", "basis", "published, derived, unverified, assumed"),
        ("  adapter_percent:", "  adaptor_percent:", "adaptor_percent", "did you mean 'adapter_percent'"),
        ('    as_of: "2020-05-13"', '    as_of: "soon"', "as_of", "2026-11-20"),
        ("notes:\n", "nots:\n", "nots", "did you mean 'notes'"),
        ("kinds:\n", "kinds: []\nmore:\n", "more", "not a known key"),
    ],
)
def test_a_fault_in_the_file_is_refused_with_its_line(old, new, field, says):
    assert old in TEXT
    changed = TEXT.replace(old, new, 1)
    with pytest.raises(InvalidRequest) as caught:
        read(changed)
    file, line, key = caught.value.field.split(":")
    assert (file, key.strip()) == ("work.yaml", field)
    assert f"{field}:" in changed.splitlines()[int(line) - 1]
    assert says in f"{caught.value.message} {caught.value.next}"


def test_a_figure_that_is_missing_is_named():
    begin = TEXT.index("  framework_gib:")
    with pytest.raises(InvalidRequest, match="framework_gib is missing"):
        read(TEXT[:begin] + TEXT[TEXT.index("  inference_percent:") :])
