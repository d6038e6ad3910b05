"""The program that looks at a node and runs its engine: Python 3.8's standard library alone, as the login user.

It answers one request after the other and ends with its channel. Between two requests it may hold ports: nobody else
takes what was chosen while the other nodes choose. The daemons that it starts live on without it. Their environment
has the mark of this node's engine, and so has that of each task (the task prolog sets it); Slurm's step managers have
the node's log open. What is found by neither descends from what is.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MARK = "CLOUDGPU_ENGINE"
MORE_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")
OF_NODE = ("CLOUDGPU_MACHINE", "PATH", "TMPDIR", "VIRTUAL_ENV")
DEVICES = "~/.cloudgpu/gpu-devices"  # device files, one a line, where GPUs are not /dev/nvidia0, 1, ...
GREETING = b"\x1ecloudgpu-slurm "
GENTLE_S, KILL_S, START_S, ASK_S = 4.0, 5.0, 30.0, 25.0
PREFERRED = (6818, 6817)  # Slurm's own ports: of the node, of the controller
SIOCGIFADDR = 0x8915  # linux/sockios.h
LAST_WORDS = 300
Fault = RuntimeError


def main(take: Callable[[int], bytes]) -> int:
    """Answer requests until the channel ends."""
    say(GREETING)
    held: list[socket.socket] = []
    while True:
        request = json.loads(take(int(take(8))))
        try:
            answer = VERBS[request.pop("verb")](held, **request)
        except (Fault, OSError) as error:
            answer = {"fault": str(error)[:1000]}
        body = json.dumps(answer).encode()
        say(struct.pack(">I", len(body)) + body + struct.pack(">I", 0))


def say(data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(1, data) :]


def look(_held: list[socket.socket], directory: str, people: list[str]) -> dict[str, Any]:
    """Say what this node is. Changes nothing."""
    me = pwd.getpwuid(os.getuid())
    address = (os.environ.get("SSH_CONNECTION") or "- - 127.0.0.1 -").split()[2]
    address = address[7:] if address.startswith("::ffff:") else address
    cards = interfaces()
    plan = read_plan(directory)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": memory_mb(),
        "gpus": gpus(),
        "version": output(["slurmd", "-V"]) if shutil.which("slurmd", path=path()) else None,
        "munge": shutil.which("munged", path=path()) is not None,
        "now": time.time(),
        "user": me.pw_name,
        "uid": me.pw_uid,
        "people": {name: uid_of(name) for name in people},
        "hostname": socket.gethostname().split(".")[0],
        "host": host(),
        "address": address,
        "interface": next((name for name, its in cards.items() if its == address), None),
        "interfaces": len(cards),
        "home": home(),
        "environ": {name: os.environ[name] for name in OF_NODE if os.environ.get(name)},
        "planned": plan.get("digest", ""),
        "ports": plan.get("ports"),
        "alive": sorted(name for name, pid in daemons(directory).items() if pid),
    }


def hold(held: list[socket.socket], controller: bool, shared: bool) -> dict[str, Any]:
    """Choose ports and hold them until `start`: Slurm's own where they are free and the network is no loopback."""
    let_go(held)
    for preferred in PREFERRED[: 2 if controller else 1]:
        held.append(listener(0 if shared else preferred))
    numbers = [one.getsockname()[1] for one in held]
    return {"ports": [numbers[0], numbers[1] if controller else None]}


def listener(port: int) -> socket.socket:
    """Return a socket that listens at this port, or at any where it is taken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("", port))
        made.listen(1)
        return made
    except OSError:
        made.close()
        if not port:
            raise
        return listener(0)


def let_go(held: list[socket.socket]) -> None:
    """Close the sockets that were held."""
    while held:
        held.pop().close()


def write(
    _held: list[socket.socket], directory: str, short: str, texts: dict[str, str], programs: list[str], key: str
) -> dict[str, Any]:
    """Write the node's files: mode 0600 (programs 0700), directories 0700. The plan comes last, with `planned`."""
    whole = make_directories(directory, short)
    texts = dict(texts, **{"munge.key": ""})
    for name, text in texts.items():
        content = base64.b64decode(key) if name == "munge.key" else text.encode()
        fresh = os.path.join(whole, ".new-" + name)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        os.chmod(fresh, 0o700 if name in programs else 0o600)
        os.replace(fresh, os.path.join(whole, name))
    return {}


def planned(_held: list[socket.socket], directory: str, digest: str, ports: list[int]) -> dict[str, Any]:
    """Note by which plan the files were written, once all nodes have theirs."""
    fresh = os.path.join(absolute(directory), ".new-plan")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"digest": digest, "ports": ports}, file)
    os.replace(fresh, os.path.join(absolute(directory), "plan.json"))
    return {}


def start(
    held: list[socket.socket], directory: str, short: str, mark: str, name: str, ports: list[int], names: list[str]
) -> dict[str, Any]:
    """Start the daemons that are named and do not run, and wait until each listens."""
    whole = make_directories(directory, short)
    let_go(held)
    began = {}
    for daemon in names:
        if not daemons(directory).get(daemon):
            began[daemon] = launch(daemon, whole, short, mark, name)
            note(whole, daemon, began[daemon].pid)
            if daemon == "munged":
                wait_for(daemon, began[daemon], whole, lambda: answers(socket.AF_UNIX, os.path.join(short, "munge")))
    for daemon, process in began.items():
        port = ports[1] if daemon == "slurmctld" else ports[0]
        if daemon != "munged":
            wait_for(daemon, process, whole, lambda port=port: answers(socket.AF_INET, ("127.0.0.1", port)))
    return {"began": sorted(began)}


def launch(daemon: str, whole: str, short: str, mark: str, name: str) -> subprocess.Popen[bytes]:
    """Start one daemon in a session of its own, with a small environment."""
    conf, log = os.path.join(whole, "slurm.conf"), os.path.join(whole, daemon + ".log")
    at = "--{}=" + short + "/{}"
    key = ["--key-file=" + whole + "/munge.key", "--log-file=" + log]
    words = {
        "munged": ["--force", "--foreground", *key, at.format("socket", "munge"), at.format("pid-file", "munged.pid")]
        + [at.format("seed-file", "munge.seed")],
        "slurmctld": ["-D", "-f", conf, "-L", log],
        "slurmd": ["-D", "-f", conf, "-N", name, "-L", log],
    }[daemon]
    kept = {one: os.environ[one] for one in ("HOME", "LANG", "TMPDIR", "CLOUDGPU_MACHINE", "TZ") if one in os.environ}
    environ = dict(kept, PATH=path(), SLURM_CONF=conf, **{MARK: mark})
    program = shutil.which(daemon, path=path())
    if program is None:
        raise Fault(daemon + " is not installed")
    with open(os.open(os.path.join(whole, daemon + ".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        return subprocess.Popen(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environ,
            cwd="/",
            start_new_session=True,
        )


def wait_for(daemon: str, process: subprocess.Popen[bytes], whole: str, is_up: Callable[[], bool]) -> None:
    """Wait until a daemon listens. Raises Fault with its last words where it ended, or took too long."""
    end = time.monotonic() + START_S
    while True:
        if process.poll() is not None:
            raise Fault(f"{daemon} ended: {last_words(whole, daemon)}")
        if is_up():
            return
        if time.monotonic() > end:
            raise Fault(f"{daemon} does not listen after {START_S:g} s: {last_words(whole, daemon)}")
        time.sleep(0.02)


def answers(family: int, address: Any) -> bool:
    """Tell whether something listens there."""
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.settimeout(1.0)
        return made.connect_ex(address) == 0


def last_words(whole: str, daemon: str) -> str:
    """Return the last line that a daemon has written, of errors if there are any."""
    lines = []
    for ending in (".log", ".out"):
        with contextlib.suppress(OSError), open(os.path.join(whole, daemon + ending), "rb") as file:
            lines += [line for line in file.read()[-20000:].decode("utf-8", "replace").splitlines() if line.strip()]
    bad = [line for line in lines if re.search("error|fatal|Error", line)]
    return (bad or lines or ["it said nothing"])[-1].strip()[-LAST_WORDS:]


def stop(held: list[socket.socket], directory: str, short: str, mark: str, names: list[str]) -> dict[str, Any]:
    """End the daemons that are named (all, and everything that runs for this engine, for none); munge comes last."""
    let_go(held)
    if names:
        found = [pid for name, pid in daemons(directory).items() if pid and name in names]
        end(lambda: [pid for pid in found if lives(pid)], GENTLE_S)
        return {"ended": len(found)}
    munge = daemons(directory).get("munged")
    begun = ours(directory, short, mark)
    end(lambda: [pid for pid in ours(directory, short, mark) if pid != munge], GENTLE_S)
    end(lambda: ours(directory, short, mark), GENTLE_S)
    return {"ended": len(begun)}


def end(find: Callable[[], list[int]], gentle_s: float) -> None:
    """Ask processes to end, then kill them until none is left. Raises Fault where some do not go."""
    asked = find()
    for number, within in ((signal.SIGTERM, gentle_s), (signal.SIGKILL, KILL_S)):
        until = time.monotonic() + within
        while asked and time.monotonic() < until:
            for pid in asked:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            pause = time.monotonic() + 0.3
            while time.monotonic() < pause and any(lives(pid) for pid in asked):
                time.sleep(0.02)
            asked = find()
    if asked:
        raise Fault("some processes do not end: {}".format(", ".join(str(pid) for pid in asked)))


def ask(_held: list[socket.socket], directory: str) -> dict[str, Any]:
    """Say what `sinfo` and `squeue` say; without them, why."""
    made = [slurm(directory, *words) for words in (("sinfo", "-h", "-N", "-o", SINFO), SQUEUE_WORDS)]
    said = [finish(one) for one in made]
    failed = next((error for status, _, error in said if status), None)
    if failed is not None:
        alive = daemons(directory).get("slurmctld")
        return {"alive": False, "why": failed or ("it does not answer" if alive else "slurmctld does not run")}
    return {"alive": True, "sinfo": said[0][1], "squeue": said[1][1]}


SINFO = "%N|%T|%E"
SQUEUE_WORDS = ("squeue", "-h", "-a", "-r", "-o", "%i|%T|%r")


def resume(_held: list[socket.socket], directory: str, names: list[str]) -> dict[str, Any]:
    """Take nodes into use again."""
    status, _, error = finish(slurm(directory, "scontrol", "update", "nodename=" + ",".join(names), "state=resume"))
    return {"why": error if status else ""}


def slurm(directory: str, *words: str) -> subprocess.Popen[bytes]:
    """Begin one of Slurm's commands."""
    environ = dict(os.environ, PATH=path(), SLURM_CONF=os.path.join(absolute(directory), "slurm.conf"))
    return subprocess.Popen(
        list(words), env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Return a command's status, output and last line of errors; it is ended when it takes too long."""
    try:
        out, error = process.communicate(timeout=ASK_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 1, "", f"it did not answer within {ASK_S:g} s"
    lines = error.decode("utf-8", "replace").strip().splitlines()
    return process.returncode, out.decode("utf-8", "replace"), lines[-1][-LAST_WORDS:] if lines else ""


def remove(held: list[socket.socket], directory: str, short: str, mark: str) -> dict[str, Any]:
    """End everything and remove every file; the directories above go when they are empty."""
    answer = stop(held, directory, short, mark, [])
    for one in (absolute(directory), short):
        shutil.rmtree(one, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(one))
            if one != short:
                os.rmdir(os.path.dirname(os.path.dirname(one)))
    return answer


def make_directories(directory: str, short: str) -> str:
    """Make the node's directories; raise Fault where the short one, which everybody could make, is another's."""
    whole = absolute(directory)
    os.makedirs(os.path.join(whole, "state"), 0o700, exist_ok=True)
    os.chmod(whole, 0o700)
    for one in (os.path.dirname(short), short, short + "/spool"):
        with contextlib.suppress(FileExistsError):
            os.mkdir(one, 0o700)
        seen = os.lstat(one)
        open_to_others = stat.S_IMODE(seen.st_mode) & 0o077 and not one.endswith("/spool")  # slurmd opens that itself
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or open_to_others:
            raise Fault(one + " is not a directory of this user alone")
    return whole


def absolute(directory: str) -> str:
    """Return a path below the home as a whole one."""
    return os.path.join(home(), directory)


def home() -> str:
    """Return the login user's home."""
    return os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir


def path() -> str:
    """Return where programs are: Debian keeps daemons out of a user's path."""
    return os.pathsep.join([os.environ.get("PATH", ""), *MORE_PATH])


def read_plan(directory: str) -> dict[str, Any]:
    """Return what was noted of the plan."""
    try:
        with open(os.path.join(absolute(directory), "plan.json")) as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


def note(whole: str, daemon: str, pid: int) -> None:
    """Remember a daemon's process: its number, and when it began."""
    with open(
        os.open(os.path.join(whole, daemon + ".process"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
    ) as f:
        f.write(f"{pid} {begun(pid)}")


def daemons(directory: str) -> dict[str, int]:
    """Return the daemons of this node with their process numbers, 0 for one that has ended."""
    found = {}
    for name in ("munged", "slurmctld", "slurmd"):
        try:
            with open(os.path.join(absolute(directory), name + ".process")) as file:
                pid, began = (int(word) for word in file.read().split())
        except (OSError, ValueError):
            continue
        found[name] = pid if lives(pid) and begun(pid) == began else 0
    return found


def fields(pid: int) -> list[str]:
    """Return what the kernel says of a process, from its state on; nothing for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def lives(pid: int) -> bool:
    """Tell whether a process lives."""
    return (fields(pid) or ["X"])[0] not in "ZX"


def begun(pid: int) -> int:
    """Return when a process began, in the kernel's ticks."""
    said = fields(pid)
    return int(said[19]) if said else 0


def ours(directory: str, short: str, mark: str) -> list[int]:
    """Return the living processes of this node's engine, tasks included."""
    wanted, roots = (MARK + "=" + mark).encode(), (absolute(directory) + "/", short + "/")
    parents, found = {}, set()
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        said = fields(pid)
        if not said or said[0] in "ZX" or pid == os.getpid():
            continue
        parents[pid] = int(said[1])
        if is_marked(pid, wanted) or any(one.startswith(roots) for one in open_files(pid)):
            found.add(pid)
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        grown = bool(more)
        found |= more
    return sorted(found)


def is_marked(pid: int, wanted: bytes) -> bool:
    """Tell whether a process was started with this mark."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return wanted in file.read().split(b"\0")
    except OSError:
        return False


def open_files(pid: int) -> Iterator[str]:
    """Yield the files that a process has open, as far as we may know."""
    where = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(where):
            with contextlib.suppress(OSError):
                yield os.readlink(os.path.join(where, name))


def memory_mb() -> int:
    """Return all memory of this computer in MiB."""
    with open("/proc/meminfo") as file:
        return max(1, int(file.readline().split()[1]) // 1024)


def gpus() -> list[str]:
    """Return the device files of the GPUs that this user may use here."""
    if shutil.which("nvidia-smi", path=path()):
        output(["nvidia-smi", "-L"])  # makes the device files where nobody has used a GPU yet
    try:
        with open(os.path.expanduser(DEVICES)) as file:
            named = [line.strip() for line in file if line.strip()]
    except OSError:
        found = [name for name in os.listdir("/dev") if re.fullmatch("nvidia[0-9]+", name)]
        named = ["/dev/" + name for name in sorted(found, key=lambda name: int(name[6:]))]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and re.fullmatch("[0-9,]*", visible):
        chosen = {int(word) for word in visible.split(",") if word}
        named = [one for place, one in enumerate(named) if place in chosen]
    return [one for one in named if os.path.exists(one) and stat.S_ISCHR(os.stat(one).st_mode)]


def host() -> str:
    """Return what is the same for nodes on one host: one boot, one network, one name."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return " ".join([file.read().strip(), os.readlink("/proc/self/ns/net"), socket.gethostname()])


def interfaces() -> dict[str, str]:
    """Return the network cards with an IPv4 address, without loopback."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                said = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
                found[name] = socket.inet_ntoa(said[20:24])
    return {name: address for name, address in found.items() if not address.startswith("127.")}


def uid_of(name: str) -> int | None:
    """Return the number of a user, None for one who is not known here."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def output(words: list[str]) -> str:
    """Return what a command prints; nothing where it fails."""
    try:
        done = subprocess.run(
            words,
            env=dict(os.environ, PATH=path()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
        )
        return done.stdout.decode("utf-8", "replace").strip()
    except (OSError, subprocess.SubprocessError):
        return ""


VERBS = {
    "look": look,
    "hold": hold,
    "write": write,
    "planned": planned,
    "start": start,
    "stop": stop,
    "ask": ask,
    "resume": resume,
    "remove": remove,
}
