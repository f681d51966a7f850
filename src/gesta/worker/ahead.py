"""Templates of a whole take, filled in before its attempts begin: each attempt then runs through to its outcome without a stop for them.

A stop costs the event loop more than the filling in does: when an attempt goes on, hundreds of others have run, and nothing of it is near any
more. Each begins when its own template is done, so that a slow or deadly one keeps back its own attempt alone. What cannot be filled in ahead,
for whatever reason, is left to the attempt, which says what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gesta.config import ConfigCache, Entity
from gesta.errors import RendererDown
from gesta.flows.flow import Flow, Renders
from gesta.job_queue import Taken
from gesta.rendering import TEMPLATE, Template
from gesta.rendering.press import Fault, Names, Sheet
from gesta.rendering.renderer import Renderer
from gesta.rendering.template import codes
from gesta.runtime import Runtime
from gesta.subjects import Readable
from gesta.views import View

#: What was taken, and what was loaded for it.
Ready = tuple[Taken, View, Readable]


class Beginning:
    """An attempt that begins when its template is filled in."""

    __slots__ = ("_sheaf", "answer", "data", "payload", "ready", "since", "template", "variables")

    task: Final = "render"

    def __init__(
        self, sheaf: Sheaf, ready: Ready, payload: object, template: Template, variables: object, data: bytes, since: float
    ) -> None:
        self._sheaf, self.ready, self.payload, self.template = sheaf, ready, payload, template
        #: As the flow has them and will give them, and as they are written.
        self.variables, self.data, self.since = variables, data, since
        #: None: there is none, and the attempt has to ask by itself.
        self.answer: Sheet | Fault | None = None

    @property
    def is_over(self) -> bool:
        return self._sheaf.is_over

    def settle(self, answer: Sheet | Names | Fault | RendererDown) -> None:
        if isinstance(answer, Sheet | Fault):
            self.answer = answer
        self._sheaf.settled(self)


class Sheaf:
    """The attempts of one take that begin when their templates are filled in."""

    def __init__(self, known: set[Sheaf]) -> None:
        """`known`: where it is kept until all have begun."""
        self.waiting: dict[Beginning, None] = {}
        #: Nobody waits for them any more.
        self.is_over = False
        self._known = known
        self._settled: list[Beginning] = []
        self._waiter: asyncio.Future[None] | None = None

    def settled(self, one: Beginning) -> None:
        self._settled.append(one)
        self._wake()

    def stop(self) -> None:
        """What has not begun is given back."""
        self.is_over = True
        self._wake()

    async def start_each(
        self, start: Callable[[Ready, Beginning], None], give_back: Callable[[list[Taken]], Awaitable[None]]
    ) -> None:
        """Start each attempt when it can begin."""
        try:
            while self.waiting and not self.is_over:
                if not self._settled:
                    self._waiter = asyncio.get_running_loop().create_future()
                    await self._waiter
                    continue
                settled, self._settled = self._settled, []
                for one in settled:
                    # One that was answered is told again when the renderer is closed in the middle of a batch.
                    if one in self.waiting:
                        del self.waiting[one]
                        start(one.ready, one)
        finally:
            self.is_over = True
            self._known.discard(self)
        if self.waiting:
            await give_back([one.ready[0] for one in self.waiting])

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Ahead:
    """Has filled in ahead whatever flows say that they will have filled in."""

    def __init__(self, flows: Mapping[str, Flow], config: ConfigCache, renderer: Renderer, runtime: Runtime) -> None:
        self._config, self._renderer, self._runtime = config, renderer, runtime
        self._flows: dict[str, tuple[Renders, msgspec.json.Decoder[Any]]] = {
            flow.name: (flow.renders, msgspec.json.Decoder(flow.payload)) for flow in flows.values() if flow.renders is not None
        }
        self._sheaves: set[Sheaf] = set()
        self._is_stopping = False

    def order(self, ready: Sequence[Ready]) -> tuple[Sequence[Ready], Sheaf | None]:
        """Those that can begin at once, and those that begin when their templates are filled in."""
        if not self._flows or self._is_stopping:
            return ready, None
        sheaf = Sheaf(self._sheaves)
        templates: dict[tuple[str, str, str | None], Template | None] = {}
        at_once, since = [], self._runtime.monotonic()
        for one in ready:
            beginning = self._beginning(one, sheaf, templates, since)
            if beginning is None:
                at_once.append(one)
            else:
                sheaf.waiting[beginning] = None
        if not sheaf.waiting:
            return ready, None
        self._sheaves.add(sheaf)
        self._renderer.put(list(sheaf.waiting))
        return at_once, sheaf

    def stop(self) -> None:
        """What has not begun is given back."""
        self._is_stopping = True
        for sheaf in self._sheaves:
            sheaf.stop()

    def _beginning(
        self, ready: Ready, sheaf: Sheaf, templates: dict[tuple[str, str, str | None], Template | None], since: float
    ) -> Beginning | None:
        taken, view, readable = ready
        known, state = self._flows.get(taken.job.flow), view.state
        # A test sees another config; a question, and one that may have begun before, fill in nothing.
        if known is None or state.test or state.wants != "execute" or taken.is_suspect or not isinstance(readable, bytes):
            return None
        renders, decoder = known
        try:
            payload = decoder.decode(readable)
            wanted = renders(payload)
            if wanted is None:
                return None
            code, variables, locale = wanted
            key = state.tenant, code, locale
            template = templates[key] if key in templates else templates.setdefault(key, self._template(*key))
            if template is None:
                return None
            return Beginning(sheaf, ready, payload, template, variables, _encode(variables), since)
        except Exception:  # noqa: BLE001 -- a program's own function and a payload that may fit no longer: the attempt will say what is wrong
            return None

    def _template(self, tenant: str, code: str, locale: str | None) -> Template | None:
        """What the attempt will find, most likely; should it find another, it has that filled in."""
        config = self._config.of(tenant)
        for name in codes(code, locale):
            if (found := config.find(TEMPLATE, name)) is not None:
                return found.body if isinstance(found, Entity) and isinstance(found.body, Template) else None
        return None


_encode = msgspec.json.Encoder().encode
