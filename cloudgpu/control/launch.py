"""Launches: from a wish to a plan, from a plan to a recorded machine, never two for one request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.agent import source as agent_source
from cloudgpu.config.templates import Template, load_template
from cloudgpu.control import saved
from cloudgpu.control.lifecycle import remove_unfit
from cloudgpu.control.look import refresh
from cloudgpu.control.observe import intent
from cloudgpu.control.reach import client_key, wait_until_ready
from cloudgpu.control.session import Session, living
from cloudgpu.control.settle import send, settle, settle_others
from cloudgpu.control.tidy import tidy
from cloudgpu.core import facts
from cloudgpu.core.facts import Attempt, Boot, LaunchRequest, Market, Offer, Want
from cloudgpu.core.names import NAME, derived_key, digest, lock_name, machine_id, made_name, near, tag_value, token
from cloudgpu.core.offers import fits, join, ranked
from cloudgpu.core.plan import LaunchPlan, launch_plan, stop_means
from cloudgpu.core.times import epoch
from cloudgpu.errors import InvalidRequest, NoCapacity, ProviderUnavailable, Unreachable
from cloudgpu.ledger.locks import hold
from cloudgpu.providers.base import HasPrices, HasTimer, Provider

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudgpu.core.events import Draft
    from cloudgpu.ledger.base import View

Row = dict[str, Any]
SEND_WITHIN = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed, checked word by word, before anything is asked of a provider."""

    want: Want
    spot: bool | None = None  # None: the market of the settings
    account: str | None = None
    provider: str | None = None
    name: str | None = None
    key: str | None = None
    new: bool = False
    template: str | None = None
    lease: timedelta | None = None
    renew_until: timedelta | None = None
    owner: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A wish made into a plan with all its offers; nothing has been asked for yet."""

    plan: LaunchPlan
    offers: tuple[Offer, ...]
    template: Template
    fingerprint: str
    existing: Row | None
    key: str | None = None
    name: str | None = None
    new: bool = False

    @property
    def lock(self) -> str:
        """The lock under which this request is launched."""
        return lock_name(self.key or derived_key(self.fingerprint, 1))


@dataclass(frozen=True, slots=True)
class Launched:
    """How `up` ended: the machine's row, and whether it was there already."""

    row: Row
    found: bool


def prepare(session: Session, wish: Wish) -> Prepared:
    """Return the plan of a wish. Asks providers what they have; launches and writes nothing.

    Raises InvalidRequest for a wish that cannot be, NoCapacity when nothing fits.
    """
    _check_words(wish)
    provider = session.provider(_account(session, wish))
    template = load_template(wish.template or session.settings.template, search=session.template_paths())
    request = _request(session, wish, provider, template)
    offers = _offers(provider, request.want)
    fingerprint = _fingerprint(request, wish.name)
    plan = launch_plan(
        request,
        offers,
        left_out=tuple(sorted({part.kind for part in template.parts()} - provider.runs_parts)),
        guards=_guards(provider),
        now=session.clock().replace(microsecond=0),
    )
    existing = None if wish.new else _living_of(session.ledger, wish.key, fingerprint)
    return Prepared(plan, tuple(offers), template, fingerprint, existing, wish.key, wish.name, wish.new)


def launch(session: Session, prepared: Prepared, *, wait: bool = True) -> Launched:
    """Carry out a plan and return the machine, one that was already there included.

    Holds the request's lock until the attempt is settled: a second `up` of the same request waits for that and
    returns the same machine. Raises what the provider raised, LaunchUncertain where a later `up` has to settle it,
    Unreachable for a new machine that ended while starting (it is removed then).
    """
    session.check_launchable()
    with hold(session.home.locks, prepared.lock, wait=900):
        tidy(session)
        row, found = _found_or_settled(session, prepared)
        if row is None:
            settle_others(session)
            row = _launch_anew(session, prepared)
    if wait and (not found or row["state"] in ("running", "pending")):
        row = _until_ready(session, row, found=found)
    tidy(session)
    return Launched(row, found)


def _found_or_settled(session: Session, prepared: Prepared) -> tuple[Row | None, bool]:
    """Return the living machine of this request and whether it was there before an interrupted launch."""
    row = _unsettled(session, prepared)
    if row is not None:
        row = settle(session, row, deadline=session.clock() + SEND_WITHIN)
        return (row if row["ended"] is None else None), False
    if prepared.new:
        return None, False
    row = _living_of(session.ledger, prepared.key, prepared.fingerprint)
    if row is not None:
        row = refresh(session, row)  # what ended unseen is no machine to return
    if row is None or row["ended"] is not None:
        return None, False
    return row, True


def _until_ready(session: Session, row: Row, *, found: bool) -> Row:
    try:
        return wait_until_ready(session, row)
    except Unreachable as fault:
        if not found:
            remove_unfit(session, row, fault)
        raise


def _launch_anew(session: Session, prepared: Prepared) -> Row:
    """Try the offers in order; each attempt is recorded before it is sent and settled before the next."""
    refusal: NoCapacity | None = None
    for offer in prepared.offers:
        attempt = _record(session, prepared, offer)
        session.tell(f"launching {attempt.request.name} on {offer.available.provider} ({offer.available.zone})")
        try:
            send(session, attempt, deadline=session.clock() + SEND_WITHIN)
        except NoCapacity as fault:
            session.tell(f"{offer.available.zone}: {fault.message}")
            refusal = fault
            continue
        row = session.ledger.machine(attempt.machine)
        if row is None:
            raise ProviderUnavailable("The ledger lost the machine that was just launched.", field="ledger")
        return row
    raise refusal or NoCapacity("Nothing that fits is offered.", field="offer")


def _record(session: Session, prepared: Prepared, offer: Offer) -> Attempt:
    """Save the call and write the intent, in this order, and return the attempt that is to be sent."""
    boot = _boot(session, prepared)
    made: list[Attempt] = []

    def decision(view: View) -> Sequence[Draft]:
        rows = view.machines()
        key, number = _key(prepared, rows)
        name = _name(prepared, key, rows)
        request = replace(prepared.plan.request, key=key, name=name)
        attempt = _attempt(session, view, request, offer, number, boot)
        saved.save(session.home.attempts, attempt)
        made.append(attempt)
        return [intent(attempt, prepared.fingerprint, stop_means(offer), session.clock())]

    try:
        session.ledger.decide(decision)
    except BaseException:
        for attempt in made:
            if (session.ledger.machine(attempt.machine) or {}).get("token") != attempt.token:
                saved.forget(session.home.attempts, attempt.token)
        raise
    return made[0]


def _attempt(
    session: Session, view: View, request: LaunchRequest, offer: Offer, number: int, boot: Boot
) -> Attempt:
    now = session.clock()
    expires = now.replace(microsecond=0) + timedelta(seconds=request.lease_s)
    renew_until = now.replace(microsecond=0) + timedelta(seconds=request.renew_s)
    machine = machine_id(view.id, request.key)
    tags = {
        facts.TAG_ID: machine,
        facts.TAG_NAME: tag_value(request.name),
        facts.TAG_LEDGER: view.id,
        facts.TAG_SEQ: str(view.head()[0]),
        facts.TAG_KEY: request.key,
        facts.TAG_OWNER: tag_value(request.owner),
        facts.TAG_PROJECT: tag_value(request.project),
        facts.TAG_POLICY: tag_value(request.policy),
        facts.TAG_EXPIRES: epoch(expires),
        facts.TAG_RENEW_UNTIL: epoch(renew_until),
    }
    return Attempt(
        token=token(view.id, request.key, number),
        number=number,
        machine=machine,
        ledger=view.id,
        request=request,
        offer=offer,
        tags=tags,
        boot=boot,
        made_at=now,
        expires=expires,
        renew_until=renew_until,
    )


def _boot(session: Session, prepared: Prepared) -> Boot:
    from cloudgpu.access.keys import new_host_key

    host = new_host_key()
    template = prepared.template
    return Boot(
        template=template.name,
        parts=template.parts(),
        jupyter=template.jupyter,
        agent_source=agent_source(),
        user="",
        client_public_keys=(client_key(session).public_line,),
        host_public_key=host.public_line,
        host_private_key=host.private_pem,
    )


def _key(prepared: Prepared, rows: list[Row]) -> tuple[str, int]:
    """Return the launch key and the number of the attempt: a new generation after a machine that lived."""
    if prepared.key is not None:
        return prepared.key, _next_attempt(prepared.key, rows)
    for generation in range(1, len(rows) + 2):
        key = derived_key(prepared.fingerprint, generation)
        if not any(row["key"] == key and row["attempt"] in ("made", "open") for row in rows):
            return key, _next_attempt(key, rows)
    message = "more generations than machines"
    raise AssertionError(message)


def _next_attempt(key: str, rows: list[Row]) -> int:
    return max((row["number"] for row in rows if row["key"] == key), default=0) + 1


def _name(prepared: Prepared, key: str, rows: list[Row]) -> str:
    taken = {row["name"] for row in living(rows) if row["key"] != key}
    if prepared.name is None:
        return made_name(key, taken)
    if prepared.name in taken:
        raise InvalidRequest(
            f"A machine called {prepared.name} is already there, launched by another request.",
            field="--name",
            value=prepared.name,
            next=f"Choose another --name, use it as it is (cloudgpu show {prepared.name}), "
            f"or end it first: cloudgpu down {prepared.name}",
        )
    return prepared.name


def _living_of(view: View, key: str | None, fingerprint: str) -> Row | None:
    """Return the living machine of this request; raise InvalidRequest when `key` cannot be used for it."""
    rows = view.machines()
    if key is None:
        same = [row for row in living(rows) if row["request"] == fingerprint and row["attempt"] == "made"]
        return same[-1] if same else None
    for row in rows:
        if row["key"] != key or row["attempt"] == "refused" or row["attempt"] == "void":
            continue
        if row["ended"] is not None:
            raise InvalidRequest(
                f"The machine of --key {key} ended at {row['ended']}; a key launches one machine, once.",
                field="--key",
                value=key,
                next="Use another --key for a new machine.",
            )
        if row["request"] != fingerprint:
            raise InvalidRequest(
                f"--key {key} belongs to {row['name']}, which was launched by a different request.",
                field="--key",
                value=key,
                next=f"Repeat that request as it was, or use another --key (cloudgpu show {row['name']}).",
            )
        return row if row["attempt"] == "made" else None
    return None


def _unsettled(session: Session, prepared: Prepared) -> Row | None:
    """Return an unfinished attempt of this very request; its process is dead, since we hold its lock."""
    for row in living(session.ledger.machines()):
        if row["attempt"] == "open" and lock_name(row["key"]) == prepared.lock:
            return row
    return None


def _check_words(wish: Wish) -> None:
    if wish.name is not None and not NAME.fullmatch(wish.name):
        raise InvalidRequest(
            f"{wish.name!r} cannot be a machine's name: a name is 1 to 40 characters, a letter first, then letters, "
            "digits and hyphens, all lower case.",
            field="--name",
            value=wish.name,
            next="Choose a name like brave-otter, or leave it out.",
        )
    if wish.key is not None and (tag_value(wish.key) != wish.key or not wish.key or wish.key.startswith("auto-")):
        raise InvalidRequest(
            f"{wish.key!r} cannot be a launch key: use 1 to 63 of a-z, 0-9, _ and -, not beginning with auto-.",
            field="--key",
            value=wish.key,
            next="For example --key experiment-7",
        )
    if wish.new and wish.key is not None:
        raise InvalidRequest(
            "--new and --key contradict each other: a key stands for one machine.",
            field="--new",
            value=wish.key,
            next="Leave one of them out.",
        )


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
    kind = wish.provider or session.settings.provider
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
            value=str(renew),
            next="Make --renew-until at least as long as --lease.",
        )
    market = session.settings.market if wish.spot is None else Market.SPOT if wish.spot else Market.ON_DEMAND
    return LaunchRequest(
        key=wish.key or "",
        name=wish.name or "",
        provider=provider.kind,
        account=provider.account,
        want=replace(wish.want, market=Market(market)),
        template=template.name,
        owner=wish.owner or session.settings.owner,
        project=wish.project or session.settings.project,
        policy="default",
        lease_s=int(lease.total_seconds()),
        renew_s=int(renew.total_seconds()),
    )


def _offers(provider: Provider, want: Want) -> list[Offer]:
    available = [item for item in provider.available(want) if fits(item, want)]
    prices = provider.prices(available) if isinstance(provider, HasPrices) else [None] * len(available)
    priced, unpriced = join(available, prices)
    offers = ranked(priced, want)
    if offers:
        return offers
    raise _nothing_fits(provider, want, priced, bool(unpriced))


def _nothing_fits(provider: Provider, want: Want, priced: list[Offer], unpriced: bool) -> NoCapacity:
    if priced:
        cheapest = min(offer.price.per_hour for offer in priced)
        return NoCapacity(
            f"Nothing at or under {want.max_price.text(4) if want.max_price else ''} an hour; the cheapest that fits "
            f"costs {cheapest.text(4)}.",
            field="--max-price",
            value=str(want.max_price.dollars) if want.max_price else None,
            next=f"Allow --max-price {cheapest.dollars} or more.",
        )
    if unpriced:
        return NoCapacity(
            "What fits has no known price, and cloudgpu launches nothing that it cannot price.",
            field="price",
            next="Set the price in config.toml, or choose something else.",
        )
    wishes = _wishes(want)
    field, value = wishes[0] if wishes else ("--provider", provider.kind)
    return NoCapacity(
        f"{provider.kind} ({provider.account}) has nothing with {' '.join(f'{k} {v}' for k, v in wishes)}.".replace(
            " with .", " to offer."
        ),
        field=field,
        value=value,
        next="Leave that wish out, or choose another --provider.",
    )


def _wishes(want: Want) -> list[tuple[str, str]]:
    named = {
        "--gpu": want.gpu and f"{want.gpu}:{want.gpu_count}",
        "--instance-type": want.instance_type,
        "--region": want.region,
        "--zone": want.zone,
    }
    return [(key, value) for key, value in named.items() if value]


def _guards(provider: Provider) -> tuple[str, ...]:
    guards = ["the agent on the machine (lease)"]
    if isinstance(provider, HasTimer):
        guards.append("a timer on the provider's side (renew-until)")
    return tuple(guards)


def _fingerprint(request: LaunchRequest, name: str | None) -> str:
    """Return what makes two requests the same: everything but how long the machine may live."""
    want = request.want
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
    )
