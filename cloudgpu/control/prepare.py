"""Makes a wish into a plan: words checked, account and template found, offers priced and ranked. Nothing is done."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudgpu.config.templates import Template
from cloudgpu.control.extras import extra
from cloudgpu.control.offering import Exact, first_exact, offers_or_known, tied
from cloudgpu.control.session import Session, living
from cloudgpu.control.setups import check_setup
from cloudgpu.control.templates import find_template, parts_at
from cloudgpu.control.words import Wish, check_words
from cloudgpu.core.facts import LaunchRequest, Market, Offer, Setup
from cloudgpu.core.names import derived_key, digest, lock_name, near
from cloudgpu.core.plan import LaunchPlan, launch_plan
from cloudgpu.core.times import duration_text, minute
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.base import HasTimer, Provider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.ledger.base import View

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A wish made into a plan with all its offers; nothing has been asked for yet."""

    plan: LaunchPlan
    offers: tuple[Offer, ...]  # all that fit, in the order of trying
    template: Template
    fingerprint: str
    existing: Row | None
    key: str | None = None
    name: str | None = None
    new: bool = False
    exact: Exact | None = None  # what was looked up for the plan's offer

    @property
    def lock(self) -> str:
        """The lock under which this request is launched."""
        return lock_name(self.key or derived_key(self.fingerprint, 1))


def prepare(session: Session, wish: Wish) -> Prepared:
    """Return the plan of a wish. Asks providers what they have; launches and writes nothing.

    Raises InvalidRequest for a wish that cannot be, NoCapacity when nothing fits, QuotaExceeded when the account may
    not run what does.
    """
    check_words(wish)
    provider = session.provider(_account(session, wish))
    template = find_template(session, wish.template)
    request = _request(session, wish, provider, template)
    fingerprint = _fingerprint(request, wish.name)
    existing = None if wish.new else living_of(session.ledger, wish.key, fingerprint)
    there = existing or unsettled_of(session.ledger, lock_name(wish.key or derived_key(fingerprint, 1)))
    if there is None:
        request = tied(session, provider, request)
    offers = offers_or_known(session, provider, request.want, there)
    first = Exact(offers[0]) if there else first_exact(session, provider, request, offers)
    return Prepared(
        plan=_plan(session, provider, template, request, offers, first),
        offers=tuple(offers),
        template=template,
        fingerprint=fingerprint,
        existing=existing,
        key=wish.key,
        name=wish.name,
        new=wish.new,
        exact=None if there else first,
    )


def _plan(
    session: Session,
    provider: Provider,
    template: Template,
    request: LaunchRequest,
    offers: Sequence[Offer],
    first: Exact,
) -> LaunchPlan:
    """Return the plan whose first offer is `first`, followed by those that come after it."""
    resolved, item = first.resolved, first.offer.available
    parts = parts_at(template, request, first.offer)  # a fault in it is said before anything is done
    left_out = {part.kind for part in parts} - provider.runs_parts
    return launch_plan(
        request,
        offers[offers.index(first.offer) :],
        left_out=tuple(sorted(left_out | set(resolved.left_out))),
        guards=resolved.guards or _guards(provider),
        now=session.clock().replace(microsecond=0),
        extras=tuple(extra(item.provider, item.region, each) for each in resolved.beside),
        remarks=(*first.passed_over, *resolved.remarks),
    )


def _guards(provider: Provider) -> tuple[str, ...]:
    guards = ["the agent on the machine (lease)"]
    if isinstance(provider, HasTimer):
        guards.append("a timer on the provider's side (renew-until)")
    return tuple(guards)


def living_of(view: View, key: str | None, fingerprint: str) -> Row | None:
    """Return the living machine of this request; raise InvalidRequest when `key` cannot be used for it."""
    rows = view.machines()
    if key is None:
        same = [row for row in living(rows) if _is_of(row, fingerprint) and row["attempt"] == "made"]
        return same[-1] if same else None
    for row in rows:
        if row["key"] != key or row["attempt"] == "refused" or row["attempt"] == "void":
            continue
        if row["ended"] is not None:
            raise InvalidRequest(
                f"The machine of --key {key} ended at {minute(row['ended'])}; a key launches one machine, once.",
                field="--key",
                value=key,
                next="Use another --key for a new machine.",
            )
        if row["request"] not in (fingerprint, key):  # one that was taken up without its launch bears its key
            raise InvalidRequest(
                f"--key {key} belongs to {row['name']}, which was launched by a different request.",
                field="--key",
                value=key,
                next=f"Repeat that request as it was, or use another --key (cloudgpu show {row['name']}).",
            )
        return row if row["attempt"] == "made" else None
    return None


def _is_of(row: Row, fingerprint: str) -> bool:
    """Say whether a row is of this request: by its fingerprint, or by its key where its launch is not known here."""
    if row["request"] == row["key"]:
        return lock_name(row["key"]) == lock_name(derived_key(fingerprint, 1))
    return bool(row["request"] == fingerprint)


def unsettled_of(view: View, lock: str) -> Row | None:
    """Return the unfinished attempt that is launched under this lock, if there is one."""
    rows = (row for row in living(view.machines()) if row["attempt"] == "open" and lock_name(row["key"]) == lock)
    return next(rows, None)


def _account(session: Session, wish: Wish) -> str:
    """Return the account's name: the one that was named, else the only one of the provider."""
    accounts = session.settings.accounts
    if wish.account is not None:
        if wish.account not in accounts:
            raise session.unknown_account(wish.account)
        kind = accounts[wish.account].provider
        if wish.provider not in (None, kind):
            raise InvalidRequest(
                f"Account {wish.account} belongs to {kind}, not to {wish.provider}.",
                field="--account",
                value=wish.account,
                next="Leave --provider out, or name another --account.",
            )
        return wish.account
    kind = session.settings.provider if wish.provider is None else wish.provider
    of_kind = [name for name, account in accounts.items() if account.provider == kind]
    if len(of_kind) == 1:
        return of_kind[0]
    if session.settings.account in of_kind:
        return str(session.settings.account)
    if of_kind:
        raise InvalidRequest(
            f"There are {len(of_kind)} accounts of {kind}.",
            field="--account",
            value=None,
            next=f"Name one: --account {' | '.join(sorted(of_kind))}",
        )
    raise _unknown_provider(kind)


def _unknown_provider(kind: str) -> InvalidRequest:
    from cloudgpu.providers.registry import kinds, load

    load(kind)  # says what is known, and what an extra would add
    meant = near(kind, kinds())
    return InvalidRequest(
        f"No account of {kind!r} is configured" + (f"; did you mean {meant!r}?" if meant else "."),
        field="--provider",
        value=kind,
        next=f'Add an [accounts.NAME] table with provider = "{kind}" to config.toml.',
    )


def _request(session: Session, wish: Wish, provider: Provider, template: Template) -> LaunchRequest:
    lease = wish.lease or session.settings.lease
    renew = wish.renew_until or max(session.settings.renew_until, lease)
    if renew < lease:
        raise InvalidRequest(
            "--renew-until is shorter than the lease: a machine could not live to the end of its lease.",
            field="--renew-until",
            value=duration_text(renew),
            next="Make --renew-until at least as long as --lease.",
        )
    market = Market(session.settings.market) if wish.spot is None else Market.SPOT if wish.spot else Market.ON_DEMAND
    check_setup(provider, wish.setup, market, or_on_demand=wish.want.or_on_demand)
    return LaunchRequest(
        key=wish.key or "",
        name=wish.name or "",
        provider=provider.kind,
        account=provider.account,
        want=replace(wish.want, market=market, persistent=wish.setup.persistent),
        template=template.name,
        owner=wish.owner.strip() if wish.owner else session.settings.owner,
        project=wish.project.strip() if wish.project else session.settings.project,
        policy="default",
        lease_s=int(lease.total_seconds()),
        renew_s=int(renew.total_seconds()),
        setup=_setup(wish.setup, template),
    )


def _setup(wished: Setup, template: Template) -> Setup:
    """Return the setup with what the template says where the user said nothing."""
    return replace(wished, image=wished.image or template.image or None, disk_gb=wished.disk_gb or template.disk_gb)


def _fingerprint(request: LaunchRequest, name: str | None) -> str:
    """Return what makes two requests the same: everything but how long the machine may live and who may reach it."""
    want, setup = request.want, request.setup
    return digest(
        request.provider,
        request.account,
        want.gpu or "",
        str(want.gpu_count),
        want.instance_type or "",
        want.region or "",
        want.zone or "",
        str(want.market),
        request.template,
        request.owner,
        request.project,
        name or "",
        json.dumps(asdict(replace(setup, network=replace(setup.network, ssh_from=()))), sort_keys=True),
    )
