"""Stands in for Docker's command line, which is somebody else's and not here: takes what our scripts may say, no more.

What it does is our reading of Docker's reference (docker container run, exec, inspect; docker image inspect, pull), and
no Docker has seen it: an exec runs in a session of its own, with the container's environment and what `-e` names, goes
on when its client is killed, and answers with its status. Every call is a line of `calls` in STAND_IN.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

PLACE = Path(os.environ["STAND_IN"])
RUN_FLAGS = {"-d": 0, "--name": 1, "--restart": 1, "--gpus": 1, "--network": 1, "--pid": 1, "--ipc": 1, "--ulimit": 1}
RUN_FLAGS.update({"--user": 1, "-e": 1, "-v": 1, "-w": 1, "--entrypoint": 1})
EXEC_FLAGS = {"-i": 0, "-t": 0, "-w": 1, "-e": 1}


def say(*words):
    sys.stdout.write(" ".join(words) + "\n")


def flags(words, known):
    """Return the options by name, and the words behind them; anything unknown is an error, as it is there."""
    found, words = [], list(words)
    while words and words[0].startswith("-"):
        name = words.pop(0)
        if name not in known:
            sys.exit(f"unknown flag: {name}")
        found.append((name, words.pop(0) if known[name] else ""))
    return found, words


def state():
    path = PLACE / "state"
    return json.loads(path.read_text()) if path.exists() else {"images": [], "container": None}


def keep(**changes):
    (PLACE / "state").write_text(json.dumps({**state(), **changes}))


def pull(words):
    assert words[0] == "--quiet"
    failures = PLACE / "failures"
    left = int(failures.read_text()) if failures.exists() else 0
    if left:
        failures.write_text(str(left - 1))
        sys.exit("Error response from daemon: net/http: TLS handshake timeout")
    keep(images=[*state()["images"], words[1]])
    say(words[1])


def run(words):
    options, (image, *command) = flags(words, RUN_FLAGS)
    if state()["container"]:
        sys.exit("Conflict. The container name is already in use")
    if image not in state()["images"]:
        sys.exit("Unable to find image locally")
    keep(container={"image": image, "options": options, "command": command})
    say("0" * 64)


def execute(words):
    options, (name, *command) = flags(words, EXEC_FLAGS)
    made = state()["container"]
    if name != "cloudgpu" or not made:
        sys.exit("Error response from daemon: No such container: cloudgpu")
    environ = {"PATH": f"{PLACE}/image:{os.defpath}"}
    for text in [one for flag, one in made["options"] if flag == "-e"] + [one for flag, one in options if flag == "-e"]:
        key, equals, value = text.partition("=")
        if equals or key in os.environ:
            environ[key] = value if equals else os.environ[key]
    cwd = dict(options).get("-w") or dict(made["options"])["-w"]
    try:
        done = subprocess.run(command, env=environ, cwd=cwd, start_new_session=True, check=False)
        sys.exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)
    except FileNotFoundError:
        sys.stderr.write(f"OCI runtime exec failed: {command[0]}: executable file not found in $PATH\n")
        sys.exit(127)


def inspect(words):
    made = state()["container"]
    if not made:
        sys.exit("Error: No such object: cloudgpu")
    assert words == ["-f", "{{.Config.Image}} {{.State.Running}}", "cloudgpu"]
    say(made["image"], "true")


def main(verb, *words):
    with (PLACE / "calls").open("a") as file:
        file.write(json.dumps([verb, *words]) + "\n")
    if verb == "info":
        say('{"nvidia":{}}' if (PLACE / "nvidia").exists() else '{"runc":{}}')
    elif verb == "image":
        sys.exit(0 if words[1] in state()["images"] else 1)
    elif verb == "rm":
        keep(container=None)
    else:
        {"pull": pull, "run": run, "exec": execute, "inspect": inspect}[verb](list(words))


if __name__ == "__main__":
    main(*sys.argv[1:])
