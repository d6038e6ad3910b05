"""Renders a template's parts: settings as shell variables, the cloud-init text by jinja2, both checked.

`cloud_init` may use the names in VALUE_NAMES and nothing else: no file, no other template, no Python. An error names
the line of the template's file.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.config.files.user_files import shown
from cloudgpu.config.files.yaml import YamlFileError, parse_yaml
from cloudgpu.config.templates.find import Template, load_template
from cloudgpu.core.model.facts import Engine
from cloudgpu.core.model.launch import BootPart, LaunchRequest
from cloudgpu.core.model.offers import Offer
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

# Names that `cloud_init` may use. All are texts but `gpu_count` (a number) and `settings` (a dict of texts).
VALUE_NAMES = (
    "provider",
    "account",
    "region",
    "zone",
    "instance_type",
    "market",
    "gpu",
    "gpu_count",
    "owner",
    "project",
    "template",
    "settings",
)
# Keys that a rendered cloud-config may have. Users, SSH keys and the power state are set by cloudgpu.
CLOUD_CONFIG_KEYS = ("apt", "bootcmd", "mounts", "package_update", "packages", "runcmd", "swap", "write_files")
CLOUD_CONFIG_HEADER = "#cloud-config\n"
DRIVER_TEMPLATE = "cuda"
_JINJA_FILE_NAME = "<template>"  # jinja2's name in a traceback for a text that has no file


# Debian packages of Slurm and their services, which are masked: each cluster starts its own.
ENGINE_PACKAGES = ("slurm-wlm", "munge")
ENGINE_SERVICES = ("munge", "slurmd", "slurmctld")


def engine_parts(engine: Engine) -> tuple[BootPart, ...]:
    """Return the parts that install a cluster's engine: its packages, and a cloud-init text that masks its services."""
    if engine == "none":
        return ()
    mask_services = f"{CLOUD_CONFIG_HEADER}bootcmd:\n  - [systemctl, mask, {', '.join(ENGINE_SERVICES)}]\n"
    return (BootPart("packages", "\n".join(ENGINE_PACKAGES)), BootPart("cloud_init", mask_services))


def parts_for_offer(template: Template, request: LaunchRequest, offer: Offer) -> tuple[BootPart, ...]:
    """Return the template's parts for a machine of this offer, then those that its cluster's engine needs.

    Raises InvalidRequest for an error in the template.
    """
    engine = request.cluster.engine if request.cluster is not None else "none"
    return (*render_parts(template, _values(request, offer)), *engine_parts(engine))


def package_remarks(request: LaunchRequest, parts: Sequence[BootPart]) -> Iterator[str]:
    """Yield remarks on packages that have to be installed already, for a provider that installs none."""
    packages = " ".join(part.text for part in parts if part.kind == "packages").split()
    needed = ", ".join(name for name in dict.fromkeys(packages) if name not in ENGINE_PACKAGES)
    if needed:
        yield f"packages of the template are not installed there: {needed}; where one is missing, on_start may fail"
    if request.cluster is not None and request.cluster.engine == "slurm":
        yield f"Slurm has to be there already ({', '.join(ENGINE_PACKAGES)}); where it is missing, the launch fails"


def driver_parts(
    driver: Mapping[str, str],
    search: Sequence[Path],
    settings: Mapping[str, Mapping[str, str]],
    request: LaunchRequest,
    offer: Offer,
) -> tuple[BootPart, ...]:
    """Return the parts that install a driver on an image without one; they come before the template's own.

    `driver` has the settings of the template `cuda`, which `settings`, the user's for each template, override.
    """
    merged_settings = {**settings, DRIVER_TEMPLATE: {**driver, **settings.get(DRIVER_TEMPLATE, {})}}
    template = load_template(DRIVER_TEMPLATE, search=search, settings=merged_settings)
    return tuple(part for part in parts_for_offer(template, request, offer) if part.kind in ("packages", "cloud_init"))


def _values(request: LaunchRequest, offer: Offer) -> Mapping[str, object]:
    configuration = offer.configuration
    return {
        "provider": configuration.provider,
        "account": configuration.account,
        "region": configuration.region,
        "zone": configuration.zone,
        "instance_type": configuration.instance_type,
        "market": str(configuration.market),
        "gpu": configuration.accelerators[0].name if configuration.accelerators else "",
        "gpu_count": sum(accelerator.count for accelerator in configuration.accelerators),
        "owner": request.owner,
        "project": request.project,
        "template": request.template,
    }


def render_parts(template: Template, values: Mapping[str, Any]) -> tuple[BootPart, ...]:
    """Return the template's parts for a provider; `values` has every name of VALUE_NAMES but `settings`.

    Raises InvalidRequest, with `file:line` in `field`, for a `cloud_init` that is not valid jinja2, uses an unknown
    name, or does not become a cloud-config of the keys in CLOUD_CONFIG_KEYS.
    """
    return tuple(_render_part(template, part, values) for part in template.parts())


def _render_part(template: Template, part: BootPart, values: Mapping[str, Any]) -> BootPart:
    if part.kind == "on_start":
        return BootPart(part.kind, _with_settings(template, part.text))
    return BootPart(part.kind, _cloud_init(template, values)) if part.kind == "cloud_init" else part


def _with_settings(template: Template, script: str) -> str:
    """Return the script with every setting as a variable, quoted so that no value can become a command."""
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in template.settings.items()]
    return "".join([*lines, script])


def _cloud_init(template: Template, values: Mapping[str, Any]) -> str:
    text = _render_cloud_init(template, {**values, "settings": dict(template.settings)})
    _check_cloud_config(template, text)
    return text if text.startswith(CLOUD_CONFIG_HEADER) else CLOUD_CONFIG_HEADER + text


def _render_cloud_init(template: Template, values: Mapping[str, Any]) -> str:
    from jinja2 import StrictUndefined, TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["sh"] = lambda value: shlex.quote(str(value))
    try:
        _check_names(template, environment)
        return environment.from_string(template.cloud_init).render(values)
    except TemplateSyntaxError as error:
        raise _cloud_init_error(
            template, error.lineno, f"is not valid Jinja2: {error.message}", next="Correct that line."
        ) from None
    except InvalidRequest:
        raise
    except Exception as error:  # noqa: BLE001  (whatever an expression of the text can raise)
        lines = [
            frame.lineno or 1
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == _JINJA_FILE_NAME
        ]
        problem = f"cannot be rendered: {shown(error) or type(error).__name__}"
        raise _cloud_init_error(template, lines[-1] if lines else 1, problem, next="Correct that line.") from None


def _check_names(template: Template, environment: Environment) -> None:
    """Raise InvalidRequest for every unknown name, even if a condition skips it in this rendering."""
    from jinja2 import meta, nodes

    tree = environment.parse(template.cloud_init)
    for node in tree.find_all((nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)):
        kind = type(node).__name__.lower().replace("fromimport", "import")
        raise _cloud_init_error(
            template, node.lineno, f"uses {kind}: a template cannot build on another", next="Copy what you need of it."
        )
    unknown = meta.find_undeclared_variables(tree) - set(VALUE_NAMES)
    for name in tree.find_all(nodes.Name):
        if name.name in unknown and name.ctx == "load":
            raise _unknown_name(template, name.lineno, name.name, VALUE_NAMES, "value")
    for access in tree.find_all((nodes.Getattr, nodes.Getitem)):
        key = _referenced_setting(access)
        if key is not None and key not in template.settings:
            raise _unknown_name(template, access.lineno, key, template.settings, "setting of this template")


def _referenced_setting(node: nodes.Expr) -> str | None:
    """Return which setting `settings.NAME` or `settings["NAME"]` names; None for anything else."""
    from jinja2 import nodes

    target = getattr(node, "node", None)
    if not isinstance(target, nodes.Name) or target.name != "settings":
        return None
    if isinstance(node, nodes.Getattr):
        return None if node.attr in ("get", "items", "keys", "values") else node.attr
    key = node.arg if isinstance(node, nodes.Getitem) else None
    return key.value if isinstance(key, nodes.Const) and isinstance(key.value, str) else None


def _unknown_name(template: Template, line: int, name: str, known_names: Iterable[str], kind: str) -> InvalidRequest:
    known_names = tuple(known_names)
    problem = f"uses {shown(name)}, which is not a {kind}" + did_you_mean(closest_match(name, known_names))
    remedy = f"Use one of: {', '.join(known_names)}." if known_names else "Add it under `settings:`."
    return _cloud_init_error(template, line, problem, value=name, next=remedy)


def _check_cloud_config(template: Template, text: str) -> None:
    try:
        table = parse_yaml(text, Path("cloud_init"))
    except YamlFileError as error:
        raise _rendered_text_error(template, text, error.line, error.problem) from None
    for key in table.values:
        if key not in CLOUD_CONFIG_KEYS:
            problem = f"sets {key}, which a template may not" + did_you_mean(closest_match(key, CLOUD_CONFIG_KEYS))
            raise _rendered_text_error(template, text, table.lines[key], problem, value=key)


def _rendered_text_error(
    template: Template, text: str, line: int, problem: str, *, value: str | None = None
) -> InvalidRequest:
    """Return an error in the rendered text, with the line of the source if both have equally many lines."""
    is_same_line = text.count("\n") == template.cloud_init.count("\n")
    location = "" if is_same_line else f" (line {line} of the rendered text)"
    remedy = f"A cloud-config here may set: {', '.join(CLOUD_CONFIG_KEYS)}."
    end = "?" if problem.endswith("?") else ""
    return _cloud_init_error(
        template, line if is_same_line else 1, f"{problem.rstrip('?')}{location}{end}", value=value, next=remedy
    )


def _cloud_init_error(
    template: Template,
    line: int,
    problem: str,
    *,
    next: str,  # noqa: A002
    value: str | None = None,
) -> InvalidRequest:
    where = f"{template.path.name}:{template.cloud_init_line + line - 1}"
    end = "" if problem.endswith("?") else "."
    return InvalidRequest(
        f"{where}: cloud_init {problem}{end}",
        field=f"{where}: cloud_init",
        value=shown(value),
        next=f"{next} ({template.path})",
    )
