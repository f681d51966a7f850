"""The API inside another application.

Frameworks disagree about what a mounted application is told of its place; it is told the same by
all here.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class Mounted:
    """An ASGI application that can be mounted anywhere: FastAPI, Starlette, Litestar, or none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/") and scope["path"] != "/":
            scope = placed(scope)
        await self._app(scope, receive, send)


def placed(scope: Scope) -> Scope:
    """Litestar gives a path with a slash behind it, and not where it begins; the path as it was
    sent tells both.
    """
    path, root = scope["path"].rstrip("/"), scope.get("root_path", "")
    sent = scope.get("raw_path", b"").decode("ascii", "replace").partition("?")[0].rstrip("/")
    if not root and sent != path and sent.endswith(path):
        root = sent.removesuffix(path)
        path = sent
    return {**scope, "path": path or "/", "root_path": root}
