"""Launch templates: what a new machine is given, as data, found by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudgpu.config.data import data_dir
from cloudgpu.config.yamlfile import Table, read_yaml
from cloudgpu.core.facts import Part
from cloudgpu.core.names import NAME, NAME_RULE, near
from cloudgpu.errors import InvalidRequest

KEYS = ("description", "jupyter", "image", "disk_gb", "packages", "cloud_init", "on_start")
JUPYTER = ("jupyter", "lab")
LARGEST_DISK_GB = 65_536


@dataclass(frozen=True, slots=True)
class Template:
    """A launch template as its file says it.

    `jupyter` is the command that serves notebooks, empty for none. `disk_gb` is the size of the system disk in GB
    (None: the image's own). `packages` are Debian packages, `cloud_init` is a jinja2 text, `on_start` a shell
    script that runs as the user in the home directory each time the machine starts.
    """

    name: str
    path: Path
    description: str = ""
    jupyter: tuple[str, ...] = ()
    image: str = ""
    disk_gb: int | None = None
    packages: tuple[str, ...] = ()
    cloud_init: str = ""
    on_start: str = ""

    def parts(self) -> tuple[Part, ...]:
        """Return what a provider has to carry out, in its order, without what the template leaves out."""
        pieces = (
            ("image", self.image),
            ("disk_gb", "" if self.disk_gb is None else str(self.disk_gb)),
            ("packages", "\n".join(self.packages)),
            ("cloud_init", self.cloud_init),
            ("on_start", self.on_start),
        )
        return tuple(Part(kind, text) for kind, text in pieces if text)


def load_template(name: str, *, search: Sequence[Path]) -> Template:
    """Return the template called `name`: the first in the directories of `search`, else the shipped one.

    Raises InvalidRequest for an unknown name, with the near one, and for a fault in the file, with its line.
    """
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be a template's name: {NAME_RULE}.",
            field="template",
            value=name,
            next=f"Use one of: {', '.join(template_names(search=search))}.",
        )
    for directory in (*search, data_dir("templates")):
        table = read_yaml(directory / f"{name}.yaml")
        if table is not None:
            return template_from(table, name)
    raise _unknown(name, search)


def template_names(*, search: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of all templates there are, sorted."""
    stems = {file.stem for directory in (*search, data_dir("templates")) for file in directory.glob("*.yaml")}
    return tuple(sorted(stem for stem in stems if NAME.fullmatch(stem)))


def template_from(table: Table, name: str) -> Template:
    """Return the template that a file's table describes; raise InvalidRequest with the line of a fault."""
    table.check_keys(KEYS)
    return Template(
        name=name,
        path=table.path,
        description=table.line("description"),
        jupyter=_jupyter(table),
        image=table.line("image"),
        disk_gb=table.whole("disk_gb", least=1, most=LARGEST_DISK_GB),
        packages=table.texts("packages"),
        cloud_init=table.text("cloud_init"),
        on_start=table.text("on_start"),
    )


def _jupyter(table: Table) -> tuple[str, ...]:
    value = table.values.get("jupyter", False)
    if isinstance(value, bool):
        return JUPYTER if value else ()
    if isinstance(value, list) and value:
        return table.texts("jupyter")
    raise table.fault("jupyter", "has to be true, false or a command as a list", next="Write jupyter: true")


def _unknown(name: str, search: Sequence[Path]) -> InvalidRequest:
    names = template_names(search=search)
    meant = near(name, names)
    own = f", or write {search[-1] / name}.yaml" if search else ""
    return InvalidRequest(
        f"No template is called {name!r}" + (f"; did you mean {meant!r}?" if meant else "."),
        field="template",
        value=name,
        next=f"Use one of: {', '.join(names)}{own}.",
    )
