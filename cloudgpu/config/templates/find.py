"""Launch templates: the image, packages, scripts and settings of a new machine, in YAML files found by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast, get_args

from cloudgpu.config.files.user_files import data_dir, yaml_names
from cloudgpu.config.files.yaml import Table, read_named_yaml
from cloudgpu.core.catalog.container_images import parse_reference
from cloudgpu.core.model.facts import Engine
from cloudgpu.core.model.launch import BootPart
from cloudgpu.core.values.naming import NAME, NAME_RULE, unknown_word
from cloudgpu.errors import InvalidRequest

KEYS = (
    "description",
    "jupyter",
    "image",
    "container",
    "disk_gb",
    "packages",
    "engine",
    "settings",
    "cloud_init",
    "on_start",
)
JUPYTER_COMMAND = ("jupyter", "lab")
LARGEST_DISK_GB = 65_536
SETTING_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # in `on_start` it is a variable of the shell
_SETTING_IN_IMAGE = re.compile(r"\{\{ *settings\.([a-z][a-z0-9_]*) *\}\}")
_MOVING_TAGS = ("", "latest")  # under which a registry may hold another image tomorrow
_EXAMPLE_IMAGE = "nvcr.io/nvidia/pytorch:25.06-py3"


@dataclass(frozen=True, slots=True)
class Template:
    """A launch template as read from its file.

    `jupyter` is the command that serves notebooks, empty for none. `disk_gb` is the size of the system disk in GB
    (None: the image's own). `container` names a container image, in which settings may stand. `packages` are Debian
    packages. `engine` is the scheduler of its machines' jobs (None: not specified). `settings` are texts by name that a
    user may set and `container`, `cloud_init` (a jinja2 text) and `on_start` may use; `on_start` is a shell script that
    runs as the user in the home directory each time the machine starts. `cloud_init_line` is the line of the file on
    which the text of `cloud_init` begins.
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
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)  # an address may hold a password
    cloud_init_line: int = 1
    engine: Engine | None = None
    container: str = ""

    @property
    def container_image(self) -> str:
        """The container image, with settings filled in; empty for none. Raises InvalidRequest for a wrong name."""
        return _container_image(self.container, self.settings, self.path)

    def parts(self) -> tuple[BootPart, ...]:
        """Return what a machine of it boots with, in the order that providers expect, not rendered yet.

        `render.render_parts` does that.
        """
        contents = (
            ("image", self.image),
            ("container", self.container_image),
            ("disk_gb", "" if self.disk_gb is None else str(self.disk_gb)),
            ("packages", "\n".join(self.packages)),
            ("cloud_init", self.cloud_init),
            ("on_start", self.on_start),
        )
        return tuple(BootPart(kind, text) for kind, text in contents if text)


def load_template(
    name: str, *, search: Sequence[Path], settings: Mapping[str, Mapping[str, str]] | None = None
) -> Template:
    """Return the template called `name`: the first in the directories of `search`, else the shipped one.

    `settings` is what config.toml sets, by template. Raises InvalidRequest for an unknown name or setting, with the
    near one, and for an error in the file, with its line.
    """
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot be a template's name: {NAME_RULE}.",
            field="template",
            value=name,
            next=f"Use one of: {', '.join(template_names(search=search))}.",
        )
    for directory in (*search, data_dir("templates")):
        table = read_named_yaml(directory, name)
        if table is not None:
            return _with_user_settings(template_from(table, name), (settings or {}).get(name, {}))
    raise _unknown_template(name, search)


def template_names(*, search: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of all templates there are, sorted."""
    return tuple(yaml_names("templates", search))


def template_from(table: Table, name: str) -> Template:
    """Return the template that a file's table describes; raise InvalidRequest with the line of an error."""
    for key in ("extends", "include", "inherits"):
        if key in table.values:
            raise table.error(
                key, "is not a key: templates do not build on each other", next="Copy what you need of it."
            )
    table.check_keys(KEYS)
    return Template(
        name=name,
        path=table.path,
        description=table.one_line("description"),
        jupyter=_jupyter(table),
        image=table.one_line("image"),
        disk_gb=table.whole_number("disk_gb", minimum=1, maximum=LARGEST_DISK_GB),
        packages=table.text_list("packages"),
        cloud_init=table.text("cloud_init"),
        on_start=table.text("on_start"),
        settings=_settings(table),
        engine=_engine(table),
        container=table.one_line("container"),
        cloud_init_line=table.block_lines.get("cloud_init", table.lines.get("cloud_init", 1)),
    )


def _engine(table: Table) -> Engine | None:
    engine = table.one_line("engine")
    if engine and engine not in get_args(Engine):
        raise table.error(
            "engine", f"is {engine!r}, which is not one", next=f"Write one of: {', '.join(get_args(Engine))}."
        )
    return cast("Engine", engine) if engine else None


def _settings(table: Table) -> Mapping[str, str]:
    """Return the template's own settings with their defaults."""
    settings = table.values.get("settings", {})
    if not isinstance(settings, dict):
        raise table.error("settings", "has to be a table", next="Write one `  name: default` on a line below it.")
    for name, default in settings.items():
        key = f"settings.{name}"
        if not SETTING_NAME.fullmatch(name):
            raise table.error(
                key,
                "cannot be a setting's name: a letter, then letters, digits and _, all lower case",
                next="Choose another name.",
            )
        if not isinstance(default, str) or not default.isprintable():
            raise table.error(key, "has to be one line of text", next='Put it in quotes; "" for nothing.')
    return settings


def _with_user_settings(template: Template, values: Mapping[str, str]) -> Template:
    """Return the template with the user's values in place of its defaults."""
    for key, value in values.items():
        if key not in template.settings:
            setting_names = ", ".join(template.settings)
            raise unknown_word(
                f"config.toml: the template {template.name} has no setting {key!r}",
                key,
                template.settings,
                field=f"config.toml: templates.{template.name}.{key}",
                value=value,
                next=f"Its settings: {setting_names}." if setting_names else f"It has no settings ({template.path}).",
            )
    return replace(template, settings={**template.settings, **values})


def _jupyter(table: Table) -> tuple[str, ...]:
    value = table.values.get("jupyter", False)
    if isinstance(value, bool):
        return JUPYTER_COMMAND if value else ()
    if isinstance(value, list) and value:
        return table.text_list("jupyter")
    raise table.error("jupyter", "has to be true, false or a command as a list", next="Write jupyter: true")


def _unknown_template(name: str, search: Sequence[Path]) -> InvalidRequest:
    names = template_names(search=search)
    suggestion = f", or write {search[-1] / name}.yaml" if search else ""
    return unknown_word(
        f"No template is called {name!r}",
        name,
        names,
        field="template",
        next=f"Use one of: {', '.join(names)}{suggestion}.",
    )


def opens_jupyter(name: str | None, search: Sequence[Path]) -> bool:
    """Say whether a machine of this template serves Jupyter; True where the template is not known here."""
    try:
        return bool(load_template(name or "", search=search).jupyter)
    except InvalidRequest:
        return True


def _container_image(text: str, settings: Mapping[str, str], path: Path) -> str:
    """Return the container image that `text` names, with settings filled in; empty for none.

    Raises InvalidRequest for a setting that the template does not have, for a wrong image name, and for an image
    without a fixed tag or digest: a second machine has to pull the same image as the first.
    """
    if not text:
        return ""
    image = _SETTING_IN_IMAGE.sub(lambda reference: _setting_in_image(reference[1], settings, path), text)
    reference = parse_reference(image)
    if reference is None:
        raise _image_error(
            image, path, "is not the name of a container image", f"For example: container: {_EXAMPLE_IMAGE}"
        )
    if not reference.digest and reference.tag in _MOVING_TAGS:
        raise _image_error(
            image,
            path,
            "has no fixed tag, so two machines could get different images",
            f"Name one, for example: container: {_EXAMPLE_IMAGE}",
        )
    return image


def _setting_in_image(name: str, settings: Mapping[str, str], path: Path) -> str:
    if name in settings:
        return settings[name]
    setting_names = ", ".join(settings)
    raise unknown_word(
        f"{path.name}: container uses {name!r}, which is not a setting of this template",
        name,
        settings,
        field=f"{path.name}: container",
        value=name,
        next=f"Its settings: {setting_names}." if setting_names else f"Add it under `settings:` ({path}).",
    )


def _image_error(image: str, path: Path, problem: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(
        f"{path.name}: container {image!r} {problem}.",
        field=f"{path.name}: container",
        value=image,
        next=f"{remedy} ({path})",
    )
