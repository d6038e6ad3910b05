"""Makes a template's parts final: settings for the shell, cloud-init text by jinja2, both checked.

`cloud_init` sees the names of VALUES and nothing else: no file, no other template, no Python. A fault is named with
the line of the template's file.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.config.files.user_files import shown
from cloudgpu.config.files.yaml import parse_yaml
from cloudgpu.config.templates.find import Template, load_template
from cloudgpu.core.model.facts import Engine
from cloudgpu.core.model.launch import BootPart, LaunchRequest
from cloudgpu.core.model.offers import Offer
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

# What `cloud_init` may use: texts, but for `gpu_count` (a number) and `settings` (the template's own, by name).
VALUES = (
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
# What a rendered text may hold. Users, SSH keys and the power state are cloudgpu's own to set.
CLOUD_CONFIG = ("apt", "bootcmd", "mounts", "package_update", "packages", "runcmd", "swap", "write_files")
HEAD = "#cloud-config\n"
DRIVER_TEMPLATE = "cuda"
_SOURCE = "<template>"  # what jinja2 calls a text without a file in a traceback


# What the engine of a cluster needs of a machine's system. The services stay off: each cluster starts its own.
ENGINE_PACKAGES = ("slurm-wlm", "munge")
ENGINE_SERVICES = ("munge", "slurmd", "slurmctld")


def engine_parts(engine: Engine) -> tuple[BootPart, ...]:
    """Return what installs an engine on a machine: its packages, and before them that their services never start."""
    if engine == "none":
        return ()
    masks = f"{HEAD}bootcmd:\n  - [systemctl, mask, {', '.join(ENGINE_SERVICES)}]\n"
    return (BootPart("packages", "\n".join(ENGINE_PACKAGES)), BootPart("cloud_init", masks))


def parts_at(template: Template, request: LaunchRequest, offer: Offer) -> tuple[BootPart, ...]:
    """Return the template's parts as a machine of this offer is given them; raise InvalidRequest for a fault in it.

    What the engine of its cluster needs comes behind them.
    """
    engine = request.cluster.engine if request.cluster is not None else "none"
    return (*rendered(template, _values(request, offer)), *engine_parts(engine))


def package_remarks(request: LaunchRequest, parts: Sequence[BootPart]) -> Iterator[str]:
    """Yield which packages have to be there already, where a provider installs none."""
    named = " ".join(part.text for part in parts if part.kind == "packages").split()
    listed = ", ".join(name for name in dict.fromkeys(named) if name not in ENGINE_PACKAGES)
    if listed:
        yield f"packages of the template are not installed there: {listed}; where one is missing, on_start may fail"
    if request.cluster is not None and request.cluster.engine == "slurm":
        yield f"Slurm has to be there already ({', '.join(ENGINE_PACKAGES)}); where it is missing, the launch fails"


def driver_parts(
    driver: Mapping[str, str],
    search: Sequence[Path],
    settings: Mapping[str, Mapping[str, str]],
    request: LaunchRequest,
    offer: Offer,
) -> tuple[BootPart, ...]:
    """Return what installs a driver on an image that has none, before the template's own parts.

    `driver` are its settings; templates are looked for in `search`, and `settings` are the user's.
    """
    mine = {**settings, DRIVER_TEMPLATE: {**driver, **settings.get(DRIVER_TEMPLATE, {})}}
    installs = load_template(DRIVER_TEMPLATE, search=search, settings=mine)
    return tuple(part for part in parts_at(installs, request, offer) if part.kind in ("packages", "cloud_init"))


def _values(request: LaunchRequest, offer: Offer) -> Mapping[str, object]:
    at = offer.available
    return {
        "provider": at.provider,
        "account": at.account,
        "region": at.region,
        "zone": at.zone,
        "instance_type": at.instance_type,
        "market": str(at.market),
        "gpu": at.accelerators[0].name if at.accelerators else "",
        "gpu_count": sum(one.count for one in at.accelerators),
        "owner": request.owner,
        "project": request.project,
        "template": request.template,
    }


def rendered(template: Template, values: Mapping[str, Any]) -> tuple[BootPart, ...]:
    """Return the template's parts as a provider carries them out; `values` has every name of VALUES but `settings`.

    Raises InvalidRequest, with `file:line` in `field`, for a `cloud_init` that is no jinja2, uses an unknown name, or
    does not become a cloud-config of the keys in CLOUD_CONFIG.
    """
    return tuple(_rendered(template, part, values) for part in template.parts())


def _rendered(template: Template, part: BootPart, values: Mapping[str, Any]) -> BootPart:
    if part.kind == "on_start":
        return BootPart(part.kind, _with_settings(template, part.text))
    return BootPart(part.kind, _cloud_init(template, values)) if part.kind == "cloud_init" else part


def _with_settings(template: Template, script: str) -> str:
    """Return the script with every setting as a variable, quoted so that no value can become a command."""
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in template.settings.items()]
    return "".join([*lines, script])


def _cloud_init(template: Template, values: Mapping[str, Any]) -> str:
    text = _text(template, {**values, "settings": dict(template.settings)})
    _check_cloud_config(template, text)
    return text if text.startswith(HEAD) else HEAD + text


def _text(template: Template, values: Mapping[str, Any]) -> str:
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
        says = f"is not valid Jinja2: {error.message}"
        raise _fault(template, error.lineno, says, next="Correct that line.") from None
    except InvalidRequest:
        raise
    except Exception as error:  # noqa: BLE001  (whatever an expression of the text can raise)
        lines = [frame.lineno or 1 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _SOURCE]
        says = f"cannot be rendered: {shown(error) or type(error).__name__}"
        raise _fault(template, lines[-1] if lines else 1, says, next="Correct that line.") from None


def _check_names(template: Template, environment: Environment) -> None:
    """Refuse every name that nobody sets, also where a condition would leave it out this time."""
    from jinja2 import meta, nodes

    tree = environment.parse(template.cloud_init)
    for other in tree.find_all((nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)):
        kind = type(other).__name__.lower().replace("fromimport", "import")
        raise _fault(
            template, other.lineno, f"uses {kind}: a template cannot build on another", next="Copy what you need of it."
        )
    unknown = meta.find_undeclared_variables(tree) - set(VALUES)
    for name in tree.find_all(nodes.Name):
        if name.name in unknown and name.ctx == "load":
            raise _unknown(template, name.lineno, name.name, VALUES, "value")
    for one in tree.find_all((nodes.Getattr, nodes.Getitem)):
        key = _setting(one)
        if key is not None and key not in template.settings:
            raise _unknown(template, one.lineno, key, template.settings, "setting of this template")


def _setting(node: nodes.Expr) -> str | None:
    """Return which setting `settings.NAME` or `settings["NAME"]` names; None for anything else."""
    from jinja2 import nodes

    whose = getattr(node, "node", None)
    if not isinstance(whose, nodes.Name) or whose.name != "settings":
        return None
    if isinstance(node, nodes.Getattr):
        return None if node.attr in ("get", "items", "keys", "values") else node.attr
    key = node.arg if isinstance(node, nodes.Getitem) else None
    return key.value if isinstance(key, nodes.Const) and isinstance(key.value, str) else None


def _unknown(template: Template, line: int, word: str, known: Iterable[str], what: str) -> InvalidRequest:
    known = tuple(known)
    says = f"uses {shown(word)}, which is not a {what}" + did_you_mean(closest_match(word, known))
    listed = f"Use one of: {', '.join(known)}." if known else "Add it under `settings:`."
    return _fault(template, line, says, value=word, next=listed)


def _check_cloud_config(template: Template, text: str) -> None:
    try:
        table = parse_yaml(text, Path("cloud_init"))
    except InvalidRequest as error:
        where, _, says = error.message.partition(": the file ")
        raise _at_rendered(template, text, int(where.rpartition(":")[2]), says.rstrip(".")) from None
    for key in table.values:
        if key not in CLOUD_CONFIG:
            says = f"sets {key}, which a template may not" + did_you_mean(closest_match(key, CLOUD_CONFIG))
            raise _at_rendered(template, text, table.lines[key], says, value=key)


def _at_rendered(template: Template, text: str, line: int, says: str, *, value: str | None = None) -> InvalidRequest:
    """Return a fault of the rendered text; its line is the source's where rendering made no line more or less."""
    same = text.count("\n") == template.cloud_init.count("\n")
    where = "" if same else f" (line {line} of the rendered text)"
    may = f"A cloud-config here may set: {', '.join(CLOUD_CONFIG)}."
    mark = "?" if says.endswith("?") else ""
    return _fault(template, line if same else 1, f"{says.rstrip('?')}{where}{mark}", value=value, next=may)


def _fault(template: Template, line: int, says: str, *, next: str, value: str | None = None) -> InvalidRequest:  # noqa: A002
    where = f"{template.path.name}:{template.cloud_init_line + line - 1}"
    end = "" if says.endswith("?") else "."
    return InvalidRequest(
        f"{where}: cloud_init {says}{end}",
        field=f"{where}: cloud_init",
        value=shown(value),
        next=f"{next} ({template.path})",
    )
