"""`cloudgpu init`: with options, on a terminal, again, with hosts of one's own, and everything that it refuses."""

from __future__ import annotations

import os
import pty
import socket
import stat
import subprocess
import time
import tomllib

import pytest

from cloudgpu.access.ssh.client_files import client_key
from cloudgpu.access.ssh.target import fingerprint
from cloudgpu.control.setup.init import CLOUDS
from tests.access.sshserver import Server
from tests.cli.many import QuickProgram
from tests.cli.people import can_read

FIRST = ("init", "--yes", "--owner", "ada")


@pytest.fixture
def cloudgpu(tmp_path, many):
    """A home with nothing in it. No test here launches anything, so that there is nothing to end."""
    return QuickProgram(tmp_path / "home", many=many)


@pytest.fixture
def server(tmp_path):
    made = Server(tmp_path / "server").start()
    yield made
    made.kill()


def config(cloudgpu):
    return tomllib.loads((cloudgpu.home / "config.toml").read_text())


def on_terminal(cloudgpu, args, answers, *, within_s=30):
    """Run it on a terminal and give one answer to each question; return its status and all that was shown."""
    terminal, theirs = pty.openpty()
    child = subprocess.Popen(
        cloudgpu.argv(*args), stdin=theirs, stdout=theirs, stderr=theirs, env=cloudgpu.env(), start_new_session=True
    )
    os.close(theirs)
    shown, waiting, end = "", list(answers), time.monotonic() + within_s
    try:
        while time.monotonic() < end and (more := read_some(terminal)) is not None:
            shown += more
            if waiting and shown.endswith(("]: ", "] ")):
                os.write(terminal, f"{waiting[0]}\n".encode())
                shown += f"<{waiting.pop(0)}>"
        return child.wait(timeout=5), shown
    finally:
        os.close(terminal)
        child.kill()
        child.wait()


def read_some(terminal):
    """What was shown in a tenth of a second; None once nobody holds the other side."""
    if not can_read(terminal, 0.1):
        return ""
    try:
        return os.read(terminal, 65536).decode() or None
    except OSError:  # Linux's word for it
        return None


def test_its_help_names_every_cloud_that_it_prepares(cloudgpu):
    shown = " ".join(cloudgpu("init", "--help").out.split())
    assert [one for one in CLOUDS if one not in shown] == []


def test_options_make_a_private_file_that_the_verbs_read(cloudgpu):
    figures = ("--watts", "350", "--usd-per-kwh", "0.31", "--lease", "4h", "--project", "thesis", "--provider", "local")
    done = cloudgpu(*FIRST, *figures, "-o", "json")
    assert (done.code, done.json["written"]) == (0, True), done.err
    file = cloudgpu.home / "config.toml"
    assert done.json["file"] == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in cloudgpu.home.iterdir()] == ["config.toml"]
    assert config(cloudgpu) == {
        "owner": "ada",
        "project": "thesis",
        "provider": "local",
        "lease": "4h",
        "accounts": {"local": {"watts": 350, "usd_per_kwh": 0.31}},
    }
    plan = cloudgpu("up", "--dry-run", "-o", "json").json["plan"]
    assert "350 W (accounts.local.watts) x 0.31 $/kWh" in plan["price"]["source"]


def test_a_second_run_with_no_change_writes_nothing_and_says_so(cloudgpu):
    assert cloudgpu(*FIRST, "--watts", "350").code == 0
    file = cloudgpu.home / "config.toml"
    before = (file.stat().st_mtime_ns, file.stat().st_ino)
    again = cloudgpu(*FIRST, "--watts", "350.0")
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith(f"Nothing to change in {file}")
    assert cloudgpu("init", "--yes", "-o", "json").json["written"] is False
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == before


def test_what_it_does_not_set_stays_and_no_line_beside_the_change_is_shown(cloudgpu):
    text = '# mine\nowner = "ada"  # me\nledger = "sqlite:////tmp/secret-word"\nlease = "8h"\n\n[templates.d2l]\n'
    cloudgpu.config(text)
    done = cloudgpu("init", "--yes", "--owner", "grace", "--lease", "2h")
    assert done.code == 0, done.err
    assert (cloudgpu.home / "config.toml").read_text() == text.replace('"ada"', '"grace"').replace('"8h"', '"2h"')
    assert '-lease = "8h"\n  +lease = "2h"' in done.err
    assert "secret-word" not in done.out + done.err


def test_a_link_to_the_file_stays_a_link(cloudgpu, tmp_path):
    cloudgpu.home.mkdir()
    (tmp_path / "dotfiles.toml").write_text("")
    (cloudgpu.home / "config.toml").symlink_to(tmp_path / "dotfiles.toml")
    assert cloudgpu(*FIRST).code == 0
    assert (cloudgpu.home / "config.toml").is_symlink()
    assert (tmp_path / "dotfiles.toml").read_text() == 'owner = "ada"\n'


def test_credentials_are_named_and_never_shown(cloudgpu):
    home = cloudgpu.home.parent
    (home / ".aws").mkdir()
    (home / ".aws" / "credentials").write_text("[lab]\naws_access_key_id = x\naws_secret_access_key = very-secret\n")
    cloudgpu.environ = {"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "very-secret"}
    done = cloudgpu(*FIRST)
    assert f"Found for aws: profile lab ({home / '.aws' / 'credentials'})" in done.out
    assert "Found for azure: service principal, AZURE_CLIENT_SECRET (environment)" in done.out
    assert "very-secret" not in done.out + done.err
    assert {one["provider"] for one in cloudgpu("init", "--yes", "-o", "json").json["credentials"]} == {"aws", "azure"}


@pytest.mark.soak
def test_on_a_terminal_it_asks_says_what_is_wrong_and_asks_again(cloudgpu):
    answers = ["ada", "thesis", "loacl", "local", "soon", "2h", "", "0.31", "", "y"]
    status, shown = on_terminal(cloudgpu, ["init"], answers)
    assert status == 0, shown
    assert "did you mean 'local'?" in shown
    assert "--lease is 'soon', which is not a duration" in shown
    assert config(cloudgpu) == {
        "owner": "ada",
        "project": "thesis",
        "provider": "local",
        "lease": "2h",
        "accounts": {"local": {"usd_per_kwh": 0.31}},
    }
    status, shown = on_terminal(cloudgpu, ["init"], [""] * 7)
    assert status == 0
    assert "(owner) [ada]: " in shown
    assert "(lease) [2h]: " in shown
    assert "Nothing to change" in shown


@pytest.mark.soak
def test_who_says_no_changes_nothing(cloudgpu):
    status, shown = on_terminal(cloudgpu, ["init"], ["ada", "", "", "", "", "", "", "n"])
    assert status == 0, shown
    assert "Nothing was written." in shown
    assert not (cloudgpu.home / "config.toml").exists()


def test_a_host_is_taken_up_with_the_key_whose_fingerprint_was_given(cloudgpu, server):
    known = fingerprint(server.host_key.public_line)
    line = server.host_key.public_line
    keygen = subprocess.run(["ssh-keygen", "-lf", "-"], input=line, capture_output=True, text=True, check=True)
    assert known in keygen.stdout
    host = ("--host", f"bigbox=ada@127.0.0.1:{server.port}")
    done = cloudgpu("init", "--yes", *host, "--fingerprint", known)
    assert done.out.endswith("Next: cloudgpu doctor, then cloudgpu up --provider ssh\n")
    assert done.code == 0, done.err
    assert list(config(cloudgpu)) == ["accounts"], "nobody said who machines are for"
    (entry,) = config(cloudgpu)["accounts"]["ssh"]["hosts"]
    assert entry == {
        "name": "bigbox",
        "host": "127.0.0.1",
        "port": server.port,
        "user": "ada",
        "host_key": " ".join(server.host_key.public_line.split()[:2]),
    }
    assert cloudgpu("init", "--yes", *host, "-o", "json").json["written"] is False  # its key is known by now


def test_what_is_left_out_of_a_known_host_stays_as_it_is(cloudgpu, server):
    key = " ".join(server.host_key.public_line.split()[:2])
    cloudgpu.config(
        f'[accounts.ssh]\nhosts = [{{name = "box", host = "localhost", port = {server.port}, user = "ada", '
        f'host_key = "{key}"}}]\n'
    )
    done = cloudgpu("init", "--yes", "--host", "box=127.0.0.1", "-o", "json")
    assert (done.code, done.json["written"]) == (0, True), done.err
    (entry,) = config(cloudgpu)["accounts"]["ssh"]["hosts"]
    assert entry == {"name": "box", "host": "127.0.0.1", "port": server.port, "user": "ada", "host_key": key}


def test_two_accounts_of_this_computer_refuse_power_figures_alone(cloudgpu):
    text = '[accounts.desk]\nprovider = "local"\n\n[accounts.bench]\nprovider = "local"\n'
    cloudgpu.config(text)
    assert cloudgpu("init", "--yes", "--owner", "grace").code == 0
    assert config(cloudgpu)["owner"] == "grace"
    done = cloudgpu("init", "--yes", "--watts", "350", "-o", "json")
    assert (done.code, done.json["error"]["field"]) == (2, "accounts")
    status, shown = on_terminal(cloudgpu, ["init"], ["", "thesis", "", "", "", "y"])
    assert (status, config(cloudgpu)["project"]) == (0, "thesis"), shown


@pytest.mark.soak
def test_the_key_that_logs_in_to_a_host_is_set_changed_and_taken_out(cloudgpu, server, tmp_path):
    host = ("init", "--yes", "--host", f"bigbox=ada@127.0.0.1:{server.port}")
    known = fingerprint(server.host_key.public_line)
    key = client_key(tmp_path / "mine").path
    assert cloudgpu(*host, "--fingerprint", known, "--key", str(key)).code == 0
    assert config(cloudgpu)["accounts"]["ssh"]["hosts"][0]["key"] == str(key)
    assert cloudgpu(*host, "-o", "json").json["written"] is False  # without --key it stays
    assert cloudgpu(*host, "--key", "").code == 0
    assert "key" not in config(cloudgpu)["accounts"]["ssh"]["hosts"][0]
    for wrong, says in ((tmp_path / "none", "no such file"), (key.with_suffix(".pub"), "not a private key")):
        error = cloudgpu(*host, "--key", str(wrong), "-o", "json").json["error"]
        assert (error["field"], says in error["message"]) == ("--key", True)


@pytest.mark.soak
def test_a_host_is_confirmed_on_a_terminal_and_another_one_beside_it(cloudgpu, server):
    cloudgpu.config('[accounts.lab]\nprovider = "ssh"\nhosts = [{name = "old", host = "10.0.0.9", watts = 450}]\n')
    known = fingerprint(server.host_key.public_line)
    host = f"new=127.0.0.1:{server.port}"
    status, shown = on_terminal(cloudgpu, ["init", "--host", host], ["n"])
    assert (status, "Nothing was written." in shown) == (0, True)
    status, shown = on_terminal(cloudgpu, ["init", "--host", host], ["y", "y"])
    assert status == 0, shown
    assert known in shown
    old, new = config(cloudgpu)["accounts"]["lab"]["hosts"]
    assert old == {"name": "old", "host": "10.0.0.9", "watts": 450}
    assert (new["name"], new["port"], "user" in new) == ("new", server.port, False)


def test_a_key_that_has_changed_is_said_and_nothing_is_written(cloudgpu, server):
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGpKhnG9jVnLdOIWt1dIMcpIYkQJYcPkPKHmBYMGVZ0H"
    text = (
        f'[accounts.ssh]\nhosts = [{{name = "box", host = "127.0.0.1", port = {server.port}, host_key = "{other}"}}]\n'
    )
    cloudgpu.config(text)
    done = cloudgpu("init", "--yes", "--host", f"box=127.0.0.1:{server.port}", "-o", "json")
    assert (done.code, done.json["error"]["field"]) == (2, "--fingerprint")
    assert f"another key for box: {fingerprint(other)}" in done.err
    assert (cloudgpu.home / "config.toml").read_text() == text


def test_a_fingerprint_that_does_not_match_is_refused(cloudgpu, server):
    wrong = "SHA256:" + "A" * 43
    done = cloudgpu(*FIRST, "--host", f"box=127.0.0.1:{server.port}", "--fingerprint", wrong, "-o", "json")
    error = done.json["error"]
    assert (done.code, error["kind"], error["field"], error["value"]) == (10, "wrong_host_key", "--fingerprint", wrong)
    assert fingerprint(server.host_key.public_line) in error["message"]
    assert not cloudgpu.home.exists()


def test_without_a_fingerprint_and_a_terminal_a_host_is_not_believed(cloudgpu, server):
    done = cloudgpu(*FIRST, "--host", f"box=127.0.0.1:{server.port}", "-o", "json")
    error = done.json["error"]
    assert (done.code, error["field"]) == (2, "--fingerprint")
    assert error["next"].endswith(f"--fingerprint {fingerprint(server.host_key.public_line)}")


def test_a_host_that_does_not_answer_is_unreachable(cloudgpu):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    done = cloudgpu(*FIRST, "--host", f"box=127.0.0.1:{port}", "-o", "json")
    error = done.json["error"]
    assert (done.code, error["kind"], error["field"]) == (10, "unreachable", "--host")
    assert "connection refused" in error["message"]


@pytest.mark.soak
def test_what_is_no_ssh_server_is_unreachable(cloudgpu):
    with socket.create_server(("127.0.0.1", 0)) as other:
        process = cloudgpu.start(*FIRST, "--host", f"box=127.0.0.1:{other.getsockname()[1]}", "-o", "json")
        caller, _ = other.accept()
        caller.sendall(b"HTTP/1.0 400 what do you want\r\n\r\n")
        caller.close()
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 10
    assert b"did not introduce itself as an SSH server" in out


BAD = [
    ([], "--yes", "no terminal"),
    (["--owner", "ada"], "--yes", "no terminal"),
    (["--yes"], "--owner", "no terminal to ask"),
    ([*FIRST[1:], "--key", "/id"], "--key", "no --host names one"),
    ([*FIRST[1:], "--host", "box=h", "--key", "~nobody-there/id"], "--key", "unknown user"),
    (["--yes", "--owner", "a\x1b[31mb"], "--owner", "one line of 1 to 200"),
    (["--yes", "--owner", ""], "--owner", "one line of 1 to 200"),
    (["--yes", "--owner", "a\nb"], "--owner", "one line of 1 to 200"),
    ([*FIRST[1:], "--project", "x" * 201], "--project", "one line of 1 to 200"),
    ([*FIRST[1:], "--provider", "loacl"], "--provider", "no provider 'loacl'"),
    ([*FIRST[1:], "--provider", "A/B"], "--provider", "which is not a name"),
    ([*FIRST[1:], "--lease", "soon"], "--lease", "not a duration"),
    ([*FIRST[1:], "--lease", "9d"], "config.toml: lease", "longer than renew_until"),
    ([*FIRST[1:], "--watts", "many"], "--watts", "not a number from 0"),
    ([*FIRST[1:], "--watts", "-1"], "--watts", "not a number from 0"),
    ([*FIRST[1:], "--usd-per-kwh", "nan"], "--usd-per-kwh", "not a number from 0"),
    ([*FIRST[1:], "--usd-per-kwh", "0,31"], "--usd-per-kwh", "not a number from 0"),
    ([*FIRST[1:], "--host", "bigbox"], "--host", "not name=user@host:port"),
    ([*FIRST[1:], "--host", "Big Box=ada@h"], "--host", "has the name 'Big Box'"),
    ([*FIRST[1:], "--host", "box=ada@"], "--host", "cannot be one"),
    ([*FIRST[1:], "--host", "box=-oProxyCommand@h"], "--host", "cannot be one"),
    ([*FIRST[1:], "--host", "box=h:99999"], "--host", "no port from 1"),
    ([*FIRST[1:], "--host", "box=h:ssh"], "--host", "no port from 1"),
]


@pytest.mark.parametrize(("args", "field", "says"), BAD, ids=[f"{row[1]}-{number}" for number, row in enumerate(BAD)])
def test_bad_input_is_refused_and_nothing_is_written(cloudgpu, args, field, says):
    done = cloudgpu("init", *args, "-o", "json")
    error = done.json["error"]
    assert (done.code, error["field"]) == (2, field), error
    assert says in error["message"]
    assert error["next"]
    assert not cloudgpu.home.exists()


BROKEN = [
    (b"owner = [", "config.toml: line 1"),
    (b"\xff\xfe", "config.toml"),
    (b"ownr = 'ada'", "config.toml: ownr"),
    (b"[accounts.local]\nusd_per_kwh = 'much'", "config.toml: accounts.local.usd_per_kwh"),
    (b"accounts = {lab = {provider = 'aws'}}", "config.toml: accounts.local.watts"),
    (b"[accounts.a]\nprovider = 'local'\n[accounts.b]\nprovider = 'local'", "accounts"),
]


@pytest.mark.parametrize(("text", "field"), BROKEN, ids=[row[1] for row in BROKEN])
def test_a_file_that_cannot_be_edited_is_left_as_it_is(cloudgpu, text, field):
    cloudgpu.home.mkdir()
    (cloudgpu.home / "config.toml").write_bytes(text)
    done = cloudgpu(*FIRST, "--watts", "5", "-o", "json")
    assert (done.code, done.json["error"]["field"]) == (2, field)
    assert (cloudgpu.home / "config.toml").read_bytes() == text


def test_a_directory_in_its_place_is_said(cloudgpu):
    (cloudgpu.home / "config.toml").mkdir(parents=True)
    done = cloudgpu(*FIRST, "-o", "json")
    assert (done.code, done.json["error"]["field"]) == (2, "config.toml")
