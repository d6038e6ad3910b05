"""Which accounts an answer is about, in words: what was not asked may have machines that nobody here knows of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.machines import DownDocument, LsDocument
    from cloudgpu.views.documents.machines.storage import OrphansDocument
    from cloudgpu.views.documents.parts import AccountAnswer, AccountAnswers
    from cloudgpu.views.documents.setup.ledger import VerifyDocument

HERE = ("local", "ssh")
NO_CLOUD = "No cloud was queried: config.toml names none, and there are no usable credentials."


def account_lines(document: AccountAnswers | LsDocument | DownDocument | OrphansDocument | VerifyDocument) -> list[str]:
    """Return who was asked, who could not be, and that no cloud was, each as a line or more of a terminal."""
    from cloudgpu.cli.render import paragraph

    names = [_name(one) for one in document["queried"]]
    lines = [f"Asked: {', '.join(names)}."] if names else []
    lines += [f"Not asked: {gap['scope']}, whose credentials here do not open it: {gap['why']}"
              for gap in document["not_queried"]]  # fmt: skip
    if all(one["provider"] in HERE for one in document["queried"]):
        lines.append(NO_CLOUD)
    return [paragraph(line) for line in lines]


def _name(one: AccountAnswer) -> str:
    return str(one["account"]) if one["account"] == one["provider"] else f"{one['account']} ({one['provider']})"
