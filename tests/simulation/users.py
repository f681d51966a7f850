"""Programs and people who ask: they submit, ask twice, cancel, retry, redrive and resolve.

They remember every answer they got.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from gesta.domain.ids import idempotency_key
from gesta.engine.request import Request
from gesta.errors import Busy, Conflict, GestaError, NotFound, Refused, StoreError
from gesta.security.subject_keys import Ref
from tests.simulation.process import Process
from tests.simulation.provider import CREDENTIAL, PAYLOADS, Encrypted

if TYPE_CHECKING:
    from tests.simulation.world import World

TENANTS = ("default", "acme", "zeta")
PEOPLE = ("ann", "bob")
#: What may be answered to anybody at any time.
EXPECTED = (StoreError, Refused, Busy)


@dataclass(frozen=True)
class Acked:
    """A submit that was answered: created or duplicate."""

    flow: str
    tenant: str
    id: str
    key: str | None
    text: str
    verdict: str


class Users:
    def __init__(self, world: World) -> None:
        self._world = world
        self.acked: list[Acked] = []
        #: How often a person forced a new intent, unknown or not.
        self.forced: Counter[str] = Counter()
        self._busy: dict[asyncio.Task[Any], Process] = {}
        #: Requests that two decided about at the same time.
        self.inline: set[str] = set()
        self._decided: Counter[str] = Counter()
        #: Keys in the vault that an acknowledged erasure destroyed.
        self.destroyed: set[Ref] = set()
        #: No user does anything any more.
        self.is_done = False
        self._wishes: list[tuple[type[Any], dict[str, Any], str]] = []

    def plan(self) -> None:
        """Spread everything that is asked for over the time of faults."""
        world, options = self._world, self._world.options
        acts = (
            (self._submit, options.submits),
            (self._decide_something, options.decisions),
            (self._erase, options.erases),
        )
        for act, times in acts:
            for _ in range(times):
                world.later(world.random.random() * options.seconds, self._begin, act)

    def look_after(self) -> None:
        """A person goes through what failed or is unknown, when everything has come to
        rest.
        """
        for view in list(self._world.database.read_model._rows.values()):
            state = view.state
            if state.status != "completed" and self._world.random.random() < 0.6:
                decide = self._world.random.choice(
                    [self._resolve, self._redrive, self._redrive, self._cancel]
                )
                self._begin(partial(self._decide, state.flow, state.tenant, state.id, decide))

    def fix_credentials(self) -> None:
        """A person has fixed what the provider refused, and says so as soon as there is a
        process to tell.
        """
        if self.is_done:
            return
        if any(process.is_up for process in self._world.processes):
            self._begin(self._fix_credentials)
        else:
            self._world.later(1.0, self.fix_credentials)

    async def _fix_credentials(self, process: Process) -> None:
        for tenant in TENANTS:
            with suppress(NotFound):
                await process.engine.admin.resume(tenant=tenant, credential=CREDENTIAL)
                self._world.hit("credential_fixed")

    def _begin(self, act: Any) -> None:
        up = [process for process in self._world.processes if process.is_up]
        if not up:
            return
        process = self._world.random.choice(up)
        task = process.spawn(self._act(process, act))
        self._busy[task] = process
        task.add_done_callback(self._busy.pop)

    @property
    def is_busy(self) -> bool:
        return any(not process.is_dead for process in self._busy.values())

    async def _act(self, process: Process, act: Any) -> None:
        try:
            await act(process)
        except EXPECTED as error:
            self._world.hit(f"user_{type(error).__name__}")
            self._world.note(process, f"answers {type(error).__name__}: {error}")
        except Exception as error:
            if isinstance(error, GestaError) and process.is_stopped:
                # The engine was stopped while they asked.
                return
            self._world.breaks("users get answers they can understand", repr(error))

    async def _submit(self, process: Process) -> None:
        world, random = self._world, self._world.random
        if self._wishes and random.random() < 0.35:
            # The same again: its answer was lost, or two programs had the same idea. Sometimes with
            # other content.
            kind, options, text = random.choice(self._wishes)
            text = text if random.random() < 0.7 else f"not {text}"
        else:
            now = datetime.fromtimestamp(world.loop.now, UTC)
            after = random.choice([None, None, None, 3.0, 20.0, 1_200.0])
            kind, text = (
                PAYLOADS[random.choice(world.options.payloads)],
                f"text {len(self._wishes)}",
            )
            if kind is Encrypted:
                text = f"{text} to {random.choice(PEOPLE)}"
            options = {
                "key": random.choice(
                    [None, f"key-{len(self._wishes)}", f"key-{len(self._wishes)}"]
                ),
                "tenant": random.choice(TENANTS),
                "deliver_at": None if after is None else now + timedelta(seconds=after),
                "ttl": random.choice(
                    [None, None, None, timedelta(seconds=4), timedelta(seconds=6)]
                ),
                "priority": random.randint(1, 10),
            }
            self._wishes.append((kind, options, text))
        flow = f"sim.{kind.__name__.lower()}"
        try:
            payload = Encrypted(text, text.split()[-1]) if kind is Encrypted else kind(text=text)
            request = await process.engine.submit(payload, **options)
        except Conflict as conflict:
            world.hit("conflict")
            world.note(
                process, f"{options['key']} is a conflict with {world.short(conflict.request_id)}"
            )
            return
        world.hit(f"submit_{request.verdict}")
        world.note(
            process,
            f"{world.short(request.id)} {request.verdict}: {flow} {options['tenant']}"
            f" {options['key']}",
        )
        self.acked.append(
            Acked(flow, options["tenant"], request.id, options["key"], text, request.verdict)
        )

    async def _erase(self, process: Process) -> None:
        """A person wants to be forgotten: whatever key there was is gone when that is answered, and
        never comes back.
        """
        world = self._world
        known = [
            (wish["tenant"], text.split()[-1])
            for kind, wish, text in self._wishes
            if kind is Encrypted
        ]
        if not known:
            return
        tenant, person = world.random.choice(known)
        keys = world.database.vault._versions
        name = f"subject/{process.pipeline.subjects._identity.subject(tenant, person).hex()}"
        held = {(tenant, name, version) for version in range(1, keys.get((tenant, name), 0) + 1)}
        await process.engine.erase(person, tenant=tenant)
        self.destroyed |= held
        world.hit("erased" if held else "erased_no_person")
        world.note(process, f"{person} of {tenant} is erased: {len(held)} keys")
        world.checks.erased()

    async def _decide_something(self, process: Process) -> None:
        if self.acked:
            known, choice = self._world.random.choice(self.acked), self._world.random.choice
            decide = choice(
                [
                    self._cancel,
                    self._cancel,
                    self._retry,
                    self._redrive,
                    self._redrive,
                    self._resolve,
                ]
            )
            await self._decide(known.flow, known.tenant, known.id, decide, process)

    async def _decide(
        self, flow: str, tenant: str, request_id: str, decide: Any, process: Process
    ) -> None:
        self._decided[request_id] += 1
        if self._decided[request_id] > 1:
            self.inline.add(request_id)
        try:
            request = await process.engine.request(request_id, flow=flow, tenant=tenant)
        except NotFound:
            self._world.breaks(
                "an accepted request is known to every process", self._world.short(request_id)
            )
        else:
            await decide(process, request)
        finally:
            self._decided[request_id] -= 1

    async def _cancel(self, process: Process, request: Request) -> None:
        self._answered(process, request, "cancel", await request.cancel())

    async def _retry(self, process: Process, request: Request) -> None:
        self._answered(process, request, "retry", await request.retry())

    async def _redrive(self, process: Process, request: Request) -> None:
        again = self._world.random.random() < 0.15
        if again:
            self.forced[request.id] += 1
        self._answered(process, request, "redrive", await request.redrive(again=again))

    async def _resolve(self, process: Process, request: Request) -> None:
        """A person looks it up at the provider, and is right."""
        provider, state = self._world.provider, (await request.view()).state
        key = idempotency_key(state.tenant, state.id, state.operation, state.intent)
        if any(call.may_still_happen(self._world.loop.now) for call in provider.calls[request.id]):
            # A call runs, or something may be on its way: a person cannot look that up.
            return
        if not state.in_doubt:
            # A person looks up only what is unknown.
            return
        looked_at = self._world.loop.now
        result: Any = "executed" if provider.effects[key] else "not_executed"
        status = await request.resolve(result, by="ann", evidence="looked it up")
        if any(call.began > looked_at for call in provider.calls[request.id]):
            # The word came too late: it was about an older unknown outcome than the one it
            # resolved.
            self.forced[request.id] += 1
            self._world.hit("resolved_too_late")
        self._answered(process, request, f"resolve {result}", status)

    def _answered(self, process: Process, request: Request, what: str, status: str) -> None:
        self._world.hit(f"user_{what.replace(' ', '_')}")
        self._world.note(process, f"{what} of {self._world.short(request.id)} answers {status}")
