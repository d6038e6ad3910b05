"""The values that a command gets and nobody keeps: those of `--env-file` and `--secret`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.jobs.inputs.env_file import read_env_file
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudgpu.core.events.job_lines import JobSpec


def secret_values(spec: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a job's secrets and of its --env-file, read now; they are written nowhere.

    Raises InvalidRequest for a secret that this environment does not have, and for a file that cannot be read.
    """
    missing = [name for name in spec["secrets"] if name not in environ]
    if missing:
        raise InvalidRequest(
            f"{missing[0]} is not set in this environment, and the job needs it (--secret {missing[0]}).",
            field="--secret",
            value=missing[0],
            next=f"Set it: export {missing[0]}=..., then run it again.",
        )
    found = {} if spec["env_file"] is None else read_env_file(Path(spec["env_file"]))
    return {**found, **{name: environ[name] for name in spec["secrets"]}}
