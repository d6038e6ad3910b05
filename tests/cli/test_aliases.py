"""Words that people type: other names of verbs, sentences where no verb means them, and what is never proposed."""

from __future__ import annotations

import pytest

from cloudgpu.cli.aliases import ANSWERS, RISKY, SYNONYMS, nearest_verb, resolve_verb
from cloudgpu.cli.app import run
from cloudgpu.cli.verbs import ACTIONS, VERBS
from cloudgpu.errors import InvalidRequest

HARMLESS = """
help halp hlep helpme version versions info about login whoami status state stats step read readme repo rep report
tree test list log logs history heap leap reach reply ready top town done show shop shot spend search post top tops pare
""".split()


@pytest.fixture
def line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CLOUDGPU_HOME", str(tmp_path / "home"))

    def typed(words):
        code = run(words.split())
        return code, *capsys.readouterr()

    return typed


@pytest.mark.parametrize(("word", "verb"), SYNONYMS.items())
def test_another_name_of_a_verb_is_that_verb(line, word, verb):
    assert line(f"{word} --help") == line(f"{verb} --help")


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("help up", "up --help"),
        ("help launch", "up --help"),
        ("help policy backtest", "policy backtest --help"),
        ("help budget ls", "budget --help"),
        ("help", "--help"),
        ("version", "--version"),
        ("budget list", "budget ls"),
        ("policy list", "policy ls"),
        ("status", "ls"),
        ("status -o json", "ls -o json"),
        ("status fox", "show fox"),
        ("ps --all", "ls --all"),
        ("policies", "policy ls"),
        ("budgets -o json", "budget ls -o json"),
        ("policies show default", "policy show default"),
        ("catalog ls", "catalog show"),
        ("cron ls", "cron show"),
        ("budget show", "budget check"),
    ],
)
def test_words_answer_as_the_verb_does(line, words, verb):
    assert line(words) == line(verb)


def test_other_words_hide_no_verb_and_each_leads_to_one():
    assert not {*SYNONYMS, *ANSWERS, "help", "version"} & {*VERBS}
    assert {*SYNONYMS.values()} <= {*VERBS}
    assert {verb for verb, _ in ACTIONS} <= {*VERBS}


@pytest.mark.parametrize("word", ANSWERS)
def test_a_word_that_no_verb_means_gets_a_sentence_and_a_way_out(line, word):
    code, out, err = line(word)
    assert (code, out) == (2 if word != "run" else 255, "")  # `run` answers for the program, as `exec` does
    assert len(err.splitlines()) == 2
    assert "cloudgpu" in err.splitlines()[1]
    assert "did you mean" not in err


def test_config_names_the_file(line, tmp_path):
    assert str(tmp_path / "home" / "config.toml") in line("config")[2]


@pytest.mark.parametrize("word", HARMLESS)
def test_a_harmless_word_is_never_answered_with_what_ends_machines(word):
    try:
        said = " ".join(resolve_verb([word]))
    except InvalidRequest as refused:
        said = f"{refused.message} {refused.next}"
    proposed = {word.strip("'?.") for word in said.replace("--help", "").split()}
    assert not RISKY & proposed, said


@pytest.mark.parametrize(
    ("typo", "verb"),
    [("dwon", "down"), ("stopp", "stop"), ("sto", "stop"), ("rep", "report"), ("lst", "ls"), ("lauch", "launch"),
     ("statu", "status"), ("estimte", "estimate"), ("xyzzy", None)],
)  # fmt: skip
def test_a_slip_of_the_fingers_is_recognised(typo, verb):
    assert nearest_verb(typo) == verb
