"""Bad input through the real command line: exit code, field, value and the way out; nothing is launched or written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.program import Done, Program

Files = dict[str, "str | bytes | None"]  # below CLOUDGPU_HOME; None makes a directory


@dataclass
class Case:
    """A command line, the field that is wrong, words of the sentence and of the way out, the exit code."""

    args: str | list[str]
    field: str
    says: str
    out: str
    code: int = 2
    files: Files = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def words(self, *more: str) -> list[str]:
        words = self.args.split() if isinstance(self.args, str) else self.args
        return [words[0], *more, *words[1:]]


def config(text: str | bytes) -> Files:
    return {"config.toml": text}


def template(text: str | bytes) -> Files:
    return {"templates/mine.yaml": text}


def policy(text: str) -> Files:
    return {"policies/mine.yaml": text}


UP = ["up", "--yes"]
MINE = "up --yes --template mine"
DURATION = "Write it like 90m, 8h"
PRICE = "--max-price 1.50"
NAMES = "brave-otter"
GPU = "--gpu a100:8"
LEDGER = "sqlite:///a/local/path/ledger.db"
NO_SERVER = "postgresql://me:secret@127.0.0.1:1/db"
HELP = "cloudgpu up --help"

DURATIONS = [
    Case("up --yes --lease soon", "--lease", "'soon' is not a duration", DURATION),
    Case("up --yes --lease 0h", "--lease", "'0h' is not a duration", DURATION),
    Case("up --yes --lease -3h", "--lease", "'-3h' is not a duration", DURATION),
    Case([*UP, "--lease", ""], "--lease", "'' is not a duration", DURATION),
    Case("up --yes --lease 99999999999999999999d", "--lease", "is not a duration", DURATION),
    Case("up --yes --renew-until 11y", "--renew-until", "'11y'", DURATION),
    Case("up --yes --lease 4h --renew-until 1h", "--renew-until", "shorter than the lease", "at least as long"),
    Case("start --yes --lease x", "--lease", "'x' is not a duration", DURATION),
    Case("orphans --older-than -1d", "--older-than", "'-1d' is not a duration", DURATION),
    Case("reap --max-stops few", "--max-stops", "'few' is not a whole number", "cloudgpu reap --help"),
    Case("up --dry-run --lease x", "--lease", "'x' is not a duration", DURATION),
]
OWN = "up --yes --policy mine"
POLICIES = [
    Case("up --yes --policy defualt", "policy", "did you mean 'default'?", "Use one of: classroom, default"),
    Case("up --yes --policy ../evil", "policy", "cannot be a policy's name", "Use one of: classroom, default"),
    Case([*UP, "--policy", ""], "--policy", "is empty", "leave --policy out"),
    Case(OWN, "mine.yaml:2: leese", "did you mean 'lease'?", "renew_until", files=policy("# mine\nleese: 8h\n")),
    Case(OWN, "mine.yaml:1: lease", "is not a duration", DURATION, files=policy("lease: 8\nrenew_until: 9h\n")),
    Case(OWN, "mine.yaml:2: renew_until", "shorter", "at least", files=policy("lease: 8h\nrenew_until: 7h\n")),
    Case(OWN, "mine.yaml:1", "holds no `key: value` lines", "Correct line 1", files=policy("")),
    Case(
        OWN,
        "mine.yaml:4: spot.unpausable",
        "did you mean 'terminate'?",
        "park, terminate, warn",
        files=policy("lease: 8h\nrenew_until: 9h\nspot:\n  unpausable: terminat\n"),
    ),
    Case("up --yes", "config.toml: lease", "longer than renew_until", "at least", files=config("lease = '100h'")),
    Case("up --yes", "config.toml: renew_until", "shorter", "at least", files=config("renew_until = '1h'")),
]
PRICES = [
    *(
        Case(f"up --yes --max-price {text}", "--max-price", f"'{text}' is not a price", PRICE)
        for text in ("-1", "0", "free", "nan", "1e400", "1,50", "-Infinity")
    ),
    Case("up --yes --max-price 0.000001", "--max-price", "the cheapest offer costs $", "or more", 4),
]
PLACES = [
    Case(
        "up --yes --provider loacl", "provider", "no provider 'loacl'; did you mean 'local'?", "This installation has: "
    ),
    Case("up --yes --provider zzz", "provider", "no provider 'zzz'", "This installation has: "),
    Case([*UP, "--provider", ""], "--provider", "is empty", "leave --provider out"),
    Case(
        "up --yes --account labb",
        "account",
        "did you mean 'lab'?",
        "Use one of: lab",
        files=config("[accounts.lab]\nprovider = 'local'"),
    ),
    Case(
        "up --yes",
        "--account",
        "2 accounts of local",
        "a | b",
        files=config("[accounts]\na.provider='local'\nb.provider='local'"),
    ),
    Case("up --yes --account local --provider aws", "--account", "belongs to local, not to aws", "--provider out"),
    Case([*UP, "--region", ""], "--region", "is empty", "leave --region out"),
    Case("up --yes --region mars", "--region", "has no region 'mars'", "It has: here."),
    Case("up --yes --instance-type p3.2xlarge", "--instance-type", "no instance type", "It has: local."),
]
GPUS = [
    *(
        Case([*UP, "--gpu", text], "--gpu", f"'{text}' names no GPU", GPU)
        for text in ("v100:0", "v100:x", "", ":2", "v100:", "v100:²", "v100:99999999999999999999")
    ),
    Case("up --yes --gpu hal9000:64", "--gpu", "no GPU 'hal9000'", "cloudgpu gpus"),
    Case("up --yes --gpu h100:8", "--gpu", "nothing with --gpu h100:8; it has no GPU", "another --provider", 4),
]
NAMED = [
    *(
        Case([*UP, "--name", text], "--name", f"'{text}' cannot be a machine's name", NAMES)
        for text in ("a/b", "Amber", "a" * 41, "7up", "", "étoile", "-x", "../evil")
    ),
    Case([*UP, "--key", "a b"], "--key", "'a b' cannot be a launch key", "experiment-7"),
    Case("up --yes --key auto-1", "--key", "not beginning with auto-", "experiment-7"),
    Case([*UP, "--key", ""], "--key", "cannot be a launch key", "experiment-7"),
    Case("up --yes --key k --new", "--new", "contradict each other", "Leave one of them out"),
    Case([*UP, "--owner", "a\nb"], "--owner", r"not a\nb", "plain text"),
    Case([*UP, "--owner", "a\x1b[31mb"], "--owner", r"\x1b", "plain text"),
    Case([*UP, "--owner", ""], "--owner", "1 to 200 characters", "leave --owner out"),
    Case([*UP, "--project", "x" * 201], "--project", "1 to 200 characters", "leave --project out"),
]
TEMPLATES = [
    Case(
        "up --yes --template jupiter",
        "template",
        "did you mean 'jupyter'?",
        "Use one of: bare, cuda, d2l, jupyter, ngc, ngc-rapids, ngc-tensorflow, pytorch",
    ),
    Case(
        "up --yes --template ../evil",
        "template",
        "'../evil' cannot be",
        "Use one of: bare, cuda, d2l, jupyter, ngc, ngc-rapids, ngc-tensorflow, pytorch",
    ),
    Case([*UP, "--template", ""], "--template", "is empty", "leave --template out"),
    Case(MINE, "mine.yaml:2: disk_gb", "whole number from 1", "in digits", files=template("# mine\ndisk_gb: lots\n")),
    Case(MINE, "mine.yaml:1: jupiter", "did you mean 'jupyter'?", "on_start", files=template("jupiter: true\n")),
    Case(MINE, "mine.yaml:2", "not valid YAML", "Correct line 2", files=template("packages: [\n")),
    Case(MINE, "mine.yaml:2", r"'\t'", "Correct line 2", files=template("packages:\n\t- git\n")),
    Case(
        MINE,
        "mine.yaml:3",
        "a second time; the first is on line 1",
        "Correct line 3",
        files=template("image: a\njupyter: true\nimage: b\n"),
    ),
    Case(MINE, "mine.yaml:1", "an anchor or alias", "Correct line 1", files=template("packages: &a [git]\n")),
    Case(MINE, "mine.yaml", "is not text: line 1", "UTF-8 text file", files=template(b"\xff\xfe")),
    Case(MINE, "mine.yaml", "is a directory", "or remove it", files={"templates/mine.yaml": None}),
]
SETTINGS = [
    Case("ls", "config.toml", "is not text: line 2", "UTF-8 text file", files=config(b"# mine\n\xff\xfe")),
    Case("ls", "config.toml", "is a directory", "or remove it", files={"config.toml": None}),
    Case("ls", "config.toml: line 1", "not valid TOML", 'lease = "8h"', files=config("lease = 8h")),
    Case("ls", "config.toml: line 2", "not valid TOML", "on a line", files=config("owner = 'me'\nowner = 'you'")),
    Case("ls", "config.toml: leese", "did you mean 'lease'?", "renew_until", files=config("leese = '8h'")),
    Case("ls", "config.toml: lease", "has to be text", "in quotes", files=config("lease = 8")),
    Case(
        "ls", "config.toml: lease", "is '8 years', which is not a duration", '"8h"', files=config("lease = '8 years'")
    ),
    Case(
        "ls",
        "config.toml: lease",
        "longer than renew_until",
        "at least as long",
        files=config("lease = '100h'\nrenew_until = '3d'"),
    ),
    Case("ls", "config.toml: market", "did you mean 'spot'?", "on_demand, spot", files=config("market = 'spott'")),
    Case("ls", "config.toml: owner", "1 to 200 characters", "leave it out", files=config("owner = ''")),
    Case(
        "ls",
        "config.toml: template",
        "'../evil', which is not a name",
        "a letter first",
        files=config("template = '../evil'"),
    ),
    Case("ls", "config.toml: account", "did you mean 'local'?", "[accounts.loacl]", files=config("account = 'loacl'")),
    Case(
        "ls",
        "config.toml: accounts.lab",
        "names no provider",
        "Add provider =",
        files=config("[accounts.lab]\nregion = 'x'"),
    ),
    Case(
        "up --yes",
        "provider",
        "no provider 'loacl'; did you mean 'local'?",
        "This installation has: ",
        files=config("provider = 'loacl'"),
    ),
    Case(
        "up --yes",
        "config.toml: accounts.local.watts",
        "not -5",
        "watts = 100",
        files=config("[accounts.local]\nwatts = -5"),
    ),
    Case(
        "up --yes",
        "config.toml: accounts.local.usd_per_kwh",
        "not 'dear'",
        "usd_per_kwh = 0.12",
        files=config("[accounts.local]\nusd_per_kwh = 'dear'"),
    ),
    Case(
        "up --yes",
        "config.toml: accounts.local.wats",
        "not an option of a local account; did you mean 'watts'?",
        "Options: watts",
        files=config("[accounts.local]\nwats = 5"),
    ),
]
FILES = [
    Case("up --yes", "keys", "is not an OpenSSH private key", "a new one is made", files={"keys/id_ed25519": "no key"}),
    Case(
        "up --yes",
        "known_hosts:1",
        "is not a pinned host key",
        "Correct or remove that line",
        files={"known_hosts": "garbage garbage\n"},
    ),
]
WORDS = [
    Case("lst", "verb", "did you mean 'ls'?", "cloudgpu ls --help"),
    Case("xyzzy", "verb", "no verb 'xyzzy'", "cloudgpu --help"),
    Case("up --yes --gpuu x", "--gpuu", "No such option: --gpuu", HELP),
    Case("cost --days 3", "--days", "No such option: --days.", "cloudgpu cost --help"),
    Case("up --gpus x", "--gpus", "No such option: --gpus (Possible options: --gpu).", HELP),
    Case("report --out x", "--out", "(Possible options: --output).", "cloudgpu report --help"),
    Case("budget rm nothing", "NAME", "No budget is called 'nothing'.", "cloudgpu budget ls"),
    Case("up --yes --gpu", "--gpu", "requires an argument", HELP),
    Case("up --yes extra", "arguments", "unexpected extra argument", HELP),
    Case(
        "image show x", "ACTION", "There is no 'cloudgpu image show': it takes save, ls or rm.", "cloudgpu image --help"
    ),
    Case("ls -o yaml", "--output", "'yaml' is not one of 'text', 'json'", "cloudgpu ls --help"),
    Case("extend amber-fox", "BY", "BY is missing", "cloudgpu extend amber-fox 4h"),
    Case(
        "spot burn amber-fox",
        "ACTION",
        "There is no 'cloudgpu spot burn': it takes rehearse, serve or backtest.",
        "cloudgpu spot --help",
    ),
    Case("tunnel --port abc", "--port", "'abc' is not a whole number", "cloudgpu tunnel --help"),
    Case("tunnel --port 99999", "--port", "99999 is not a port", "1 to 65535"),
    Case("cp a:x b:y", "SOURCE", "Both sides are on machines", "local directory first"),
    Case("cp x y", "DESTINATION", "Neither x nor y", "NAME:"),
    Case("cp x", "DESTINATION", "no destination", "NAME:"),
    Case("cp -r data box:", "-r", "-r is not needed: cp copies directories whole", "Run: cloudgpu cp data box:"),
    Case("cp -ap data box:", "-a", "-a is not needed", "Run: cloudgpu cp data box:"),
    Case("cp data box: --recursive", "--recursive", "--recursive is not needed", "Run: cloudgpu cp data box:"),
    Case("down x x --yes", "name", "x is named twice", "once"),
    Case("down --all x --yes", "--all", "x must not be named", "Leave out"),
    Case("show nobody", "name", "No machine is called 'nobody'", "cloudgpu up", 7),
    Case("cp /etc/hostname nobody:", "name", "No machine is called 'nobody'", "cloudgpu up", 7),
    Case("stop --yes", "name", "No machine is running", "cloudgpu up", 7),
]
ENVIRONMENT = [
    Case("ls", "CLOUDGPU_LEDGER", "sqlite:///", LEDGER, environ={"CLOUDGPU_LEDGER": "mysql://me:secret@host/db"}),
    Case("ls", "ledger", "refused", "Check the server", 8, environ={"CLOUDGPU_LEDGER": NO_SERVER}),
    Case("ls", "CLOUDGPU_LEDGER", "sqlite:///", LEDGER, environ={"CLOUDGPU_LEDGER": "ledger.db"}),
    Case("ls", "CLOUDGPU_LEDGER", "no absolute path", LEDGER, environ={"CLOUDGPU_LEDGER": "sqlite:///"}),
    Case("ls", "CLOUDGPU_LEDGER", "sqlite:///", LEDGER, files=config("ledger = 'mysql://me:secret@host/db'")),
    Case("up --yes", "CLOUDGPU_HOME", "a relative path", "CLOUDGPU_HOME=/", environ={"CLOUDGPU_HOME": "some/home"}),
    Case(
        "up --yes", "CLOUDGPU_HOME", "no home directory", "absolute path", environ={"CLOUDGPU_HOME": "~nobody-here/x"}
    ),
    Case("up --yes", "CLOUDGPU_HOME", "is not a directory", "of your own", environ={"CLOUDGPU_HOME": "/dev/null"}),
    Case("up --yes", "CLOUDGPU_HOME", "not a directory", "of your own", environ={"CLOUDGPU_HOME": "/dev/null/x"}),
]
CASES = [*DURATIONS, *POLICIES, *PRICES, *PLACES, *GPUS, *NAMED, *TEMPLATES, *SETTINGS, *FILES, *WORDS, *ENVIRONMENT]


def made(home: Path, files: Files) -> None:
    home.mkdir(parents=True)
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            path.chmod(0o600)


def found(home: Path) -> set[str]:
    """What stands in a home, but for locks, which hold nothing, the ledger, which may note a look, and whose it is."""
    names = {
        str(path.relative_to(home)) for path in home.rglob("*") if path.name not in ("identities.json", "place.json")
    }
    return {name for name in names if name.partition("/")[0] not in ("locks", "ledger", "providers")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join([*case.words()[:5], *case.files, *case.environ]))
def test_bad_input_is_named_and_nothing_happens(case, many, tmp_path):
    made(tmp_path / "home", case.files)
    before = found(tmp_path / "home")
    program = Program(tmp_path / "home", case.environ)
    check_text(case, many.done(program, case.words(), tmp_path))
    if "yaml" not in case.words():
        check_document(case, many.done(program, case.words("-o", "json"), tmp_path))
    assert found(tmp_path / "home") == before
    if (tmp_path / "home" / "ledger").exists():
        assert many.done(program, ["ls", "--all", "-o", "json"], tmp_path).json["machines"] == []


def check_text(case: Case, done: Done) -> None:
    """Exactly one `error:` line, its way out behind it, and no more."""
    assert (done.code, done.out) == (case.code, ""), done
    *before, sentence, way_out = done.err.splitlines()
    assert not [line for line in before if "error" in line], done.err
    assert sentence.startswith("error: ")
    assert case.says in sentence
    assert case.out in way_out
    assert not any(word in done.err for word in ("Traceback", "defect", "secret"))


def check_document(case: Case, done: Done) -> None:
    """Exactly one document; its sentence begins with a capital, or with what was wrong, and ends."""
    assert done.code == case.code
    error = done.json["error"]
    assert set(error) == {"kind", "field", "value", "message", "next"}
    assert error["field"] == case.field
    assert case.says in error["message"]
    assert case.out in error["next"]
    begins = (case.field.partition(":")[0], error["value"] or "'")
    assert not error["message"][0].islower() or error["message"].startswith(begins)
    assert error["message"].endswith((".", "?"))
    assert "secret" not in done.out


@pytest.mark.parametrize(("args", "says"), [("exec", "no command to run"), ("exec nobody", "no command to run")])
def test_exec_leaves_with_255_and_its_sentence_on_stderr(args, says, many, tmp_path):
    done = many.done(Program(tmp_path / "home"), args.split(), tmp_path)
    assert (done.code, done.out) == (255, "")
    assert done.err.startswith("error: ")
    assert says in done.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("watch --every soon", "error: --every: 'soon' is not a duration.\n  Write it like"),
        ("orphans --older-than -1d", "error: --older-than: '-1d' is not a duration.\n"),
        ("ledger", "error: ACTION is missing: it takes backup, restore, move, init or owner.\n"),
        ("ledger no", "error: There is no 'cloudgpu ledger no': it takes backup, restore, move, init or owner.\n"),
        ("policy backtest", "error: FILE|NAME is missing.\n  Run: cloudgpu policy backtest --help\n"),
    ],
)
def test_a_sentence_that_begins_with_what_was_typed_says_where_it_was_typed(args, says, many, tmp_path):
    done = many.done(Program(tmp_path / "home"), args.split(), tmp_path)
    assert done.code == 2
    assert done.err.startswith(says)


@pytest.mark.soak
def test_the_installed_command_answers_like_the_forks(tmp_path):
    done = Program(tmp_path / "home")("up", "--yes", "--lease", "soon", "-o", "json")
    assert (done.code, done.json["error"]["field"], done.err) == (2, "--lease", "")


def test_an_emoji_and_letters_of_any_script_may_name_a_project(many, tmp_path):
    args = ["up", "--dry-run", "--project", "\N{FOX FACE}", "--owner", "\u7530\u4e2d", "-o", "json"]
    done = many.done(Program(tmp_path / "home"), args, tmp_path)
    assert done.code == 0, done.err
    assert (done.json["plan"]["project"], done.json["plan"]["owner"]) == ("\N{FOX FACE}", "\u7530\u4e2d")


@pytest.mark.soak
def test_a_private_key_that_others_may_read_is_refused(many, tmp_path):
    from cloudgpu.access.ssh.client_files import client_key

    client_key(tmp_path / "home" / "keys")
    (tmp_path / "home" / "keys" / "id_ed25519").chmod(0o644)
    case = Case("up --yes", "keys", "0644", "chmod 600")
    program = Program(tmp_path / "home")
    check_text(case, many.done(program, case.words(), tmp_path))
    check_document(case, many.done(program, case.words("-o", "json"), tmp_path))
    assert program.machines() == []


ON_A_MACHINE = [
    Case("up --yes --name amber-fox --project other", "--name", "amber-fox", "another"),
    Case("show amber-fix", "name", "did you mean 'amber-fox'?", "cloudgpu ls", 7),
    Case("down amber-fix --yes", "name", "did you mean 'amber-fox'?", "cloudgpu ls", 7),
    Case(["hold", "", "--yes"], "name", "No machine is called ''", "cloudgpu ls", 7),
    Case("hold amber-fox --yes", "UNTIL", "a hold always has an end", "--release"),
    Case("hold amber-fox --yes 2020-01-01T00:00+00:00", "UNTIL", "is in the past", "in the near future"),
    Case("hold amber-fox --yes 2030-01-01T00:00", "UNTIL", "with its zone", "+01:00"),
    Case("hold amber-fox --yes 9999-12-31T23:59:59+00:00", "UNTIL", "ten years", "in the near future"),
    Case("hold amber-fox --yes 2h --release", "UNTIL", "UNTIL and --release exclude each other", "--release"),
    Case("extend amber-fox later --yes", "BY", "'later' is not a duration", DURATION),
    Case("extend amber-fox 0h --yes", "BY", "'0h' is not a duration", DURATION),
    Case("cp not-there.csv amber-fox:", "SOURCE", "not-there.csv does not exist", "Correct the path"),
    Case("cp amber-fox:not-there.csv .", "SOURCE", "not-there.csv does not exist", "Correct the path"),
]


@pytest.fixture(scope="module")
def machine(many, tmp_path_factory):
    place = tmp_path_factory.mktemp("machine")
    program = Program(place / "home")
    up = many.done(program, ["up", "--yes", "--name", "amber-fox"], place)
    assert up.code == 0, up.err
    yield program
    many.done(program, ["down", "--all", "--yes"], place)


@pytest.mark.parametrize("case", ON_A_MACHINE, ids=lambda case: " ".join(case.words()))
def test_bad_input_about_a_machine_changes_nothing_of_it(case, machine, many, tmp_path):
    def lines():
        history = many.done(machine, ["show", "amber-fox", "--history", "-o", "json"], tmp_path).json["history"]
        return [(line["kind"], line["seq"]) for line in history]

    before = lines()
    check_text(case, many.done(machine, case.words(), tmp_path))
    check_document(case, many.done(machine, case.words("-o", "json"), tmp_path))
    assert lines() == before
