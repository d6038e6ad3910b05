"""The options of `run` beside those of `up`, in the order in which --help shows them."""

from __future__ import annotations

from typing import Annotated

import typer

from cloudgpu.cli.launch.options import text_option

On = Annotated[str | None, text_option("MACHINE", "Run on this machine, which is there and stays; launch none.")]
Workdir = Annotated[str | None, text_option("DIR", "The directory that travels; by default the one that you are in.")]
Include = Annotated[
    list[str] | None, text_option("GLOB", "Take these files along though they are ignored. Repeatable.")
]
SetUp = Annotated[str | None, text_option("CMD", "A shell command before the first start on each machine.")]
Env = Annotated[list[str] | None, text_option("K=V", "A variable for the command; the ledger keeps it. Repeatable.")]
EnvFile = Annotated[str | None, text_option("FILE", "KEY=VALUE lines, read when the job starts and kept nowhere.")]
Secret = Annotated[list[str] | None, text_option("NAME", "A variable of your environment, kept nowhere. Repeatable.")]
Data = Annotated[list[str] | None, text_option("SRC:DEST", "Data on the machine: a path, or volume:NAME. Repeatable.")]
Port = Annotated[list[str] | None, text_option("N", "A port of the job to reach on this computer's N. Repeatable.")]
Results = Annotated[str | None, text_option("DIR", "Where the command writes results, in the workdir. (results)")]
Checkpoint = Annotated[str | None, text_option("DIR", "Where it writes checkpoints, in the workdir.")]
Every = Annotated[str | None, text_option("TIME", "How often results and checkpoints are copied. (10m)")]
Timeout = Annotated[str | None, text_option("TIME", "End the command after this long.")]
MaxCost = Annotated[str | None, text_option("USD", "End the command when its machines have cost this.")]
Stall = Annotated[str | None, text_option("TIME", "Alert after this long without output or progress.")]
Retries = Annotated[int, typer.Option(metavar="N", help="Run a failing command again, this often.")]
Restarts = Annotated[int, typer.Option(metavar="N", help="Start again after a lost machine, this often.")]
Keep = Annotated[str | None, text_option("TIME", "Keep the machine of a failed job this long, for a look.")]
ResultsWait = Annotated[str | None, text_option("TIME", "How long a machine waits for its results to be fetched. (2h)")]
Key = Annotated[str | None, text_option("KEY", "Follow the living job with this key; else run a new one.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Return once the command has begun.")]
