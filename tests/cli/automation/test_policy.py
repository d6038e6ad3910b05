"""`cloudgpu policy` by the real command line: what it prints in 80 columns, and how it exits."""

from __future__ import annotations

import json

import pytest

from cloudgpu.config.policies.schema import limits_schema, policy_schema
from tests.cli.program import Program

SHIPPED = ["classroom", "default", "job", "never", "nightly", "notebook", "throwaway", "training"]
USUAL = "lease: 8h\nrenew_until: 3d\n"


@pytest.fixture
def line(many, tmp_path):
    """Run one command line in a home of its own; return how it ended."""
    program = Program(tmp_path / "home")
    program.config('owner = "ada"\ntz = "Asia/Seoul"\n[policies.projects]\nthesis = "nightly"\n')

    def run(words, *more):
        return many.done(program, [*words.split(), *more], tmp_path)

    def write(name, text):
        file = program.home / "policies" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    run.home, run.write = program.home, write
    return run


def narrow(text):
    words = (
        line for line in text.splitlines() if len(line.split()) > 2
    )  # a long path stands alone, or behind its label
    return max(map(len, words), default=0) <= 80


def test_every_policy_is_listed_with_what_it_is_for(line):
    line.write("own", f"description: mine\n{USUAL}idle: {{do: warn}}\n")
    line.write("broken", "lease: soon\n")
    line.write("limits", "lease: 6h\npolicies: [default, own]\npayers: [ada]\n")
    done = line("policy ls")
    assert (done.code, narrow(done.out)) == (0, True), done.out + done.err
    said = " ".join(done.out.split())
    assert "broken ? ? ? - broken.yaml:1:" in said
    assert "own 6h 3d 1h, warns - mine; from " in said
    assert "nightly 6h 5d 1h 19:00 Asia/Seoul" in said
    assert "chosen by policies.projects.thesis; the limits allow no launch under it" in said
    assert "lease at most 6h; policies: default, own; payers: ada." in said
    found = line("policy ls -o json").json
    assert [one["name"] for one in found["policies"]] == sorted([*SHIPPED, "broken", "own"])
    assert {one["name"] for one in found["policies"] if one["allowed"]} == {"default", "own"}


@pytest.mark.parametrize("name", SHIPPED)
def test_what_a_policy_says_fits_a_terminal(line, name):
    done = line(f"policy show {name}")
    assert (done.code, narrow(done.out)) == (0, True), done.out + done.err
    rules = [one["rule"] for one in line(f"policy show {name} -o json").json["rules"]]
    strength = ["budget", "renew-until", "schedule", "hold", "lease", "idle", "unlabelled", "stopped", "images"]
    assert rules == [rule for rule in strength if rule in rules]
    assert {"renew-until", "hold", "lease", "idle"} <= set(rules)


def test_without_a_name_the_usual_one_is_shown(line):
    assert line("policy show -o json").json["name"] == "default"


@pytest.mark.soak
def test_a_machine_says_which_policy_holds_and_why_and_when(line):
    line.write("own", f"{USUAL}schedule: {{off: 19:00}}\nbudget: {{amount: 5}}\n")
    assert line("up --yes --no-wait --name one --policy own").code == 0
    try:
        line.write("limits", "idle_after: 30m\n")
        done = line("policy explain one")
        assert (done.code, narrow(done.out)) == (0, True), done.out + done.err
        said = " ".join(done.out.split())
        assert "policy own why it was launched under own (--policy)" in said
        assert "19:00 there" in said
        assert "the limits stop it after 30m of idle time" in said
        found = line("policy explain one -o json").json
        at = {one["rule"]: one["at"] for one in found["rules"]}
        (machine,) = line("ls -o json").json["machines"]
        assert (at["lease"], at["renew-until"]) == (machine["expires"], machine["renew_until"])
        assert at["schedule"].endswith("T10:00:00.000000Z")
        hold = line("hold one 26h --yes")
        assert (hold.code, "its schedule ends it at" in hold.err) == (0, True), hold.err
        (line.home / "policies" / "own.yaml").unlink()
        done = line("policy explain one")
        assert (done.code, narrow(done.out)) == (0, True), done.out + done.err
        gone = line("policy explain one -o json").json
        assert (gone["error"], gone["source"]) == (None, "the ledger, as the home that launched it last read it")
        assert {"schedule", "budget"} <= {one["rule"] for one in gone["rules"]}
    finally:
        assert line("down one --yes").code == 0


FAULTS = {
    "unknown key": (f"{USUAL}idel: {{after: 1h}}\n", "own.yaml:3: idel"),
    "25:00": (f"{USUAL}schedule:\n  - off: 25:00\n", "own.yaml:4: schedule[0].off"),
    "contradicting thresholds": (f"{USUAL}idle:\n  after: 5m\n  grace: 10m\n", "own.yaml:5: idle.grace"),
    "empty file": ("", "own.yaml:1"),
}


@pytest.mark.parametrize("words", ["policy show own", "up --dry-run --policy own", "policy check"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_policy_is_exit_2_with_line_and_field(line, fault, words):
    text, field = FAULTS[fault]
    line.write("own", text)
    done = line(f"{words} -o json")
    assert (done.code, done.json["error"]["field"]) == (2, field), done.out + done.err
    assert done.json["error"]["next"]


def test_check_names_every_fault_and_what_was_read(line):
    good, bad, worse = (
        line.write(name, text) for name, text in (("good", USUAL), ("bad", "lease: 8h\n"), ("limits", "lease: no\n"))
    )
    done = line("policy check")
    assert done.code == 2
    assert "bad.yaml:1: renew_until is missing" in done.err
    assert "limits.yaml:1: lease is not a duration" in done.err
    assert line("policy check", str(good), "-o", "json").json == {"checked": [str(good)]}
    assert line("policy check", str(worse)).code == 2
    bad.unlink()
    worse.unlink()
    assert line("policy check").out == f"Without a fault: {good}\n"
    good.rename(good.with_suffix(".yml"))
    assert "good.yml is not read: its name has to end in .yaml" in line("policy check").err


def test_check_names_what_limits_allow_and_nobody_has_or_do_not_allow(line):
    line.write("limits", "policies: [default, nightly, clasroom]\n")
    error = line("policy check -o json").json["error"]
    assert (error["field"], error["value"]) == ("limits.yaml: policies", "clasroom")
    assert "did you mean 'classroom'?" in error["message"]
    line.write("limits", "policies: [default]\n")
    error = line("policy check -o json").json["error"]
    assert (error["field"], error["value"]) == ("config.toml: policies.projects.thesis", "nightly")
    assert error["next"] == "Use one of: default."


def test_check_names_a_choice_that_is_no_policy(line):
    (line.home / "config.toml").write_text('[policies.projects]\nthesis = "nigtly"\n')
    error = line("policy check -o json").json["error"]
    assert error["field"] == "config.toml: policies.projects.thesis"
    assert "did you mean 'nightly'?" in error["message"]


def test_the_schemas_for_editors_are_printed(line):
    assert json.loads(line("policy schema").out) == policy_schema()
    assert json.loads(line("policy schema limits").out) == limits_schema()
    assert line("policy schema budget").code == 2


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("policy ls default", 2, "takes no name"),
        ("policy show default never", 2, "takes one name"),
        ("policy show nigtly", 2, "did you mean 'nightly'?"),
        ("policy explain nobody", 7, "No machine is called"),
        ("policy check /nowhere/at/all.yaml", 2, "There is no file"),
        ("policy improve", 2, "improve"),
    ],
)
def test_what_cannot_be_meant_is_refused(line, words, code, says):
    done = line(words)
    assert (done.code, says in done.err) == (code, True), done.err
