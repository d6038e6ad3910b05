"""What the verbs print fits its schemas: one life of a real machine, every document compared."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import cloudgpu
from cloudgpu.access.ssh.client_files import new_host_key
from cloudgpu.control.outage import opening as sessions
from cloudgpu.control.setup.team_ledger import team_ledger_document
from cloudgpu.core.team.rights import Role
from cloudgpu.ledger.log.teams import MissingRight, Sharing, Team
from cloudgpu.views.reaper import run_document
from tests.cli import gcp_line
from tests.cli.automation.test_cron import CRONTAB
from tests.cli.aws_line import Line
from tests.cli.conftest import many
from tests.cli.documents import NOT_TYPED, SCHEMAS, check_output, faults_of, faults_under
from tests.cli.many import QuickProgram
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.core.past import a_backtest, a_why
from tests.receivers.web import WebReceiver
from tests.views.a_comparison import a_comparison
from tests.views.a_pass import a_pass

__all__ = ["aws", "aws_process", "gcp", "gcp_process", "many"]

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
from documents import DOCUMENTS, generated_documents, schema  # noqa: E402  (docs/ is no package)


def _set_budgets(run):
    run("budget-set", "budget", "set", "lab", "--amount", "400", "--period", "month")
    won = ("--amount", "9000", "--currency", "KRW", "--rate", "1385.2", "--period", "rolling:7d")
    run("budget-set", "budget", "set", "lab", *won, "--replace")


def _budgets(run, root):
    run("budget-ls", "budget", "ls")
    file = root / "home" / "policies" / "budgets" / "tiny.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("amount: .000000001\nperiod: day\naction: [stop]\n")
    run("budget-check", "budget", "check")
    run("budget-check", "budget", "check", "lab")
    file.unlink()
    run("budget-rm", "budget", "rm", "lab", "--yes")


def _refreshed(run, root):
    run("ls", "ls", "--refresh")
    run("reap", "reap", "--dry-run", "--explain")
    _policies(run, root)


def _policies(run, root):
    home = root / "home" / "policies"
    home.mkdir(parents=True, exist_ok=True)
    run("policy-explain", "policy", "explain", "one")
    (home / "broken.yaml").write_text("lease: soon\n")
    run("policy-ls", "policy", "ls")
    (home / "broken.yaml").unlink()
    run("show", "show", "--why")
    run("policy-backtest", "policy", "backtest", "default")
    (home / "limits.yaml").write_text("renew_until: 6d\npayers: [ada]\n")
    run("policy-ls", "policy", "ls")
    run("policy-check", "policy", "check")
    run("ledger-owner", "ledger", "owner")
    run("policy-publish", "policy", "publish", "limits")
    (home / "own.yaml").write_text("lease: 1h\nrenew_until: 2h\n")
    run("policy-publish", "policy", "publish", "own")
    run("policy-show", "policy", "show", "own")
    for name in ("own", "limits"):
        run("policy-withdraw", "policy", "withdraw", name)
    (home / "own.yaml").unlink()
    run("policy-show", "policy", "show", "classroom")
    run("policy-show", "policy", "show", "never")
    (home / "limits.yaml").unlink()


def _listed(run):
    run("gpus", "gpus", "--gpu", "l4")
    run("gpus", "gpus", "--gpu", "l4", "--max-price", "0.01")
    run("catalog", "catalog")
    run("catalog-item", "catalog", "show", "p2.xlarge", "--history")
    run("catalog-diff", "catalog", "diff")


def _estimates(run):
    won = ("--currency", "KRW", "--rate", "1385.2", "--rate-date", "2026-11-20")
    run("estimate", "estimate", "--gpu", "t4", "--address", "static", "--all", *won)
    run("estimate", "estimate", "--flops", "1e21", "--gpu", "a100-80gb", "--spot")
    run("estimate", "estimate", "--nodes", "4", "--params", "7B", "--gpu", "a10g", "--spot")
    run("estimate", "estimate", "--instance-type", "p5.48xlarge", "--region", "eu-west-3")


def _ledgers(run, root):
    run("ledger-backup", "ledger", "backup", str(root / "copy"))
    run("ledger-restore", "ledger", "restore", str(root / "copy"), "--yes")
    run("ledger-move", "ledger", "move", f"sqlite://{root}/moved.db", "--yes")


def _jobs(cloudgpu, run, root):
    (root / "work").mkdir()
    done = cloudgpu("run", "--on", "one", "--workdir", str(root / "work"), "train", "--", "true")
    assert done.code == 0, done.err
    run("jobs", "jobs", "--all")
    run("job", "show", "job:train")
    run("cancel", "cancel", "train")
    (root / "zone.json").write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 0, 0, 1, 1] * 9}))
    job = ("--work", "2h", "--deadline", "4h", "--starts", "2", "--policy", "greedy")
    run("spot-backtest", "spot", "backtest", "--traces", str(root / "zone.json"), *job)


def _costs(run):
    run("cost", "cost")
    run("compare", "compare")
    run("report", "report")
    won = ("--currency", "KRW", "--rate", "1385.2", "--rate-date", "2026-11-20")
    run("cost", "cost", "--by", "day", "--since", "1d", *won)
    _estimates(run)
    _listed(run)


@pytest.fixture(scope="module")
def printed(tmp_path_factory, many) -> dict[str, list[Any]]:
    """Name of a schema -> the documents that were printed in one life of a machine."""
    root = tmp_path_factory.mktemp("json")
    cloudgpu = QuickProgram(root / "home", many=many)
    cloudgpu.config(
        '[accounts.local]\ninterruption_notice = "1s"\n[[credits]]\nname = "trial"\namount = 1\nprovider = "local"\n'
    )
    (root / "file").write_text("x")
    found: dict[str, list[Any]] = {}

    def run(name: str, *words: str) -> None:
        done = cloudgpu(*words, "-o", "json", timeout=90)
        assert done.out, done.err
        found.setdefault(name, []).append(done.json)

    try:
        _set_budgets(run)
        run("up-dry-run", "up", "--dry-run")
        run("ls", "ls")
        run("up", "up", "--yes", "--name", "one", "--spot")
        run("up-dry-run", "up", "--dry-run", "--name", "one", "--spot")
        run("up", "up", "--yes", "--name", "one", "--spot")
        for words in (("show",), ("extend", "one", "1h", "--yes"), ("hold", "one", "1h", "--yes")):
            run("machine", *words)
        run("cp", "cp", str(root / "file"), "one:")
        (root / "ada.pub").write_text(new_host_key().public_line)
        run("share", "share", "--key", str(root / "ada.pub"))
        run("share", "share", "--remove")
        run("allow", "allow")
        run("tunnel", "tunnel", "--background")
        run("tunnel-stop", "tunnel", "--stop")
        _jobs(cloudgpu, run, root)
        _refreshed(run, root)
        run("machine", "stop", "--yes")
        run("machine", "start", "--yes")
        _costs(run)
        run("export", "export", "--out", str(root / "bill.csv"))
        run("cost-reconcile", "cost", "reconcile", str(root / "bill.csv"))
        run("cost-verify", "cost", "--verify")
        _budgets(run, root)
        _ledgers(run, root)
        run("show", "show", "--history")
        run("doctor", "doctor")
        run("doctor-live", "doctor", "--live", "--provider", "local", "--yes")
        (root / ".aws").mkdir()
        (root / ".aws" / "credentials").write_text("[lab]\n")
        run("init", "init", "--yes", "--owner", "ada")
        run("spot", "spot", "rehearse", "one", "--yes")
        run("down", "down", "one", "--yes")
        run("ls", "ls", "--all")
        run("error", "stop", "one", "--yes")
        run("error", "up", "--lease", "8x")
        run("demo", "demo")
    finally:
        cloudgpu("down", "--all", "--yes", timeout=120)
    return found


def test_every_document_has_a_schema_that_it_fits(printed):
    wrong = {
        name: found
        for name, documents in printed.items()
        if (found := [one for document in documents for one in faults_under(name, document)])
    }
    assert not wrong


def test_a_backtest_with_ends_and_work_in_it_is_as_the_page_says():
    value = a_backtest()
    assert value["stops"][0]["work"]
    assert not faults_under("policy-backtest", value)


def test_a_pass_in_which_all_of_it_happens_is_as_the_page_says():
    value = run_document(a_pass(), explain=True)
    assert all(value[key] for key in set(value) - {"busy", "dry_run", "took_s"})
    assert not faults_under("reap", value)


def test_why_with_every_signal_is_as_the_page_says():
    value = a_why()
    assert len(value["signals"]) == 9
    assert not faults_under("reap", run_document(a_pass()) | {"explained": [value]})


def test_a_comparison_with_all_that_can_be_said_is_as_the_page_says():
    value = a_comparison()
    assert all(value[key] for key in set(value) - {"until"})
    assert not faults_under("compare", value)


ON_A_CLOUD = {
    "init-cloud": "init aws --yes",
    "init-forget": "init --forget lab --yes",
    "init-rename": "init --rename lab mine --yes",
    "regions": "regions --gpu v100 --ping",
    "quota": "quota --gpu v100",
    "quota-request": "quota --request enough --gpu v100 --count 20 --region us-east-1 --yes",
    "up-dry-run": "up --gpu v100 --spot --ssh-from 203.0.113.7 --volume data:20 --dry-run",
}


@pytest.mark.parametrize("heading", ON_A_CLOUD)
def test_what_is_printed_about_a_cloud_is_as_the_page_says(heading, own_home, capsys, aws):
    said = Line(own_home, capsys, aws)(ON_A_CLOUD[heading], "-o", "json")
    assert said.code == 0, said.out
    assert not faults_under(heading, said.json)


ON_GOOGLE = {
    "init-cloud": "init gcp --account other --yes",  # all clouds print the same document
    "up-dry-run": "up --provider any --gpu t4 --ssh-from 203.0.113.7 --dry-run",
}


def test_what_is_printed_about_google_is_as_the_page_says(own_home, capsys, gcp):
    line = gcp_line.Line(own_home, capsys, gcp)
    said = {heading: line(words, "-o", "json") for heading, words in ON_GOOGLE.items()}
    for heading, one in said.items():
        assert one.code == 0, one.out
        assert not faults_under(heading, one.json)
    assert said["init-cloud"].json["findings"]
    assert said["up-dry-run"].json["plan"]["by_account"]


LEFT = (
    ("orphans", "orphans"),
    ("orphans", "orphans --clean --snapshot --yes"),
)


def test_what_is_left_over_is_printed_as_the_page_says(own_home, capsys, aws, monkeypatch):
    line = Line(own_home, capsys, aws)
    assert line("up --gpu v100 --spot --ssh-from 203.0.113.7 --name otter --no-wait --yes").code == 0
    aws.interrupt(aws.instances(live=True)[0].id)
    line("ls --refresh")
    opened = sessions.open_session
    later = partial(opened, clock=lambda: sessions.utc_now() + timedelta(days=1))
    monkeypatch.setattr(sessions, "open_session", later)
    for heading, words in LEFT:
        said = line(words, "-o", "json")
        assert said.code == 0, said.out
        assert not faults_under(heading, said.json)
    assert {one["kind"] for one in said.json["removed"]} == {"disk", "key_pair", "security_group"}


RETAINED = (
    ("up", "up --gpu v100 --spot --ssh-from 203.0.113.7 --volume data:20 --name otter --no-wait --yes"),
    ("cost", "cost"),
    ("image-save", "image save otter --name mine --yes"),
    ("images", "image ls"),
    ("volumes", "volume ls"),
    ("machine", "stop otter --yes"),
    ("ls", "ls"),
    ("down", "down otter --yes"),
    ("removed", "image rm mine --yes"),
    ("removed", "volume rm data --yes"),
)


def test_what_is_kept_is_printed_as_the_page_says(own_home, capsys, aws):
    line = Line(own_home, capsys, aws)
    for heading, words in RETAINED:
        said = line(words, "-o", "json")
        assert said.code == 0, said.out
        assert not faults_under(heading, said.json)


BY_ITSELF = (
    ("cron-change", "cron install --yes"),
    ("cron-show", "cron show"),
    ("cron-change", "cron remove --yes"),
    ("cron-test", "cron test"),
    ("watch-status", "watch --status"),
)


def test_what_goes_on_by_itself_is_printed_as_the_page_says(many, tmp_path):
    (tmp_path / "crontab").write_text(CRONTAB)
    (tmp_path / "crontab").chmod(0o755)
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TABLE": str(tmp_path / "table")}
    cloudgpu = QuickProgram(tmp_path / "home", own, many)
    cloudgpu.config("")
    assert cloudgpu("reap").code == 0
    for heading, words in BY_ITSELF:
        assert not faults_under(heading, cloudgpu(*words.split(), "-o", "json").json)


ADVICE = (
    ("fine-tuning", {"params": "7b", "method": "lora", "hours_per_week": 5}),
    ("research", {"gpus": 4, "budget": 4000, "currency": "KRW", "rate": "1385.2", "rate_date": "2026-11-20"}),
    (None, {"memory": 5000}),
)


def test_a_recommendation_is_printed_as_the_page_says(tmp_path):
    with cloudgpu.connect(home=tmp_path / "home") as gpu:
        for work, asked in ADVICE:
            assert not faults_under("recommend", gpu.advice.recommend(work, **asked)), work


CALCULATED = (
    {"gpu": "v100", "price": "2.14", "utilization": "15%"},
    {"gpu": "k80", "utilization": "personal", "desktop": "rtx3090x2", "work": "training"},
    {"price": "0.01", "hours_per_day": 0, "currency": "KRW", "rate": "1400", "rate_date": "2026-11-20"},
)


def test_a_price_and_a_use_are_compared_as_the_page_says(tmp_path):
    with cloudgpu.connect(home=tmp_path / "home") as gpu:
        for asked in CALCULATED:
            assert not faults_under("compare-calculated", gpu.advice.compare(**asked)), asked
        assert not faults_under("compare-desktops", gpu.advice.desktops())


def test_a_report_that_is_sent_is_as_the_page_says(tmp_path):
    receiver = WebReceiver()
    (tmp_path / "config.toml").write_text(f"[alerts]\nto = ['json://{receiver.place}/', 'json://127.0.0.1:9/']\n")
    with cloudgpu.connect(home=tmp_path) as gpu:
        value, nothing = gpu.money.send_report(), gpu.money.send_report(month="last")
    receiver.end()
    assert nothing["nothing_sent"]
    assert not faults_under("report-send", nothing)
    assert (len(value["sent"]), len(value["failed"])) == (1, 1)
    assert not faults_under("report-send", value)


def test_a_team_is_printed_as_the_page_says():
    lacks = MissingRight("The role m does not exist.", "CREATE ROLE m NOLOGIN;", "the administrator")
    ways = (None, ()), (Team("m", "p"), (lacks,))
    for team, missing in ways:
        found = Sharing(
            "postgresql://h/d", "bo", "lab", Role.MEMBER, team, True, ("bo",), ("ada",), missing, ("x",), True
        )
        assert not faults_under("ledger-init", team_ledger_document(found))


# The first four: tests/cli hold them to their schemas, in market/test_catalog.py, access/test_bench.py and clusters.
BY_CALL = {
    "catalog-refresh",
    "bench-network",
    "cluster",
    "show-cluster",
    "budget-test",
    "compare-calculated",
    "compare-desktops",
    "policy-backtest",
    "recommend",
    "report-send",
    "ledger-init",
}


def test_every_document_was_printed(printed):
    elsewhere = {name for name, _ in (*RETAINED, *BY_ITSELF, *LEFT)} | set(ON_A_CLOUD) | BY_CALL
    assert {one.name for one in DOCUMENTS} - set(printed) - elsewhere == {"declined"}


def test_the_schemas_that_lie_there_are_those_of_the_documents():
    lying = {f"docs/reference/schemas/{file.name}" for file in SCHEMAS.iterdir()}
    assert lying == set(generated_documents()) - {"docs/reference/json.md"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.name)
def test_each_schema_is_one_of_its_dialect(document):
    made = schema(document)
    Draft202012Validator.check_schema(made)
    assert made["additionalProperties"] is False
    assert all(one["additionalProperties"] is False for one in made.get("$defs", {}).values())


PLANTED = (
    (lambda document: document.update(speed=3), "$: Additional properties are not allowed ('speed' was unexpected)"),
    (lambda document: document.update(port="8888"), "$.port: '8888' is not of type 'integer'"),
    (lambda document: document.pop("pid"), "$: 'pid' is a required property"),
)


@pytest.mark.parametrize(("plant", "fault"), PLANTED)
def test_what_a_command_prints_beside_its_schema_fails_the_test_that_sees_it(plant, fault):
    args = ("tunnel", "one", "--background", "-o", "json")
    document = {"name": "one", "port": 8888, "url": "http://localhost/", "started": True, "background": True, "pid": 7}
    check_output(args, json.dumps(document), 0)
    plant(document)
    with pytest.raises(AssertionError) as said:
        check_output(args, json.dumps(document), 0)
    assert fault in str(said.value)


def test_a_time_an_amount_and_a_word_are_held_to_their_form():
    price = {"usd_per_hour": "0.5", "source": "s", "as_of": "2026-11-20T12:20:10Z", "basis": "listed"}
    price["negotiated"] = False
    region = {"region": "r", "ping_ms": None, "price": price, "instance_type": None, "zone": None}
    head = {"provider": "aws", "account": "a", "gpu": None, "market": "spot", "live": True, "one_address": False}
    document = {**head, "regions": [region], "unanswered": []}
    assert not faults_under("regions", document)
    for key, wrong in (("usd_per_hour", "$0.5"), ("as_of", "yesterday"), ("basis", "guessed")):
        region["price"] = price | {key: wrong}
        assert [fault for fault in faults_under("regions", document) if f"price.{key}: " in fault]


def test_a_verb_without_a_schema_fails_unless_it_is_listed():
    assert not NOT_TYPED
    assert faults_of(("fortune", "-o", "json"), {"x": 1}) != []
