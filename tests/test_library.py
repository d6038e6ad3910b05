"""The library's face: the command line's documents and errors, its ledger and machines, and never a question."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import cloudgpu
from cloudgpu import errors
from cloudgpu.testing import FAKE, write_plugin
from tests.cli.many import QuickProgram, shared

ROOT = Path(__file__).parents[1]


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self):
        self.now = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)

    def __call__(self):
        return self.now


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with an account at the fake cloud, which processes share by a file."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[accounts.lab]\nprovider = "fake"\nstate_file = {json.dumps(str(tmp_path / "cloud.json"))}\n'
    )
    monkeypatch.syspath_prepend(str(write_plugin(tmp_path / "plugin", {"fake": FAKE})))
    return home


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def gpu(home, clock):
    with cloudgpu.connect(home=home, clock=clock) as gpu:
        yield gpu


@pytest.fixture
def program(home, tmp_path):
    """The command line on the same home and the same cloud."""
    return QuickProgram(home, {"PYTHONPATH": ":".join([str(tmp_path / "plugin"), str(ROOT)])}, shared())


WISH = {"provider": "fake", "gpu": "v100", "name": "quiet-owl"}


def launched(gpu, **more):
    return gpu.machines.up(wait=False, **(WISH | more))["machine"]


def refused(call, kind=cloudgpu.InvalidRequest):
    with pytest.raises(kind) as raised:
        call()
    assert type(raised.value) is kind
    return raised.value


def test_importing_the_library_imports_nothing_but_its_errors():
    script = "import sys; before = set(sys.modules); import cloudgpu; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert {name for name in imported if name.startswith("cloudgpu")} == {"cloudgpu", "cloudgpu.errors"}
    assert not [name for name in imported if name.partition(".")[0] not in {*sys.stdlib_module_names, "cloudgpu"}]


def test_every_error_can_be_imported_from_the_library():
    tree = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert tree == set(cloudgpu.__all__) - {"connect", "Cloudgpu"}
    assert all(getattr(cloudgpu, name) is getattr(errors, name) for name in tree)
    assert cloudgpu.Cloudgpu.__name__ == "Cloudgpu"
    with pytest.raises(AttributeError, match="conect"):
        cloudgpu.conect  # noqa: B018


def test_connecting_makes_no_file(tmp_path):
    with cloudgpu.connect(home=tmp_path / "nowhere") as gpu:
        assert gpu.machines.ls()["machines"] == []
        assert gpu.machines.plan()["plan"]["provider"] == "local"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("home", ["", ".", "machines"])
def test_a_home_that_means_another_place_in_every_directory_is_refused(home):
    fault = refused(lambda: cloudgpu.connect(home=home))
    assert fault.field == "CLOUDGPU_HOME"


def test_the_environment_can_be_given(home, own_home):
    assert cloudgpu.connect(environ={"CLOUDGPU_HOME": str(home)}).home == home
    assert cloudgpu.connect().home == own_home


@pytest.mark.soak
def test_the_documents_are_those_of_the_command_line(gpu, program, clock):
    """The same look at the same machine: nothing differs but what the clock says."""
    clock.now = datetime.now(UTC)
    launched(gpu, lease="2h")
    clock.now = datetime.now(UTC)
    of_library = {
        "ls": gpu.machines.ls(),
        "ls --all": gpu.machines.ls(all=True),
        "show": gpu.machines.show(),
        "show --history": gpu.machines.show(history=True),
        "cost": gpu.money.cost(),
        "cost --verify": gpu.money.verify(),
        "up --dry-run --provider fake --gpu v100 --name quiet-owl": gpu.machines.plan(**WISH),
    }
    for words, document in of_library.items():
        said = program(*words.split(), "-o", "json")
        assert said.code == 0, said.err
        assert timeless(said.json) == timeless(document), words


def timeless(value):
    """The document without what differs from one second to the next."""
    if isinstance(value, dict):
        moving = ("as_of", "expires", "renew_until", "usd", "hours", "sentence", "projected")
        return {key: timeless(item) for key, item in value.items() if key not in moving and "_usd" not in key}
    return [timeless(item) for item in value] if isinstance(value, list) else value


@pytest.mark.soak
def test_the_command_line_ends_what_the_library_launched_and_the_other_way_round(gpu, program):
    launched(gpu)
    said = program("down", "quiet-owl", "--yes", "-o", "json")
    assert (said.code, said.json["terminated"][0]["name"]) == (0, "quiet-owl"), said.err
    assert gpu.machines.ls()["machines"] == []
    up = ("up", "--provider", "fake", "--gpu", "v100", "--name", "loud-owl", "--no-wait", "--yes")
    assert program(*up).code == 0
    assert [machine["name"] for machine in gpu.machines.down()["terminated"]] == ["loud-owl"]


@pytest.mark.soak
def test_the_errors_are_those_of_the_command_line(gpu, program):
    cases = [
        (lambda: gpu.machines.plan(**(WISH | {"gpu": "v100:0"})), "up --provider fake --gpu v100:0"),
        (lambda: gpu.machines.plan(lease="8x"), "up --lease 8x"),
        (lambda: gpu.machines.plan(max_price="free"), "up --max-price free"),
        (lambda: gpu.machines.plan(provider="fake", region="moon"), "up --provider fake --region moon"),
        (lambda: gpu.machines.show("nobody"), "show nobody"),
        (lambda: gpu.machines.down("a", "a"), "down a a --yes"),
        (lambda: gpu.machines.down("a", all=True), "down a --all --yes"),
        (lambda: gpu.machines.cp("here", "there"), "cp here there"),
        (gpu.machines.stop, "stop"),
    ]
    for call, words in cases:
        with pytest.raises(cloudgpu.CloudgpuError) as raised:
            call()
        said = program(*words.split(), "-o", "json")
        assert (said.code, said.json["error"]) == (raised.value.exit_code, raised.value.as_dict()), words


def test_the_same_request_returns_the_same_machine(gpu):
    first, again = gpu.machines.up(wait=False, **WISH), gpu.machines.up(wait=False, **WISH)
    assert (first["found"], again["found"]) == (False, True)
    assert first["machine"]["id"] == again["machine"]["id"]


def test_durations_and_moments_are_values_or_text(gpu, clock):
    launched(gpu, lease=timedelta(hours=2), renew_until="3h")
    machine = gpu.machines.show()
    assert machine["expires"] == "2026-11-20T14:00:00.000000Z"
    assert gpu.machines.extend("quiet-owl", timedelta(minutes=30))["expires"] == "2026-11-20T14:30:00.000000Z"
    clock.now += timedelta(microseconds=1)  # another line of the ledger
    assert gpu.machines.extend(None, "30m")["expires"] == "2026-11-20T15:00:00.000000Z"
    for until in (timedelta(hours=1), "1h", clock.now + timedelta(hours=1), "2026-11-20T14:00+01:00"):
        clock.now += timedelta(microseconds=1)  # two holds are two lines
        assert gpu.machines.hold("quiet-owl", until)["held_until"] == "2026-11-20T13:00:00.000000Z"
    clock.now += timedelta(microseconds=1)
    assert gpu.machines.hold("quiet-owl", release=True)["held_until"] is None


@pytest.mark.parametrize("lease", [timedelta(0), timedelta(hours=-1), timedelta(days=9999), "0h", "", "tomorrow"])
def test_a_lease_that_is_none_is_refused(gpu, lease):
    assert refused(lambda: gpu.machines.plan(**WISH, lease=lease)).field == "--lease"


def test_a_hold_has_an_end_that_is_meant(gpu, clock):
    launched(gpu)
    naive = datetime(2026, 11, 21)  # noqa: DTZ001  (that is the fault)
    for until in (None, naive, clock.now, timedelta(0), timedelta.max, "soon"):
        fault = refused(lambda until=until: gpu.machines.hold("quiet-owl", until))
        assert (fault.field, bool(fault.next)) == ("UNTIL", True)
    refused(lambda: gpu.machines.hold("quiet-owl", "1h", release=True))
    assert gpu.machines.show()["held_until"] is None


def test_a_hold_that_loses_is_told(home, clock):
    told = []
    with cloudgpu.connect(home=home, clock=clock, tell=told.append) as gpu:
        launched(gpu, lease="1h", renew_until="2h")
        gpu.machines.hold("quiet-owl", "3h")
    assert any("renew-until ends it" in sentence for sentence in told)


def test_a_misspelt_wish_launches_nothing(gpu):
    with pytest.raises(TypeError, match="'gpus'"):
        gpu.machines.up(provider="fake", gpus="v100")
    with pytest.raises(TypeError, match=r"set_budget\(\) got an unexpected keyword argument 'scop'"):
        gpu.money.set_budget("lab", 300, "month", scop="all")
    assert gpu.machines.ls(refresh=True)["machines"] == []
    assert gpu.money.budgets()["budgets"] == []


def test_an_option_of_a_budget_that_is_no_text_is_refused_by_its_name(gpu):
    fault = refused(lambda: gpu.money.set_budget("lab", 300, "month", thresholds=50))
    assert (fault.field, fault.next) == ("--thresholds", 'Write it as text: "50".')


def test_a_machine_that_is_almost_called_so_is_named(gpu):
    launched(gpu)
    fault = refused(lambda: gpu.machines.down("quiet-owI"), cloudgpu.InstanceNotFound)
    assert "did you mean 'quiet-owl'?" in fault.message
    assert not fault.retryable


def test_a_launch_that_is_uncertain_may_be_repeated_and_makes_one_machine(gpu):
    cloud = gpu._session.provider("lab")
    cloud.lose_reply("launch")
    fault = refused(lambda: launched(gpu), cloudgpu.LaunchUncertain)
    assert fault.retryable
    assert launched(gpu)["name"] == "quiet-owl"
    assert len(cloud.list().instances) == 1


def test_the_catalogue_is_asked_by_item_by_change_and_as_a_whole(gpu):
    assert [one["provider"] for one in gpu.advice.catalog("aws")["providers"]] == ["aws"]
    assert gpu.advice.prices("g5.xlarge", region="us-east-1")["provider"] == "aws"
    assert {row["region"] for row in gpu.advice.prices("g5.xlarge", region="us-east-1")["prices"]} == {"us-east-1"}
    assert refused(lambda: gpu.advice.price_changes(factor=0.5)).field == "--factor"
    assert "did you mean 'g5.xlarge'" in refused(lambda: gpu.advice.prices("g5.xlargee")).message


def test_stop_and_start_are_proved_and_paid(gpu, clock):
    launched(gpu)
    clock.now += timedelta(hours=1)
    stopped = gpu.machines.stop("quiet-owl")
    assert (stopped["state"], stopped["billed"], stopped["spent_usd"]) == ("stopped", False, "3")
    started = gpu.machines.start(lease=timedelta(hours=5), wait=False)
    assert (started["billed"], started["expires"]) == (True, "2026-11-20T18:00:00.000000Z")
    assert gpu.money.cost()["total_usd"] == "3"


def test_an_account_that_does_not_answer_is_named_and_nothing_is_raised(gpu, home):
    launched(gpu)
    cloud = gpu._session.provider("lab")
    cloud.hide("north")
    listing = gpu.machines.ls(refresh=True)
    assert [gap["scope"] for gap in listing["unanswered"]] == ["north"]
    assert [machine["name"] for machine in listing["machines"]] == ["quiet-owl"]


def test_down_tries_every_machine_and_raises_the_gravest_fault(gpu):
    for name in ("one", "two", "three"):
        launched(gpu, name=name)
    cloud = gpu._session.provider("lab")
    cloud.fail_next("terminate", errors.AuthFailed("the key may not do that"))
    fault = refused(lambda: gpu.machines.down("one", "two", "three"), cloudgpu.AuthFailed)
    (kept,) = (machine["name"] for machine in gpu.machines.ls(refresh=True)["machines"])  # they are ended side by side
    gone = ", ".join(name for name in ("one", "two", "three") if name != kept)
    assert fault.__notes__ == [f"Proved gone: {gone}. Not proved: 1."]


def test_an_interruption_is_rehearsed(gpu, clock):
    launched(gpu, spot=True)
    document = gpu.machines.rehearse()
    assert document == {"name": "quiet-owl", "taken_at": "2026-11-20T12:02:00.000000Z"}


def test_a_command_is_a_list_of_words(gpu):
    launched(gpu)
    assert refused(lambda: gpu.machines.exec("quiet-owl", "rm -rf /")).field == "CMD"
    assert refused(lambda: gpu.machines.tunnel("quiet-owl", port=0)).field == "--port"


def test_a_command_on_all_nodes_has_an_answer_or_an_error_of_each(gpu):
    launched(gpu, name="train", nodes=2, engine="none")  # machines of the fake cloud have no address
    said = gpu.machines.exec_all("train", ["true"])
    assert list(said) == ["train-0", "train-1"]
    assert all(isinstance(one, cloudgpu.CloudgpuError) for one in said.values())
    assert refused(lambda: gpu.machines.exec_all("train", "true")).field == "CMD"


def test_the_network_is_measured_by_a_tool_that_there_is(gpu):
    launched(gpu)
    assert refused(lambda: gpu.machines.bench_network("quiet-owl", tool="ping")).field == "--with"
    assert refused(lambda: gpu.machines.bench_network("quiet-owl", seconds=0)).field == "--seconds"
    assert "has two ends" in refused(lambda: gpu.machines.bench_network("quiet-owl")).message


def test_real_nodes_answer_each_for_itself(tmp_path):
    with cloudgpu.connect(home=tmp_path / "home") as gpu:
        try:
            gpu.machines.up(name="pair", nodes=2, provider="local", template="bare", engine="none")
            said = gpu.machines.exec_all("pair", ["sh", "-c", "echo $CLOUDGPU_MACHINE; exit 4"])
            assert {name: one.status for name, one in said.items()} == {"pair-0": 4, "pair-1": 4}
            assert len({one.stdout for one in said.values()}) == 2
        finally:
            gpu.machines.down(all=True)


def test_doctor_says_what_is_not_right_and_raises_nothing(gpu):
    assert gpu.automation.doctor()["ok"]
    gpu._session.provider("lab").hide("south")
    found = {check["name"]: check for check in gpu.automation.doctor()["checks"]}
    assert found["account lab"]["verdict"] == "fail"


@pytest.mark.soak
def test_a_real_machine_runs_a_command_a_notebook_and_a_copy(tmp_path):
    told = []
    (tmp_path / "data").write_bytes(b"1\n2\n")
    with cloudgpu.connect(home=tmp_path / "home", tell=told.append) as gpu:
        try:
            gpu.machines.up(name="one")
            assert gpu.machines.cp([tmp_path / "data"], "one:") == {"files": 1, "bytes": 4, "skipped": [], "failed": []}
            done = gpu.machines.exec("one", ["sh", "-c", "cat data - ; echo bad >&2; exit 3"], input=b"3\n")
            assert (done.status, done.stdout, done.stderr) == (3, b"1\n2\n3\n", b"bad\n")
            with gpu.machines.tunnel() as tunnel:
                document = tunnel.document()
                assert (document["port"], document["url"]) == (tunnel.port, tunnel.url)
                assert tunnel.token not in repr(tunnel)
        finally:
            assert [machine["name"] for machine in gpu.machines.down(all=True)["terminated"]] == ["one"]
    assert "one: waiting for the machine to run" in told


def parts_of(gpu):
    return {name: getattr(gpu, name) for name in ("machines", "jobs", "money", "automation", "advice")}


def test_every_method_has_its_docstring_and_its_row_on_the_page(gpu):
    page = (ROOT / "docs" / "library.md").read_text()
    for name, part in parts_of(gpu).items():
        section = page.partition(f"\n### {name}\n")[2].partition("\n#")[0]
        methods = dict(inspect.getmembers(type(part), inspect.isfunction))
        public = {method for method in methods if method[0] != "_"}
        assert set(re.findall(r"^\| `(\w+)\(", section, re.MULTILINE)) == public
        assert all(inspect.getdoc(methods[method]) for method in public)


def test_every_method_is_in_one_part_alone_but_what_machines_and_jobs_share(gpu):
    assert [name for name in dir(gpu) if name[0] != "_"] == [
        "advice", "automation", "close", "home", "jobs", "machines", "money",
    ]  # fmt: skip
    names = [name for part in parts_of(gpu).values() for name in dir(part) if name[0] != "_"]
    assert {name for name in names if names.count(name) > 1} == {"plan", "show"}
    assert {"plan", "show"} <= set(dir(gpu.machines)) & set(dir(gpu.jobs))


def test_no_method_takes_or_returns_what_has_no_type(gpu):
    for part in parts_of(gpu).values():
        for name, method in inspect.getmembers(type(part), inspect.isfunction):
            said = {key: text for key, text in method.__annotations__.items() if name[0] != "_"}
            assert name[0] == "_" or "return" in said, name
            assert not [text for text in said.values() if re.search(r"\bAny\b|\bdict\b|\bobject\b", text)], name


def test_what_can_be_bought_is_what_the_command_line_prints(gpu, program):
    asked = {"gpu": "v100:4", "max_price": "20", "spot": True, "sort": "speed-per-dollar"}
    printed = program(
        "gpus", "--gpu", "v100:4", "--max-price", "20", "--spot", "--sort", "speed-per-dollar", "-o", "json"
    ).json
    ours = gpu.advice.gpus(**asked)
    assert [offer["instance_type"] for offer in ours["offers"]] == [item["instance_type"] for item in printed["offers"]]
    assert ours.keys() == printed.keys()
    assert refused(lambda: gpu.advice.gpus(sort="beauty")).field == "--sort"
    assert refused(lambda: gpu.advice.gpus(provider="ssh")).field == "--provider"


def test_a_pass_is_what_the_command_line_prints(gpu, program, clock):
    clock.now = datetime.now(UTC)
    launched(gpu, name="fox")
    printed = program("reap", "--dry-run", "-o", "json").json
    ours = gpu.automation.reap(dry_run=True)
    assert ours.keys() == printed.keys()
    assert [one["name"] for one in ours["decisions"]] == [one["name"] for one in printed["decisions"]] == ["fox"]
    assert (gpu.automation.reap()["exit_code"], gpu.machines.ls()["last_run"]) == (
        0,
        f"{clock.now:%Y-%m-%dT%H:%M:%S.%fZ}",
    )
    assert refused(lambda: gpu.automation.reap(policy="nosuch")).field == "policy"


def test_what_policies_say_is_what_the_command_line_prints(gpu, program, tmp_path):
    row = launched(gpu, policy="nightly")
    assert {one["name"] for one in gpu.automation.policies()["policies"]} >= {"default", "nightly", "never"}
    assert (gpu.automation.policy()["name"], gpu.automation.policy("never")["idle"]["do"]) == ("default", "off")
    assert gpu.automation.explain_policy(row["name"])["policy"] == "nightly"
    assert gpu.automation.check_policies() == {"checked": []}
    assert program("policy", "show", "never", "-o", "json").json == gpu.automation.policy("never")
    (tmp_path / "own.yaml").write_text("lease: 8h\n")
    with pytest.raises(errors.InvalidRequest, match="renew_until is missing"):
        gpu.automation.check_policies(tmp_path / "own.yaml")


def test_a_key_is_shared_by_its_public_half_only(gpu, tmp_path):
    assert refused(lambda: gpu.machines.share("quiet-owl")).field == "--key"
    (tmp_path / "key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert "private" in str(refused(lambda: gpu.machines.share("quiet-owl", tmp_path / "key")))
