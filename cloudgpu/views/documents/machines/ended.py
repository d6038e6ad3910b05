"""Documents of `down`: machines ended, resources retained, and machines left alone."""

from typing import TypedDict

from cloudgpu.views.documents.machines.machines import MachineDocument
from cloudgpu.views.documents.machines.storage import NamedResource
from cloudgpu.views.documents.parts import AccountCoverage, Fault, NamedMachine, OfMachine


class MachineProcess(TypedDict):
    """A process that ended with its machine; JupyterLab with all its child processes is one."""

    pid: int
    """Its process id."""
    command: str
    """Its command line, 300 characters at most."""
    seconds: float
    """Since its start, in seconds."""


class BusyMachine(NamedMachine):
    """A machine on a host of your own on which something still ran."""

    processes: list[MachineProcess] | None
    """What ended with it; null where that is not known."""
    error: str | None
    """Why it is not known."""


class RetainedFiles(OfMachine):
    """Files of a template, on a computer of your own, that you changed or added."""

    where: str
    """Where they are."""
    files: list[str]
    """Up to 20 of them."""
    count: int
    """How many there are."""


class OthersMachine(NamedMachine):
    """A machine of somebody else, which is left alone."""

    owner: str
    """Whose it is."""


class DownDocument(AccountCoverage):
    """What was ended, and what was not; accounts are queried with `--all`."""

    terminated: list[MachineDocument]
    """Machines that are verified gone, with their disks and images."""
    running: list[BusyMachine]
    """Machines on your own hosts on which something still ran: `name`, `id`, `processes` and `error`. `processes` is
    what ended with the machine, each with `pid`, `command` (300 characters at most) and `seconds` since its start.
    JupyterLab with all its processes is one. It is null where that is not known, and `error` says why.
    """
    retained: list[NamedResource]
    """Their volumes and images that are retained on purpose."""
    kept_files: list[RetainedFiles]
    """On computers of your own: files of a template that you changed or added: `name` of the machine, `where` they
    are, up to 20 `files`, and `count`, how many there are.
    """
    failed: list[Fault]
    """Machines whose end could not be verified."""
    others: list[OthersMachine]
    """With `--all`, in a team: machines of others, which are left alone: `name`, `id`, `owner`."""
