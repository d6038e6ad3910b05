"""Makes, shows and ends cloudgpu's one machine on this host: the directory ~/.cloudgpu and what was started from it.

The text of this file, with `PROGRAM_PARTS` of `client.py` before it, is sent over SSH and run there by the
host's own Python (3.8 or newer, standard library only); a copy stays in ~/.cloudgpu, where the agent calls it when the
lease has ended. It ends cloudgpu's own processes, found by the locks they hold and MARK_VARIABLE in their
environment, and nothing else: it powers nothing off.

record.json    the accepted launch, and the wanted state (`wanted`: running, stopped, terminated); replaced atomically
tags.json      the tags: the only copy; the agent reads its lease there
NAME.alive     locked by what was started as NAME (agent, on_start) for as long as it lives; its pid is inside
environment    the variables of all that is started from this machine, for sh; `login` sets them in each login

A kill at any point leaves nothing half done: what is accepted is written first, then done by `complete_pending`, which
every later call but `terminate` runs before its own work. The answer is the one line of output that begins with
ANSWER_PREFIX.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cloudgpu.access.computer import hostname, lasting_id, login_name
from cloudgpu.providers.shared.python_environment import jupyter_command, remove_tree
from cloudgpu.providers.ssh.cards import (
    QUERY_TIMEOUT_S,
    QUICK_QUERY_TIMEOUT_S,
    check_gpus_free,
    choose_gpus,
    gpus_in_use,
    read_cards,
)
from cloudgpu.providers.ssh.files import (
    DISK_FULL_ERRORS,
    GONE_PREFIX,
    HOME,
    NEW_PREFIX,
    ROOT,
    Fault,
    Record,
    load,
    read_record,
    save,
    update_ending_record,
    update_record,
)
from cloudgpu.providers.ssh.owned import (
    START_SCRIPT,
    make_environment,
    mounts,
    publish,
    remove_unchanged,
    variables,
)

ANSWER_PREFIX = "cloudgpu-answer: "
AUTHORIZED_KEYS = HOME / ".ssh" / "authorized_keys"
# Where OpenSSH's sftp-server lies. Without it, a server with built-in SFTP could not serve logins through our forced
# command.
SFTP_DIRECTORIES = (
    "lib/openssh",
    "libexec/openssh",
    "libexec",
    "lib/ssh",
    "lib64/ssh",
    "local/libexec",
    "lib/misc",
    "lib/sftp",
)
# Which shell reads this is the user's choice: sh, bash, zsh, fish and tcsh all do, and hand the words in '' on as they
# are. Where ~/.cloudgpu is gone it does what the server would have done.
FORCED_COMMAND = (
    'exec /bin/sh -c \'test -r "$HOME/.cloudgpu/login" && . "$HOME/.cloudgpu/login"; '
    'exec "${SHELL:-/bin/sh}" -c "${SSH_ORIGINAL_COMMAND:-exec $SHELL -l}"\''
)
# SHLVL=1 tells a second bash that it is not the first: else it would read ~/.bashrc again, over our variables.
LOGIN_SCRIPT = """test -r "$HOME/.cloudgpu/environment" && . "$HOME/.cloudgpu/environment"
SHELL=${{SHELL:-/bin/sh}} asked=${{SSH_ORIGINAL_COMMAND-}}
unset SSH_ORIGINAL_COMMAND
case $asked in
'') exec "$SHELL" -l ;;
internal-sftp*) asked="exec {sftp}${{asked#internal-sftp}}" ;;
esac
SHLVL=1
export SHELL SHLVL
exec "$SHELL" -c "$asked"
"""
MARK_VARIABLE = "CLOUDGPU_MACHINE"
LOCK_WAIT_S = 30.0
JUPYTER_STOP_S, TERM_S, KILL_S = 20.0, 3.0, 5.0  # how long each way to end processes may take
POLL_S = 0.05
CLOCK_TOLERANCE_S = 60.0  # a larger offset from the caller's clock is corrected: bills go by these times
MAX_REVIVALS = 3  # how often in a row an agent that died soon after its start is started again
STEADY_S = 60.0  # after living this long, an agent's next death counts as the first again
STOPPED, RUNNING, TERMINATED = "stopped", "running", "terminated"


def require_machine(body: dict[str, Any]) -> Record:
    """Return the record of the machine on this host if it is that of the request; raise Fault otherwise."""
    record = read_record()
    if is_elsewhere(record):
        raise Fault("elsewhere", "{} is at {}, whose home this is, too".format(record["name"], record["node"]))
    if not record or record["id"] != body["id"]:
        raise Fault("unknown", "there is no such machine here")
    return record


def is_elsewhere(record: Record) -> bool:
    """Tell whether the machine runs on another computer that shares this home over the network."""
    return bool(record) and record["computer"] != lasting_id()


@contextlib.contextmanager
def exclusive_lock() -> Iterator[None]:
    """Hold the lock that lets one call at a time change things. It is on the home directory: no lock file stays."""
    handle, deadline = os.open(str(HOME), os.O_RDONLY), time.monotonic() + LOCK_WAIT_S
    try:
        while not try_lock(handle):
            if time.monotonic() > deadline:
                raise Fault("locked", "another cloudgpu has been busy here for half a minute")
            time.sleep(POLL_S)
        yield
    finally:
        os.close(handle)


def try_lock(handle: int, operation: int = fcntl.LOCK_EX) -> bool:
    """Take a lock without waiting; return whether it is ours, also where the file system cannot lock directories."""
    try:
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        return error.errno in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)
    return True


# -- which computer this is


def this_computer() -> dict[str, Any]:
    """Return which computer, user and home this is; the caller makes the account's identity of it."""
    return {
        "computer": lasting_id(),
        "name": hostname(),
        "uid": os.getuid(),
        "home": os.path.realpath(str(HOME)),
    }


# -- processes


def environment(record: Record) -> dict[str, str]:
    """Return the variables of each process of this machine; by MARK_VARIABLE it is found.

    A machine with some of the host's GPUs sees only those.
    """
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(record["devices"])} if record.get("devices") else {}
    return {**variables(), **gpus, MARK_VARIABLE: "{}@{}".format(record.get("id"), os.path.realpath(str(ROOT)))}


def export_lines(record: Record) -> str:
    """Return the machine's environment as `export` lines for sh."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment(record).items())


def is_alive(name: str) -> bool:
    """Tell whether what was started as `name` lives."""
    try:
        handle = os.open(str(ROOT / (name + ".alive")), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def spawn(name: str, command: list[str]) -> None:
    """Start a process that outlives this one, in a session of its own; it inherits the lock on NAME.alive."""
    lock_handle = os.open(str(ROOT / (name + ".alive")), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    env = {key: value for key, value in os.environ.items() if not key.startswith("SSH_")}
    try:
        fcntl.flock(lock_handle, fcntl.LOCK_EX)
        child = subprocess.Popen(  # noqa: S603
            command,
            cwd=str(HOME),
            env={**env, **environment(read_record())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock_handle,),
        )
        os.write(lock_handle, str(child.pid).encode())
    finally:
        os.close(lock_handle)


def mark_line(record: Record) -> str:
    """Return MARK_VARIABLE and its value, NAME=VALUE, as each process of this machine has it."""
    return f"{MARK_VARIABLE}={environment(record)[MARK_VARIABLE]}"


def parents_by_pid() -> dict[int, int]:
    """Return the pid of each living process that we may see, with its parent's pid."""
    parents = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            state, parent = (directory / "stat").read_bytes().rpartition(b") ")[2].split()[:2]
            if state not in (b"Z", b"X"):
                parents[int(directory.name)] = int(parent)
    return parents


def our_processes() -> set[int]:
    """Return the pids of our living processes: the agent, those with the mark, and their descendants."""
    parents, mark, pids = parents_by_pid(), mark_line(read_record()).encode(), agent_pids()
    for pid in parents:
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                pids.add(pid)
    return with_descendants(pids, parents) - {os.getpid()}


def with_descendants(pids: set[int], parents: dict[int, int]) -> set[int]:
    """Return these processes and all that descend from one of them."""
    pids, new_pids = set(pids), set(pids)
    while new_pids:
        new_pids = {pid for pid, parent in parents.items() if parent in pids} - pids
        pids |= new_pids
    return pids


def machine_processes() -> set[int]:
    """Return the pids of the machine's processes; none where there is no machine."""
    return our_processes() if read_record() else set()


def agent_pids() -> set[int]:
    """Return the agent's pid, from its lock file, while it holds the lock; else none."""
    with contextlib.suppress(OSError, ValueError):
        return {int((ROOT / "agent.alive").read_text())} if is_alive("agent") else set()
    return set()


def send_signal(pid: int, signal_number: int) -> None:
    """Send a signal to a process of ours; never to another one that got its pid since."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):  # an older Python or kernel, or a container whose filter forbids it
            if pid in our_processes():
                os.kill(pid, signal_number)
            return
        try:
            if pid in our_processes():
                signal.pidfd_send_signal(handle, signal_number)
        finally:
            os.close(handle)


def end_our_processes() -> None:
    """End Jupyter with its kernels, then all our processes; raise Fault when one does not end."""
    if (ROOT / "jupyter").exists():
        command = [sys.executable, str(ROOT / "lab.py"), "stop", "--home", str(ROOT), "--wait", "5"]
        null = subprocess.DEVNULL
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, stdin=null, stdout=null, stderr=null, timeout=JUPYTER_STOP_S, check=False)  # noqa: S603
    for signal_number, timeout_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        deadline = time.monotonic() + timeout_s
        signalled: set[int] = set()
        while time.monotonic() < deadline:
            remaining = our_processes()
            if not remaining:
                return
            for pid in remaining - signalled:
                send_signal(pid, signal_number)
            signalled |= remaining
            time.sleep(POLL_S)
    raise Fault("unproved", "processes do not end: {}".format(", ".join(map(str, sorted(our_processes())))))


def boot_id() -> str:
    """Return an id that changes at each boot of this host."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    completed = subprocess.run(["ps", "-o", "lstart=", "-p", "1"], capture_output=True, text=True, check=False)  # noqa: S607
    return completed.stdout.strip()


# -- authorized_keys: our lines stand first, so that the user's own stay byte for byte as they are


def authorize(record: Record) -> Record:
    """Add the launch's public keys to authorized_keys; each line ends with `key_comment`."""
    created = {"made_ssh": not AUTHORIZED_KEYS.parent.exists(), "made_keys": not AUTHORIZED_KEYS.exists()}
    if created["made_ssh"] or created["made_keys"]:
        record = update_record(record, **{name: record.get(name) or value for name, value in created.items()})
    if created["made_ssh"]:
        AUTHORIZED_KEYS.parent.mkdir(mode=0o700)
    keys = [" ".join(key.split()[:2]) for key in record["keys"]]
    lines = "".join(f"{command_option()}{key} {key_comment(record)}\n" for key in keys)
    owner_lines = keys_without_ours(record)
    write_keys(lines.encode() + owner_lines)
    return update_record(record, authorized=True)


def revoke(record: Record) -> None:
    """Remove the lines that were added for this machine, and the file and directory if we made them."""
    owner_lines = keys_without_ours(record)
    if AUTHORIZED_KEYS.exists() and owner_lines != AUTHORIZED_KEYS.read_bytes():
        write_keys(owner_lines)
    if record.get("made_keys") and not owner_lines:
        with contextlib.suppress(FileNotFoundError):
            AUTHORIZED_KEYS.unlink()
    if record.get("made_ssh"):
        with contextlib.suppress(OSError):
            AUTHORIZED_KEYS.parent.rmdir()


def command_option() -> str:
    """Return the `command=` option of our key lines, which gives a login this machine's environment."""
    return 'command="{}" '.format(FORCED_COMMAND.replace('"', '\\"')) if (ROOT / "login").exists() else ""


def sftp_server() -> str:
    """Return the path of OpenSSH's program for file transfers, empty where there is none."""
    paths = [f"/usr/{directory}/sftp-server" for directory in SFTP_DIRECTORIES]
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def key_comment(record: Record) -> str:
    """Return the comment that marks our lines."""
    return "cloudgpu:{}".format(record["machine"])


def keys_without_ours(record: Record) -> bytes:
    """Return authorized_keys without the lines that were added for this machine."""
    try:
        lines = AUTHORIZED_KEYS.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return b""
    return b"".join(line for line in lines if key_comment(record).encode() not in line.split()[2:])


def write_keys(content: bytes) -> None:
    """Replace authorized_keys, keeping its mode; on a full disk, overwrite it in place."""
    path = Path(os.path.realpath(str(AUTHORIZED_KEYS)))  # a link stays one
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    try:
        save(path, content, mode)
    except OSError:
        if not path.exists() or len(content) > path.stat().st_size:
            raise
        with path.open("r+b") as file:
            file.write(content)
            file.truncate()


# -- completing what was accepted

CALLER_CLOCK_OFFSET: dict[str, float] = {}  # `apart`: by how many seconds the caller's clock is ahead of this host's
REMAINING_FILES: dict[str, Any] = {}  # of the machine that this call ended: where files stay, how many, and which


def complete_pending() -> None:
    """Complete what earlier calls had accepted, and restart or end a machine whose agent died."""
    remove_leftovers()
    record = read_record()
    if is_elsewhere(record):
        return
    if record.get("wanted") == TERMINATED:
        remove_machine(record)
    elif record.get("wanted") == STOPPED and not record.get("ended"):
        end_our_processes()
        update_ending_record(record, ended={"reason": record["why"], "at": record.get("at") or caller_time(record)})
    elif record.get("wanted") == RUNNING:
        complete_running(record)


def remove_leftovers() -> None:
    """Remove what a killed call was writing or removing; the caller holds the lock, so nobody uses it."""
    for directory in {HOME, AUTHORIZED_KEYS.parent, Path(os.path.realpath(str(AUTHORIZED_KEYS))).parent}:
        for leftover in directory.glob(".cloudgpu-*"):
            if re.fullmatch(r"\.cloudgpu-(new|gone)-[0-9]+", leftover.name):
                if leftover.is_dir():
                    with contextlib.suppress(OSError):
                        remove_tree(leftover)
                else:
                    leftover.unlink()


def complete_running(record: Record) -> None:
    """Authorize the keys, start what is not started yet, restart a dead agent unless the host rebooted."""
    if not record.get("authorized"):
        record = authorize(record)
    if record["spawned"] != record["boots"]:
        if not is_alive("agent"):
            start_all(record)
        update_record(read_record(), spawned=record["boots"])
    elif not is_alive("agent"):
        started_at = float(record.get("revived_at") or record["boot_at"])
        deaths = 0 if last_heartbeat(record) - started_at >= STEADY_S else record["revivals"]
        if record["boot"] == boot_id() and deaths < MAX_REVIVALS:
            update_record(record, revivals=deaths + 1, revived_at=time.time() + float(record.get("apart") or 0.0))
            spawn("agent", [str(ROOT / "agent"), "run"])
        else:
            update_ending_record(record, wanted=STOPPED, why="died", at=last_heartbeat(record))
            complete_pending()


def start_all(record: Record) -> None:
    """Start the agent and the script of each start (START_SCRIPT)."""
    update_record(record, boot=boot_id(), revivals=0)
    has_script = (ROOT / "on_start.sh").exists()
    if (has_script or (ROOT / "jupyter.pip").exists()) and not is_alive("on_start"):
        if has_script:
            (ROOT / "on_start.status").write_text("running\n", encoding="utf-8")
        spawn("on_start", ["/bin/sh", "-c", START_SCRIPT, str(ROOT)])
    spawn("agent", [str(ROOT / "agent"), "run"])


def last_heartbeat(record: Record) -> float:
    """Return when the agent last wrote its heartbeat, else when the machine was started; by the caller's clock."""
    with contextlib.suppress(OSError):
        heartbeat_at = (ROOT / "heartbeat.json").stat().st_mtime + float(record.get("apart") or 0.0)
        return max(float(record["boot_at"]), heartbeat_at)
    return float(record["boot_at"])


def caller_time(record: Record) -> float:
    """Return the time now by the caller's clock; without a caller (the agent), by that of the machine's start."""
    return time.time() + CALLER_CLOCK_OFFSET.get("apart", float(record.get("apart") or 0.0))


def clock_offset(body: dict[str, Any]) -> float:
    """Return how many seconds the caller's clock is ahead of this host's; 0 within CLOCK_TOLERANCE_S."""
    now = time.time()
    offset_s = float(body.get("now", now)) - now
    return offset_s if abs(offset_s) > CLOCK_TOLERANCE_S else 0.0


def remove_machine(record: Record) -> None:
    """End our processes and remove all that we made, except work files that the owner changed or added.

    Raises Fault where something is mounted in ROOT: what is in that would be deleted.
    """
    end_our_processes()
    mounted = sorted(mounts(ROOT))
    if mounted:
        raise Fault("mounted", f"something is mounted at {mounted[0]}, and what is in it would be deleted")
    revoke(record)
    REMAINING_FILES.update(remove_unchanged(record))
    removed_root = HOME / f"{GONE_PREFIX}-{os.getpid()}"
    ROOT.rename(removed_root)
    remove_tree(removed_root)


def build_machine(body: dict[str, Any]) -> None:
    """Write the machine's directory under a temporary name, then rename it to ROOT: the launch is accepted."""
    new_root = HOME / f"{NEW_PREFIX}-{os.getpid()}"
    new_root.mkdir(mode=0o700)
    try:
        settings = agent_settings(body, make_environment(new_root, body))
        files = {**body["files"], "agent.json": json.dumps(settings), "tags.json": json.dumps(body["tags"])}
        for name, text in files.items():
            save(new_root / name, text)
        save(new_root / "environment", export_lines(body["record"]))
        if sftp_server():
            save(new_root / "login", LOGIN_SCRIPT.format(sftp=sftp_server()))
        wrapper = '#!/bin/sh\n{}exec {} "$HOME/.cloudgpu/agent.py" "$@"\n'
        save(new_root / "agent", wrapper.format(export_lines(body["record"]), shlex.quote(sys.executable)), 0o700)
        now = caller_time({})
        computer_fields = {"computer": lasting_id(), "node": hostname(), **CALLER_CLOCK_OFFSET}
        start_fields = {"launched_at": now, "boot_at": now, "wanted": RUNNING, "boots": 1, "spawned": 0, "revivals": 0}
        save(
            new_root / "record.json",
            json.dumps({**body["record"], **start_fields, **computer_fields, "boot": boot_id(), "user": login_name()}),
        )
        new_root.rename(ROOT)
    except OSError as error:
        shutil.rmtree(str(new_root), ignore_errors=True)
        kind = "full" if error.errno in DISK_FULL_ERRORS else "forbidden"
        raise Fault(kind, f"{error.strerror or error} ({error.filename or HOME})") from None


def agent_settings(body: dict[str, Any], python: str) -> dict[str, Any]:
    """Return the agent's settings; `python` is the interpreter that runs JupyterLab."""
    return {
        **body["agent"],
        "jupyter": jupyter_command(body["jupyter"], python, "-m"),
        "root": str(HOME),
        "smi": ["-i", ",".join(body["record"]["devices"])] if body["record"].get("devices") else [],
        "metadata": {"kind": "file", "path": str(ROOT / "tags.json")},
        "end": [sys.executable, str(ROOT / "host.py"), "end"],
        # What else runs here is not this machine's. Where a login gets no mark, each one may be the machine's own.
        "own": [mark_line(body["record"]), *([] if sftp_server() else ["SSH_CONNECTION="])],
    }


# -- requests


def launch(body: dict[str, Any]) -> dict[str, Any]:
    """Make the machine, or return the one that this token has made.

    `gpus` of the request: see `choose_gpus`.
    """
    record = read_record()
    if record and record["token"] != body["record"]["token"]:
        raise Fault("busy", json.dumps({"name": record["name"], "wanted": record["wanted"], **launch_info(record)}))
    if is_elsewhere(record):
        require_machine({"id": record["id"]})
    if not record:
        if os.path.lexists(str(ROOT)):
            raise Fault("foreign", f"{ROOT} is there and was not made by cloudgpu's ssh provider")
        build_machine(
            {**body, "record": {**body["record"], "devices": choose_gpus(body.get("gpus"), machine_processes)}}
        )
        complete_pending()
    return show_machine({})


def launch_info(record: Record) -> dict[str, Any]:
    """Return when the machine here was launched, and the tags that say by whom."""
    with contextlib.suppress(Fault):
        return {"at": record["launched_at"], "tags": load(ROOT / "tags.json")}
    return {"at": record["launched_at"], "tags": {}}


def show_machine(_body: dict[str, Any]) -> dict[str, Any]:
    """Return the machine on this host as `machine`: its record, tags, and the agent's files; None for none."""
    record = read_record()
    if not record or is_elsewhere(record):
        return {"machine": None, "elsewhere": record.get("id")}
    report = {"alive": is_alive("agent"), "tags": load(ROOT / "tags.json")}
    for name in ("last-active", "expires", "on_start.status"):
        with contextlib.suppress(OSError):
            report[name] = (ROOT / name).read_text(encoding="utf-8").strip()
    shown_keys = (
        "id",
        "name",
        "wanted",
        "ended",
        "launched_at",
        "boot_at",
        "boots",
        "spawned",
        "user",
        "market",
        "gpus",
    )
    return {"machine": {**report, **{name: record.get(name) for name in shown_keys}}}


def tag(body: dict[str, Any]) -> dict[str, Any]:
    """Set tags and leave the others alone."""
    require_machine(body)
    save(ROOT / "tags.json", json.dumps({**load(ROOT / "tags.json"), **body["tags"]}))
    return {}


def stop(body: dict[str, Any]) -> dict[str, Any]:
    """End what was started, and keep the machine's directory."""
    record = require_machine(body)
    if record["wanted"] == RUNNING:
        update_ending_record(record, wanted=STOPPED, why="asked")
        complete_pending()
    return {}


def start(body: dict[str, Any]) -> dict[str, Any]:
    """Start a stopped machine again."""
    record = require_machine(body)
    if record["wanted"] != RUNNING:
        check_gpus_free(record.get("devices"), machine_processes)
        save(ROOT / "environment", export_lines(record))
        boot_fields = {"boots": record["boots"] + 1, "boot_at": caller_time(record), **CALLER_CLOCK_OFFSET}
        update_record(record, wanted=RUNNING, ended=None, at=None, **boot_fields)
        complete_pending()
    return {}


def terminate(body: dict[str, Any]) -> dict[str, Any]:
    """End the machine and remove it; another one, or none, is left alone."""
    record = read_record()
    if record and record["id"] == body["id"]:
        require_machine(body)
        with contextlib.suppress(OSError):  # a full disk keeps nothing on
            record = update_record(record, wanted=TERMINATED)
        remove_machine(record)
    return {}


def processes(body: dict[str, Any]) -> dict[str, Any]:
    """Return what still runs here from this machine, but not its agent; JupyterLab with all below it is one of them.

    None where the system has no /proc.
    """
    require_machine(body)
    if not Path("/proc/self/stat").exists():
        return {"processes": None}
    parents, our_pids = parents_by_pid(), our_processes()
    jupyter_pids = {load(ROOT / "jupyter" / "server.json").get("pid", 0)} & our_pids
    shown_pids = our_pids - with_descendants(agent_pids() | jupyter_pids, parents)
    kernels = sum(parent in jupyter_pids for parent in parents.values())
    described = [describe_process(pid) for pid in sorted(shown_pids)]
    name = f"JupyterLab, kernels and terminals: {kernels}"
    described += [{**describe_process(pid), "command": name} for pid in jupyter_pids]
    return {"processes": [one for one in described if one["command"]]}


def describe_process(pid: int) -> dict[str, Any]:
    """Return a process as people know it: its number, its command line, its age in seconds; no command for a dead one.

    The command is cut at 300 characters.
    """
    directory = Path("/proc") / str(pid)
    try:
        command_line = (directory / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ") or (
            directory / "comm"
        ).read_bytes()
        started_s = int((directory / "stat").read_bytes().rpartition(b") ")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        age_s = float(Path("/proc/uptime").read_text().split()[0]) - started_s
    except (OSError, ValueError, IndexError):
        return {"pid": pid, "command": "", "seconds": 0}
    return {"pid": pid, "command": command_line.decode("utf-8", "replace").strip()[:300], "seconds": max(0, int(age_s))}


def facts(_body: dict[str, Any]) -> dict[str, Any]:
    """Return the host's hardware, its user, and who uses its GPUs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    cards, record = read_cards(QUERY_TIMEOUT_S, machine_processes), {} if is_elsewhere(read_record()) else read_record()
    holder = "{} ({})".format(record["name"], record["wanted"]) if record else None
    gpus = [[card["name"], card["mib"], card["uuid"]] for card in cards or () if not card["divided"]]
    hardware = {"cpus": os.cpu_count(), "memory_gib": round(memory, 1), "gpus": gpus, "user": login_name()}
    return {**hardware, "holder": holder, "used": gpus_in_use(cards)}


def end_by_agent(reason: str) -> None:
    """End what was started, as the agent's end command; the reason and the time are recorded."""
    with exclusive_lock():
        record = read_record()
        if record.get("wanted") == RUNNING:
            update_record(record, wanted=STOPPED, why=reason)
        complete_pending()


VERBS = {
    "launch": launch,
    "look": show_machine,
    "processes": processes,
    "tag": tag,
    "stop": stop,
    "start": start,
    "terminate": terminate,
}


def answer(verb: str, body: dict[str, Any]) -> dict[str, Any]:
    """Execute one request; return its answer, or the kind and the sentence of its Fault."""
    try:
        if verb == "facts":
            return {**facts(body), "here": this_computer()}
        gpu_use = {"used": gpus_in_use(read_cards(QUICK_QUERY_TIMEOUT_S, machine_processes))} if verb == "look" else {}
        CALLER_CLOCK_OFFSET["apart"] = clock_offset(body)
        with exclusive_lock():
            if verb == "terminate":  # nothing is started again for that: a full disk would keep the machine
                remove_leftovers()
            else:
                complete_pending()
            return {**VERBS[verb](body), **gpu_use, "here": this_computer(), "kept": REMAINING_FILES}
    except Fault as fault:
        return {"fault": fault.kind, "said": str(fault)}
    except OSError as error:
        kind = "filled" if error.errno in DISK_FULL_ERRORS else "system"
        return {"fault": kind, "said": f"{error.strerror or error} ({error.filename or HOME})"}


def main(verb: str, body: dict[str, Any]) -> None:
    """Execute one request and print its answer."""
    sys.stdout.write("\n" + ANSWER_PREFIX + json.dumps(answer(verb, body)) + "\n")


def publish_work() -> None:
    """Move what the template's script has made to the directory that the owner sees."""
    with exclusive_lock():
        record = read_record()
        if record.get("wanted") == RUNNING:
            publish(record)


if __name__ == "__main__" and sys.argv[1:2] == ["end"]:
    end_by_agent(sys.argv[2])
if __name__ == "__main__" and sys.argv[1:2] == ["publish"]:
    publish_work()
