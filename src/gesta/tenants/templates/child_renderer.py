"""Renders templates in child processes.

When a batch kills its child, its orders are repeated one by one, each in a fresh child: only an
order that kills that one, too, is to blame. A template that has killed a child is always rendered
alone from then on, so that it does not delay those of other tenants again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable
from typing import cast

from gesta.errors import RendererDown
from gesta.runtime.clock import Runtime
from gesta.tenants.templates.child import Answer, Task
from gesta.tenants.templates.child_process import ChildEnded
from gesta.tenants.templates.email_html import Markup
from gesta.tenants.templates.press import Names, RenderError, Sheet
from gesta.tenants.templates.render_queue import RenderQueue, Waiting, remember
from gesta.tenants.templates.templates import Template

BATCH_MAX = 512


class ChildRenderer:
    """The renderer of a real process. The child starts with the first order."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._together = RenderQueue(runtime, BATCH_MAX, self._judge)
        self._alone = RenderQueue(runtime, 1, self._judge)
        #: Pages take many times as long as templates and must not delay them.
        self._pages = RenderQueue(runtime, 1, self._judge)
        #: Templates that have killed a child.
        self._convicted: dict[Template, None] = {}
        self._variables: dict[Template, Names] = {}

    def render(
        self, template: Template, data: bytes, tenant: str = ""
    ) -> Awaitable[Sheet | RenderError]:
        # No coroutine around the future: this is done for every message.
        return cast(
            "asyncio.Future[Sheet | RenderError]",
            self._put(self._together, template, "render", data, tenant),
        )

    async def variables(self, template: Template, tenant: str = "") -> Names | RenderError:
        if (known := self._variables.get(template)) is not None:
            return known
        answer = await self._put(self._together, template, "variables", b"", tenant)
        assert not isinstance(answer, Sheet)
        if isinstance(answer, Names):
            remember(self._variables, template, answer)
        return answer

    async def dress(self, markup: Markup, source: str, tenant: str = "") -> Sheet | RenderError:
        # A digest in place of a template: a page that kills the child is blamed for itself only.
        page = Template(text=hashlib.sha256(source.encode(errors="replace")).hexdigest())
        data = f"{markup}\n{source}".encode(errors="replace")
        answer = await self._put(self._pages, page, "dress", data, tenant)
        assert not isinstance(answer, Names)
        return answer

    async def close(self) -> None:
        for queue in (self._together, self._pages, self._alone):
            await queue.close()

    def _put(
        self, queue: RenderQueue, template: Template, task: Task, data: bytes, tenant: str
    ) -> asyncio.Future[Answer]:
        if self._convicted and template in self._convicted:
            queue = self._alone
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        queue.put(Waiting(tenant, template, task, data, self._runtime.monotonic(), answer))
        return answer

    def _judge(
        self,
        orders: list[Waiting],
        ended: ChildEnded,
        is_fresh: bool,  # noqa: FBT001 -- a callback
    ) -> None:
        if len(orders) > 1 or not is_fresh:
            # One of them is to blame, or an order before them: repeat each alone.
            self._alone.put_back(orders)
            return
        (order,) = orders
        if ended.by_itself:
            remember(self._convicted, order.template, None)
            order.settle(RenderError("template", ended.cause))
        else:
            order.settle(RendererDown("its process was killed"))
