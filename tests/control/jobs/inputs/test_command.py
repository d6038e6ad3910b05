"""Commands by a bare name: what is refused before a machine is paid for it, and what only the machine can know."""

from __future__ import annotations

import pytest

from cloudgpu.control.jobs.inputs.command import check_command, is_unknown_program
from cloudgpu.errors import InvalidRequest


@pytest.mark.parametrize(
    ("word", "meant"),
    [("pyhton", "python"), ("pyton3", "python3"), ("torchrum", "torchrun"), ("nvidia-sim", "nvidia-smi")],
)
def test_a_misspelt_command_is_refused_with_the_usual_one(tmp_path, word, meant):
    with pytest.raises(InvalidRequest) as refused:
        check_command((word, "train.py"), tmp_path, has_setup=False)
    assert (refused.value.field, refused.value.value) == ("CMD", word)
    assert f"did you mean '{meant}'?" in refused.value.message


@pytest.mark.parametrize("word", ["python3.19", "nerfstudio-train", "sh", "some/../pyhton"])
def test_a_command_that_only_the_machine_may_have_is_none_of_ours_to_refuse(tmp_path, word):
    (tmp_path / "pyhton").write_text("")
    (tmp_path / "pyhton").chmod(0o700)
    check_command((word, "-c", "1"), tmp_path, has_setup=False)


def test_a_setup_may_install_what_looks_misspelt(tmp_path):
    check_command(("pyhton", "-c", "1"), tmp_path, has_setup=True)


def test_what_this_computer_has_is_known():
    assert [is_unknown_program(word) for word in ("sh", "python3.19", "./sh", "no-such-command")] == [
        False,
        False,
        False,
        True,
    ]
