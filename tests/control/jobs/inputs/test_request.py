"""What `run` is asked for is checked word by word, before a machine is paid for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.control.jobs.inputs.command import proposed_setup
from cloudgpu.control.jobs.inputs.env_file import parse_env_file, read_env_file
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import NAME
from cloudgpu.errors import InvalidRequest

PLANTED = "s3cr3t-value"


@pytest.fixture
def asked(tmp_path):
    """Parse a request whose workdir has a script; secrets come from an environment of its own."""
    (tmp_path / "train.py").touch()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "prepare.sh").touch()

    def parsed(*argv, **options):
        options = {"workdir": tmp_path, "environ": {"HF_TOKEN": PLANTED}, **options}
        return parse_run(argv=list(argv or ("python", "train.py")), **options)

    parsed.place = tmp_path
    return parsed


def test_a_command_alone_is_a_request_with_the_usual_values(asked):
    found = asked()
    assert (found.argv, found.workdir, found.is_named) == (("python", "train.py"), asked.place, False)
    assert NAME.fullmatch(found.name)
    assert found.name != asked().name
    assert (found.results, found.checkpoint, found.launch, found.on) == ("results", None, {}, None)
    assert (found.every, found.results_wait, found.keep) == (timedelta(minutes=10), timedelta(hours=2), timedelta(0))
    assert (found.retries, found.restarts, found.timeout, found.max_cost) == (0, 5, None, None)


def test_options_of_a_launch_are_kept_as_text(asked):
    found = asked(gpu="a100:8", spot=True, lease=timedelta(hours=3), max_price=2.5, no_public_ip=False, region=None)
    assert found.launch == {"gpu": "a100:8", "spot": True, "lease": "10800s", "max_price": "2.5"}
    assert asked(spot=False).launch == {"spot": False}


def test_what_was_typed_is_read(asked):
    found = asked(
        name="train-7",
        key="seed-1",
        env=["LR=0.1", "WORDS=a=b", "EMPTY="],
        secret=["HF_TOKEN", "HF_TOKEN"],
        port=["6006", 8080],
        timeout="6h",
        max_cost="$20",
        results="out/final/",
        checkpoint="./ckpt",
        keep="60m",
        include=["models/*.bin"],
        data=["/mnt/imagenet:data", "volume:big:/data"],
        volume="big:200",
    )
    assert (found.name, found.is_named, found.key) == ("train-7", True, "seed-1")
    assert found.env == {"LR": "0.1", "WORDS": "a=b", "EMPTY": ""}
    assert (found.secrets, found.ports) == (("HF_TOKEN",), (6006, 8080))
    assert (found.timeout, found.max_cost) == (timedelta(hours=6), Money.usd(20))
    assert (found.results, found.checkpoint, found.keep) == ("out/final", "ckpt", timedelta(hours=1))
    sources = [(one["source"], one["target"]) for one in found.data]
    assert sources == [("/mnt/imagenet", "data"), ("volume:big", "/data")]


REFUSED = [
    ({"name": "Train 7"}, "NAME", "cannot be a job's name"),
    ({"key": "auto-1"}, "--key", "cannot be a job's key"),
    ({"workdir": "/nowhere/at/all"}, "--workdir", "is not a directory"),
    ({"new": True}, "--new", "every run without NAME or --key is a new job"),
    ({"region": " "}, "--region", "is empty"),
    ({"lease": "soon"}, "--lease", "is not a duration"),
    ({"on": "fox", "gpu": "v100"}, "--gpu", "--on fox uses one that is there"),
    ({"on": "fox", "spot": False}, "--on-demand", "--on fox uses one that is there"),
    ({"on": " "}, "--on", "is empty"),
    ({"setup": ""}, "--setup", "is empty"),
    ({"env": ["LR"]}, "--env", "has no value"),
    ({"env": ["1A=3"]}, "--env", "cannot be the name"),
    ({"env": ["CLOUDGPU_JOB=x"]}, "--env", "are cloudgpu's own"),
    ({"env": "LR=1"}, "--env", "takes a list"),
    ({"secret": ["WANDB_API_KEY"]}, "--secret", "WANDB_API_KEY is not in your environment"),
    ({"secret": [f"HF_TOKEN={PLANTED}"]}, "--secret", "takes a name alone"),
    ({"port": ["0"]}, "--port", "is not a port"),
    ({"port": ["65536"]}, "--port", "is not a port"),
    ({"port": ["6006x"]}, "--port", "is not a port"),
    ({"timeout": "0s"}, "--timeout", "is not a duration"),
    ({"max_cost": "0"}, "--max-cost", "is not an amount in USD"),
    ({"max_cost": "lots"}, "--max-cost", "is not an amount in USD"),
    ({"retries": -1}, "--retries", "is not a whole number"),
    ({"restarts": 101}, "--restarts", "is not a whole number"),
    ({"results": "../out"}, "--results", "is not a directory inside the workdir"),
    ({"results": "/out"}, "--results", "is not a directory inside the workdir"),
    ({"results": ""}, "--results", "is not a directory inside the workdir"),
    ({"results": "."}, "--results", "is not a directory inside the workdir"),
    ({"results": "train.py"}, "--results", "is not a directory, so results cannot be brought back"),
    ({"checkpoint": "results"}, "--checkpoint", "are both results"),
    ({"include": [""]}, "--include", "is empty"),
    ({"data": ["s3:bucket/set:data"]}, "--data", "neither a bucket"),
    ({"data": ["ftp://bucket/set:data"]}, "--data", "not the address of a bucket that cloudgpu can read"),
    ({"data": ["s3://bucket/../set:data"]}, "--data", "not the address of a bucket that cloudgpu can read"),
    ({"data": ["gs://bucket/set"]}, "--data", "is not SRC:DEST"),
    ({"data": ["imagenet:data"]}, "--data", "neither a bucket, an absolute path on the machine nor volume:NAME"),
    ({"results_to": "here"}, "--results-to", "neither s3://BUCKET/PREFIX nor volume:NAME"),
    ({"results_to": "gs://bucket/runs"}, "--results-to", "not a bucket of S3"),
    ({"results_to": "volume:big:200"}, "--results-to", "neither s3://BUCKET/PREFIX nor volume:NAME"),
    ({"results_to": "volume:big", "volume": "data:10"}, "--results-to", "a machine has one"),
    ({"data": ["/mnt/imagenet"]}, "--data", "is not SRC:DEST"),
    ({"data": ["/a:data", "/b:data"]}, "--data", "Two of --data have the destination data"),
    ({"data": ["/a:results"]}, "--data", "the destination results, and --results is results"),
    ({"data": ["/a:results/set"]}, "--data", "one is inside the other"),
    ({"data": ["/a:out"], "checkpoint": "out/steps"}, "--data", "and --checkpoint is out/steps"),
    ({"data": ["volume:big:data"], "volume": "other"}, "--data", "names another volume than other"),
    ({"data": ["/mnt/a:../b"]}, "--data", "is not a directory inside the workdir"),
]


@pytest.mark.parametrize(("options", "field", "says"), REFUSED, ids=lambda one: str(one)[:40])
def test_a_word_that_cannot_be_meant_is_refused_with_the_way_out(asked, options, field, says):
    with pytest.raises(InvalidRequest) as refused:
        asked(**options)
    assert refused.value.field == field
    assert says in refused.value.message
    assert refused.value.next
    assert PLANTED not in str(refused.value.as_dict())


COMMANDS = [
    ([], "There is no command to run."),
    (["python", "trian.py"], "did you mean 'train.py'?"),
    (["python3.11", "-u", "nothing_like_it.py"], "is not in the workdir"),
    (["bash", "tools/prepair.sh"], "did you mean 'tools/prepare.sh'?"),
    (["./train.py"], "is not executable"),
    (["./train"], "is not in the workdir"),
    (["../other/train.py"], "is outside the working directory"),
]


@pytest.mark.parametrize(("argv", "says"), COMMANDS, ids=lambda one: str(one)[:40])
def test_a_program_that_will_not_be_there_is_refused(asked, argv, says):
    with pytest.raises(InvalidRequest) as refused:
        parse_run(argv=argv, workdir=asked.place)
    assert refused.value.field == "CMD"
    assert says in refused.value.message


def test_a_path_of_this_computer_is_refused_with_what_to_write_instead(asked):
    with pytest.raises(InvalidRequest, match="path of this computer") as refused:
        asked(str(asked.place / "train.py"))
    assert refused.value.next == "Name it relative to the workdir: ./train.py"


@pytest.mark.parametrize(
    "argv",
    [
        ["nvidia-smi"],
        ["python", "-m", "package.train"],
        ["python", "-c", "print(1)"],
        ["/usr/bin/python3", "--version"],
        ["python", "-W", "ignore", "train.py"],
        ["bash", "-c", "cd tools && ./prepare.sh"],
        ["bash", "tools/prepare.sh"],
    ],
    ids=" ".join,
)
def test_programs_of_the_machine_and_of_the_workdir_are_taken(asked, argv):
    assert asked(*argv).argv == tuple(argv)


def test_a_program_that_the_setup_builds_need_not_be_there_yet(asked):
    assert asked("./build/train", setup="make").argv == ("./build/train",)


def test_a_script_in_the_data_need_not_be_there(asked):
    assert asked("python", "code/x.py", data=["/srv/code:code"]).argv == ("python", "code/x.py")


def test_an_option_that_does_not_exist_is_a_programming_error():
    with pytest.raises(TypeError, match=r"run.*gpus"):
        parse_run(argv=["true"], gpus="v100")


def test_results_into_a_directory_without_permission_are_refused(asked, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InvalidRequest, match="cannot be written to, so results"):
        asked()


def test_a_file_of_variables_is_read_with_quotes_and_comments(tmp_path):
    text = """
# how it runs
export LR=0.1
NAME = run seven  # with a comment
SINGLE='a # b $HOME \\n'
DOUBLE="two\\nlines \\"quoted\\" \\$5"  # done
EMPTY=
URL=https://example.org/#top
"""
    assert parse_env_file(text, tmp_path / ".env") == {
        "LR": "0.1",
        "NAME": "run seven",
        "SINGLE": "a # b $HOME \\n",
        "DOUBLE": 'two\nlines "quoted" $5',
        "EMPTY": "",
        "URL": "https://example.org/#top",
    }


@pytest.mark.parametrize("separator", ["\v", "\f", "\x1c", "\x1e", "\x85", "\u2028", "\u2029"])
def test_only_a_line_feed_ends_a_line_of_a_file_of_variables(tmp_path, separator):
    text = f"A='x{separator}y'\nB=x{separator}C=y\nD=1"
    assert parse_env_file(text, tmp_path / ".env") == {"A": f"x{separator}y", "B": f"x{separator}C=y", "D": "1"}


def test_a_carriage_return_ends_a_line_only_before_a_line_feed(tmp_path):
    file = tmp_path / ".env"
    file.write_bytes(b"\xef\xbb\xbfA='x\ry'\r\n\r\n# no\r\nB=x\rC=y\r\nD=1 # note\r\nE=\"z\"\r\n")
    assert read_env_file(file) == {"A": "x\ry", "B": "x\rC=y", "D": "1", "E": "z"}


def test_export_may_stand_before_a_key_with_any_blanks(tmp_path):
    assert parse_env_file("export\tA=1\n\texport  B=2\nexport=3", tmp_path / ".env") == {
        "A": "1",
        "B": "2",
        "export": "3",
    }


@pytest.mark.parametrize("line", [PLANTED, f"A B={PLANTED}", f"A='{PLANTED}", f'A="{PLANTED}', f"=={PLANTED}"])
def test_a_bad_line_is_named_by_its_number_and_never_shown(asked, line):
    file = asked.place / "job.env"
    file.write_text(f"A=1\n{line}\n")
    with pytest.raises(InvalidRequest, match="Line 2 of") as refused:
        asked(env_file=file)
    assert refused.value.field == "--env-file"
    assert PLANTED not in str(refused.value.as_dict())


def test_a_file_of_variables_that_cannot_be_read_is_refused(asked):
    with pytest.raises(InvalidRequest, match="cannot be read: No such file"):
        asked(env_file="/nowhere/job.env")
    (asked.place / "bytes").write_bytes(b"A=\xff\xfe\xff")
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        asked(env_file=asked.place / "bytes")


def test_no_value_of_a_secret_is_in_the_request(asked):
    (asked.place / "job.env").write_text(f"TOKEN={PLANTED}\n")
    assert PLANTED not in repr(asked(secret=["HF_TOKEN"], env_file=asked.place / "job.env"))


@pytest.mark.parametrize(
    ("file", "how"),
    [
        ("requirements.txt", "pip install -r requirements.txt"),
        ("environment.yml", "conda env update"),
        ("uv.lock", "uv sync"),
        ("pyproject.toml", "pip install ."),
    ],
)
def test_a_setup_is_proposed_by_the_file_that_is_there(tmp_path, file, how):
    assert proposed_setup(tmp_path) is None
    (tmp_path / file).touch()
    assert proposed_setup(tmp_path)[0] == file
    assert how in proposed_setup(tmp_path)[1]
