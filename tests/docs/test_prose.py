"""The checker of prose notices words that are not used here, long sentences and misspelling, and where they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import prose  # noqa: E402  (docs/ is no package)

LONG = " ".join(["Word"] * (prose.LONGEST + 1))


def page(text: str) -> prose.Measure:
    (found,) = prose.measure({"README.md": list(prose.markdown_passages("README.md", text))})
    return found


WRONG = {
    "Refused, as ever.": "README.md:3: not 'as ever' but leave it out, or 'as always'",
    "| a |\n|---|\n| A budget carries it |": "README.md:5: not 'carries' but 'cover', 'contain', 'include' or 'send'",
    "Reaps, quiet\nelse, again.": "README.md:3: not 'quiet else' but 'silent otherwise'",
    "- The value\n  `x` is no duration.": "README.md:4: not 'is no' but 'is not a ...', 'is not a valid ...'",
    "One.\nTeh second.": "README.md:4: spelling: Teh ==> The",
    "The price catalog.": "README.md:3: not 'catalog' but 'catalogue'",
    f"One.\nTwo. {LONG}.": f"README.md:4: {prose.LONGEST + 1} words in one sentence: {LONG[:60]} ...",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_fault_is_noticed_with_its_line(text):
    assert page(f"# Title\n\n{text}\n").faults == (WRONG[text],)


@pytest.mark.parametrize(
    "text",
    [
        "`as ever`, and\n\n```text\nas ever\n```",
        "<!-- as ever -->",
        "<!-- prose: off -->\n\nas ever\n\n<!-- prose: on -->\n\nas always",
        "Nothing was ever sent. It carries out the plan. There is no GPU. It is no longer billed, and nothing else.",
        "It stands for the price. See `catalog` and [LICENSE](LICENSE), Apache License 2.0.",
        f"{LONG[:-5]}. {LONG[:-5]}.",
    ],
)
def test_what_is_right_passes(text):
    assert page(text).faults == ()


def test_sentences_are_counted_without_headings_and_cells():
    found = page("# A heading of five words\n\nOne two. Three `four five`: six!\n\n- Seven\n\n| a |\n|---|\n| b |\n")
    assert found.lengths == (2, 3, 1)
    assert found.mean == 2


@pytest.fixture(scope="module")
def read():
    return prose.read_passages(ROOT)


def test_what_is_not_checked_ends_at_its_mark():
    assert len(page("<!-- prose: off -->\n\nas ever\n\n<!-- prose: on -->\n\nas ever").faults) == 1


def test_help_texts_and_errors_are_read(read):
    helps, errors = ({one.text for one in read[name]} for name in (prose.HELP, prose.ERRORS))
    assert "Open a shell on a machine." in helps
    assert any(one.place == "cloudgpu up --help" and "Launch a GPU machine." in one.text for one in read[prose.HELP])
    assert any("CODE" in one for one in errors)
    assert len(errors) > 500


def test_every_page_is_read_but_those_that_are_generated(read):
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/howto.md", "docs/reference/config.md"} <= set(read)
    assert not set(read) & set(prose.GENERATED)


def test_of_the_changelog_only_the_latest_version_is_read():
    assert prose.latest("# C\n\n## 2\n\nnew\n\n## 1\n\nold\n") == "# C\n\n## 2\n\nnew\n"


def test_a_page_with_more_faults_than_it_may_have_fails(tmp_path):
    (tmp_path / "README.md").write_text("As ever.\n" * 1000)
    argv = [sys.executable, str(ROOT / "docs" / "prose.py"), "--check", "--root", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    allowed = prose.ALLOWED.get("README.md", 0)
    assert done.stdout.splitlines()[-1] == f"README.md: 1000 faults, {allowed} are allowed"


def test_the_pages_have_no_more_faults_than_they_may(read):
    measures = prose.measure(read)
    assert [one for one in measures if len(one.faults) > prose.ALLOWED.get(one.page, 0)] == []


def test_a_sentence_that_reaches_the_user_through_a_name_is_read(tmp_path, monkeypatch):
    (tmp_path / "cloudgpu").mkdir()
    module = (
        '"""It stands here as told."""\nsays = f"It stands beside {1}."\nsql = "SELECT thing FROM things WHERE told"\n'
    )
    (tmp_path / "cloudgpu" / "one.py").write_text(f'{module}names = "stands beside told things".split()\n')
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    assert [(one.line, one.text) for one in prose.error_passages()] == [(2, "It stands beside CODE.")]
