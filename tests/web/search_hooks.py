"""What a search leaves out: waiting. A call that asks to be held back is answered soon."""

from __future__ import annotations

from typing import Any

import schemathesis

SOON = "50ms"


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    text = case.query.get("wait") if isinstance(case.query, dict) else None
    if isinstance(text, str) and text.rstrip("ms").isdecimal():
        case.query["wait"] = SOON
    if isinstance(case.body, dict) and isinstance(case.body.get("waitSeconds"), int | float) and case.body["waitSeconds"] > 0:
        case.body = {**case.body, "waitSeconds": 0}
