"""What a search leaves out: waiting. A call that asks to be held back is answered soon."""

from __future__ import annotations

from typing import Any

import schemathesis

SOON = "50ms"


@schemathesis.hook
def map_query(context: Any, query: Any) -> Any:
    if isinstance(query, dict) and context.operation is not None and _is_long(query.get("wait")):
        return {**query, "wait": SOON}
    return query


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    if isinstance(body, dict) and isinstance(body.get("waitSeconds"), int | float) and body["waitSeconds"] > 0:
        return {**body, "waitSeconds": 0}
    return body


def _is_long(text: Any) -> bool:
    """Whether it would be taken as a time to wait."""
    return isinstance(text, str) and text.rstrip("ms").isdecimal()
