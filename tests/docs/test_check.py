"""The checker of the pages notices what is wrong, and the pages are right."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


sys.path.insert(0, str(ROOT / "docs"))
from check import check  # noqa: E402  (docs/ is no package)


def run(root: Path, *words: str) -> tuple[int, str]:
    argv = [sys.executable, str(ROOT / "docs" / "check.py"), "--root", str(root), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.fixture
def copy(tmp_path):
    """The pages, to be broken."""
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_the_pages_are_right(copy):
    assert run(copy) == (0, "")


BROKEN = {
    "see [there](nowhere.md)": "the link nowhere.md leads nowhere",
    "see [there](#no-such-heading)": "the link #no-such-heading names no heading",
    "see [there](docs/howto.md#no-such-heading)": "the link docs/howto.md#no-such-heading names no heading",
    "run `cloudgpu launch`": "there is no verb 'launch'",
    "run `cloudgpu up --gpus 2`": "cloudgpu up has no option --gpus",
    "run `cloudgpu tunnel --serve`": "cloudgpu tunnel has no option --serve",
    "run `cloudgpu --verbose ls`": "cloudgpu has no option --verbose",
    "```sh\nFOO=1 cloudgpu down --force | tee log\n```": "cloudgpu down has no option --force",
    "```console\n$ cloudgpu ls --sort\n```": "cloudgpu ls has no option --sort",
    "```text\n  Run: cloudgpu show first --log\n```": "cloudgpu show has no option --log",
    "it is exit code 12 then": "no command exits with 12",
    "it is exit code 7 (`no_capacity`)": "`no_capacity` is exit code 4, not 7",
    "| exit code | kind |\n| --- | --- |\n| 5 | `auth_failed` |": "`auth_failed` is exit code 6, not 5",
    "the file /srv/checkout/notes.txt": "/srv/checkout is a path of one machine",
    "the file /home/bob/notes.txt": "/home/bob is a path of one machine",
    "from https://index.example.org/simple": "index.example.org is not among the hosts that a page may name",
    "set `CLOUDGPU_COLOUR`": "nothing reads CLOUDGPU_COLOUR",
    "run `make coffee`": "there is no make coffee",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_page_is_noticed_with_its_line(copy, text):
    page = copy / "README.md"
    before = page.read_text().rstrip("\n") + "\n\n"
    page.write_text(before + text + "\n")
    (fault,) = check(copy)
    place, _, sentence = fault.partition(": ")
    assert sentence == BROKEN[text]
    first = before.count("\n") + 1
    assert first <= int(place.removeprefix("README.md:")) <= first + 2


def test_a_page_that_the_index_does_not_name_is_noticed(copy):
    (copy / "docs" / "reference" / "new.md").write_text("# New\n")
    assert list(check(copy)) == ["docs/README.md:1: has no link to docs/reference/new.md"]
    index = copy / "docs" / "README.md"
    index.write_text(f"{index.read_text()}\n[New](reference/new.md#new)\n")
    assert list(check(copy)) == []


def test_the_readme_leads_to_the_index(copy):
    page = copy / "README.md"
    page.write_text(page.read_text().replace("(docs/README.md)", "(docs/howto.md)"))
    assert list(check(copy)) == ["README.md:1: has no link to docs/README.md"]


def test_the_readme_is_one_screen_of_source():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


@pytest.mark.parametrize(
    "text",
    [
        "cloudgpu keeps files; `cloudgpu VERB --help` helps",
        "run `cloudgpu exec NAME -- ls --all-of-it`",
        "```text\ncloudgpu from the clone\n```",
        "[a code](docs/reference/errors.md#exit-codes) like 8, and/or 9; `sqlite:////a/local/ledger.db`",
        "exit code 2 (`missing_extra`), exit code 255",
    ],
)
def test_what_is_right_passes(copy, text):
    page = copy / "README.md"
    page.write_text(page.read_text() + "\n" + text + "\n")
    assert list(check(copy)) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("docs/reference/cli.md", "Only this region.", "Only that region."),
        ("docs/policies.md", "ends a machine at its renew-until", "ends no machine at its renew-until"),
        ("docs/design.md", "Forwards local ports to a machine", "Forwards ports"),
    ],
)
def test_a_generated_page_or_part_that_was_edited_is_noticed_and_written_anew(copy, name, old, new):
    page = copy / name
    right = page.read_text()
    page.write_text(right.replace(old, new))
    assert run(copy) == (1, f"{name}:1: is not what the code says; run: python docs/check.py --write\n")
    assert run(copy, "--write") == (0, "")
    assert page.read_text() == right


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('| `desktop` | `"rtx3090"` |', '| `desktop` | `"k80"` |', "desktop is 'rtx3090' by default, not `\"k80\"`"),
        ('| `template` | `"jupyter"` |', '| `templet` | `"jupyter"` |', "Settings: template is missing"),
        ("| `watts` | `100.0` |", "| `watts` | none |", "Accounts of local: watts is 100.0 by default, not none"),
        ("| `on_start` |", "| `on_begin` |", "Templates: on_begin is no key"),
        ("## Desktops", "## Desks", "there is no table under the heading Desktops"),
    ],
)
def test_settings_that_differ_from_the_code_are_noticed(copy, old, new, sentence):
    page = copy / "docs" / "reference" / "config.md"
    text = page.read_text()
    assert text.count(old) == 1
    page.write_text(text.replace(old, new))
    assert sentence in "\n".join(check(copy))
