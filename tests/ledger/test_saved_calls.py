"""The saved calls of launches: one file each, in a directory that goes with the last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from cloudgpu.ledger import saved_calls
from tests.providers.aws.compute.test_request import attempt


def test_a_file_that_is_no_call_is_passed_over(tmp_path: Path) -> None:
    """An editor that looks at a saved call has a file of its own beside it."""
    for name in ("cg-1-1.fox.json", "cg-2-1.owl.part", ".cg-1-1.fox.json.swp", "cg-1-1.fox.json.orig"):
        (tmp_path / name).touch()
    assert sorted(saved_calls.all_saved(tmp_path)) == [("cg-1-1", "fox"), ("cg-2-1", "owl")]


def test_a_call_is_saved_while_another_command_removes_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "attempts"

    def launch(number: int) -> None:
        call = replace(attempt(), token=f"cg-{number}-1")
        for _ in range(150):
            saved_calls.save(directory, call)
            saved_calls.delete(directory, call.token)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(launch, range(4)))
    assert not directory.exists()
