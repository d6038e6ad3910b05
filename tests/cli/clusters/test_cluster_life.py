"""A cluster of local machines under one name, from `up --nodes` to `down`, through the real command line."""

from __future__ import annotations

import signal


def test_a_cluster_lives_under_one_name_from_up_to_down(cloudgpu, tmp_path):
    up = cloudgpu("up", "--yes", "--name", "train", "--nodes", "2", "--engine", "none", "--lease", "1h")
    assert up.code == 0, up.err

    listed = cloudgpu("ls")
    (line,) = [line for line in listed.out.splitlines() if "train" in line]
    assert line.split()[:3] == ["train", "2/2", "local"]
    assert " 2 x " in line
    assert [line.split()[0] for line in cloudgpu("ls", "--nodes").out.splitlines()[1:3]] == ["train-0", "train-1"]
    document = cloudgpu("ls", "-o", "json").json
    (cluster,) = document["clusters"]
    assert [one["cluster"]["node"] for one in document["machines"]] == [0, 1]
    assert cluster["nodes"] == [one["id"] for one in document["machines"]]
    assert (cluster["there"], cluster["degraded"], cluster["state"]) == (2, False, "running")

    shown = cloudgpu("show", "train")
    assert shown.out.startswith("train: 2/2, ")
    assert [one["name"] for one in cloudgpu("show", "train", "-o", "json").json["machines"]] == ["train-0", "train-1"]
    assert cloudgpu("show", "train-1", "-o", "json").json["name"] == "train-1"

    each = cloudgpu("exec", "train", "--all-nodes", "--", "sh", "-c", 'echo one; echo "$HOME" >&2; printf two')
    assert each.code == 0, each.err
    assert sorted(each.out.splitlines()) == [f"train-{node}: {word}" for node in (0, 1) for word in ("one", "two")]
    homes = dict(line.split(": ", 1) for line in each.err.splitlines() if line.startswith("train-"))
    assert len(set(homes.values())) == 2
    only = cloudgpu("exec", "train", "--", "sh", "-c", 'echo "$HOME"; cat', stdin=b"typed")
    assert (only.code, only.out) == (0, f"{homes['train-0']}\ntyped")
    failed = cloudgpu("exec", "train", "--all-nodes", "--", "sh", "-c", f'test "$HOME" = {homes["train-0"]} || exit 7')
    assert failed.code == 7

    file = tmp_path / "data.txt"
    file.write_text("data")
    assert cloudgpu("cp", str(file), "train:first.txt").code == 0
    assert cloudgpu("cp", str(file), "train-1:second.txt").code == 0
    assert sorted(cloudgpu("exec", "train", "--all-nodes", "--", "sh", "-c", "ls *.txt").out.split()) == [
        "first.txt",
        "second.txt",
        "train-0:",
        "train-1:",
    ]

    _check_that_ctrl_c_reaches_all_nodes(cloudgpu)

    part = cloudgpu("down", "train-1", "--yes", "-o", "json")
    assert (part.code, part.json["error"]["next"]) == (2, "For all of it: cloudgpu down train")
    longer = cloudgpu("extend", "train", "2h", "--yes", "-o", "json")
    assert (longer.code, len({one["expires"] for one in longer.json["machines"]})) == (0, 1), longer.err
    assert "All 2 nodes of train are held until" in cloudgpu("hold", "train", "1h", "--yes").out
    assert cloudgpu("hold", "train", "", "--yes").code == 2  # an empty end, as of an unset variable, releases nothing
    assert cloudgpu("hold", "train", "--release", "--yes").code == 0

    stopped = cloudgpu("stop", "train", "--yes", "-o", "json")
    assert (stopped.code, stopped.json["state"], stopped.json["billed"], stopped.json["failed"]) == (
        0,
        "stopped",
        False,
        [],
    )
    assert "2/2 stopped" in cloudgpu("ls").out
    started = cloudgpu("start", "train", "--yes")
    assert started.code == 0, started.err
    assert started.out.startswith("train is running, all 2 nodes.")

    down = cloudgpu("down", "train", "--yes")
    assert down.code == 0, down.err
    assert down.out.startswith("train with all its 2 nodes is gone. It cost at most $")
    assert cloudgpu.machines() == []


def test_up_says_that_the_on_start_of_a_cluster_failed_or_still_runs(cloudgpu):
    place = cloudgpu.home / "templates"
    place.mkdir(parents=True, exist_ok=True)
    (place / "own.yaml").write_text("on_start: |\n  while [ ! -e go ]; do sleep 0.1; done\n  exit 7\n")
    up = ("up", "--yes", "--name", "train", "--nodes", "2", "--engine", "none", "--template", "own")
    said = " ".join(cloudgpu(*up).out.split())
    log = "(its log: cloudgpu exec train --all-nodes -- cat .cloudgpu/on_start.log)"
    assert f"train is ready: 2 machines, train-0 to train-1; on_start still runs {log}." in said
    assert cloudgpu("exec", "train", "--all-nodes", "--", "touch", "go").code == 0
    assert cloudgpu(*up, "--wait-start").code == 2
    said = " ".join(cloudgpu(*up).out.split())
    assert f"train is ready: 2 machines, train-0 to train-1, but on_start failed {log}." in said
    assert cloudgpu("down", "train", "--yes").code == 0


def _check_that_ctrl_c_reaches_all_nodes(cloudgpu):
    script = "trap 'echo interrupted > seen; exit' INT; echo begun; while :; do sleep 0.05; done"
    with cloudgpu.start("exec", "train", "--all-nodes", "--", "sh", "-c", script) as running:
        assert sorted(running.stdout.readline() for _ in range(2)) == [b"train-0: begun\n", b"train-1: begun\n"]
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
        assert b"error" not in running.stderr.read()
    seen = cloudgpu("exec", "train", "--all-nodes", "--", "cat", "seen")
    assert sorted(seen.out.splitlines()) == ["train-0: interrupted", "train-1: interrupted"]
