"""Publishes a lab's policies and limits in the ledger, and withdraws them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.config.files.user_files import read_text
from cloudgpu.config.files.yaml import parse_yaml
from cloudgpu.config.policies.find import LIMITS_NAME, check_policy_name, limits_from, policy_from
from cloudgpu.control.team.roles import payers_only
from cloudgpu.core.events.general_lines import policy_published, policy_withdrawn
from cloudgpu.core.team.rights import Published
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Draft
    from cloudgpu.ledger.log.base import View
    from cloudgpu.views.documents.automation.policies import PublishedDocument, WithdrawnDocument


def publish(session: Session, name_or_file: str, places: Sequence[Path]) -> PublishedDocument:
    """Put a policy, or `limits`, into the ledger; return what was published. `places` are where a name is looked for.

    Raises RoleNeeded, and InvalidRequest for a file that is not there or has a fault: nothing is written then.
    """
    payers_only(session, f"Publishing {name_or_file} for the lab")
    file = _file_of(name_or_file, places)
    text = read_text(file, file.name)
    assert text is not None  # noqa: S101  (for the type checker: the file was found)
    name, tz = file.stem, session.settings.tz
    _check(Published(name, text, tz, "", ""), file)
    before: list[Published] = []

    def decision(view: View) -> Sequence[Draft]:
        known = session.published().get(name)
        before.extend([known] if known else [])
        if known is not None and (known.text, known.tz) == (text, tz):
            return []
        return [policy_published(name, text, tz, session.clock(), view.head()[0])]

    written = session.ledger.decide(decision)
    return {"published": name, "file": str(file), "changed": bool(written), "replaced": bool(before and written)}


def withdraw(session: Session, name: str) -> WithdrawnDocument:
    """Take what is published under this name back; raise RoleNeeded, and InvalidRequest where nothing is."""
    payers_only(session, f"Withdrawing {name} from the lab")

    def known() -> None:
        found = session.published()
        if name not in found:
            says = f"Nothing is published as {name!r}" + did_you_mean(closest_match(name, found), ".")
            raise InvalidRequest(says, field="NAME", value=name, next="Run: cloudgpu policy ls")

    def decision(view: View) -> Sequence[Draft]:
        known()
        return [policy_withdrawn(name, session.clock(), view.head()[0])]

    known()  # before a ledger is made for nothing
    session.ledger.decide(decision)
    return {"withdrawn": name}


def _file_of(name_or_file: str, directories: Sequence[Path]) -> Path:
    """Return the file that is meant: by its path, or a policy or `limits` by name."""
    if "/" in name_or_file or name_or_file.endswith((".yaml", ".yml")):
        found = [Path(name_or_file)]
    else:
        found = [directory / f"{name_or_file}.yaml" for directory in directories]
    for file in found:
        if file.is_file():
            check_policy_name(file.stem)
            return file
    raise InvalidRequest(
        f"There is no file {' or '.join(map(str, found))}.",
        field="NAME",
        value=name_or_file,
        next="Name a policy of yours, limits, or the path of its file.",
    )


def _check(published: Published, file: Path) -> None:
    """Raise InvalidRequest, with file and line, for text that no home could read."""
    table = parse_yaml(published.text, file)
    if published.name == LIMITS_NAME:
        limits_from(table)
    else:
        policy_from(table, published.name, tz=published.tz)
