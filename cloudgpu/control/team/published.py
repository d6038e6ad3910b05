"""Publishes a lab's policies and limits in the ledger, and withdraws them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.config.files.user_files import read_text
from cloudgpu.config.files.yaml import parse_yaml
from cloudgpu.config.policies.find import check_policy_name, rules_from
from cloudgpu.control.team.roles import require_payer_role
from cloudgpu.core.events.general_events import policy_published, policy_withdrawn
from cloudgpu.core.team.rights import Published
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Draft
    from cloudgpu.ledger.log.base import View
    from cloudgpu.views.documents.automation.policies import PublishedDocument, WithdrawnDocument


def publish(session: Session, name_or_file: str, directories: Sequence[Path]) -> PublishedDocument:
    """Put a policy, or `limits`, into the ledger; return what was published.

    A name is looked for in `directories`. Raises RoleNeeded, and InvalidRequest for a missing or invalid file.
    """
    require_payer_role(session, f"Publishing {name_or_file} for the lab")
    file = _file_of(name_or_file, directories)
    text = read_text(file, file.name)
    assert text is not None  # noqa: S101  (for the type checker: the file was found)
    name, tz = file.stem, session.settings.tz
    rules_from(parse_yaml(text, file), name, tz=tz)
    replaced: list[Published] = []

    def build_events(view: View) -> Sequence[Draft]:
        published = session.published_policies().get(name)
        replaced.extend([published] if published else [])
        if published is not None and (published.text, published.tz) == (text, tz):
            return []
        return [policy_published(name, text, tz, session.clock(), view.head()[0])]

    appended = session.ledger.decide(build_events)
    return {"published": name, "file": str(file), "changed": bool(appended), "replaced": bool(replaced and appended)}


def withdraw(session: Session, name: str) -> WithdrawnDocument:
    """Withdraw what is published under this name; raise RoleNeeded, and InvalidRequest where nothing is."""
    require_payer_role(session, f"Withdrawing {name} from the lab")

    def check_published() -> None:
        published = session.published_policies()
        if name not in published:
            message = f"Nothing is published as {name!r}" + did_you_mean(closest_match(name, published), ".")
            raise InvalidRequest(message, field="NAME", value=name, next="Run: cloudgpu policy ls")

    def build_events(view: View) -> Sequence[Draft]:
        check_published()
        return [policy_withdrawn(name, session.clock(), view.head()[0])]

    check_published()  # before `decide`, which would create a ledger
    session.ledger.decide(build_events)
    return {"withdrawn": name}


def _file_of(name_or_file: str, directories: Sequence[Path]) -> Path:
    """Return the file of a path, or of a policy or `limits` by name."""
    if "/" in name_or_file or name_or_file.endswith((".yaml", ".yml")):
        files = [Path(name_or_file)]
    else:
        files = [directory / f"{name_or_file}.yaml" for directory in directories]
    for file in files:
        if file.is_file():
            check_policy_name(file.stem)
            return file
    raise InvalidRequest(
        f"There is no file {' or '.join(map(str, files))}.",
        field="NAME",
        value=name_or_file,
        next="Name a policy of yours, limits, or the path of its file.",
    )
