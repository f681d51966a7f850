"""What a search leaves out: waiting, which is cut short, and the end of its own key, after which it
would be refused everywhere.
"""

from __future__ import annotations

import os
from typing import Any

import schemathesis

SOON = "50ms"


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    text = case.query.get("wait") if isinstance(case.query, dict) else None
    if isinstance(text, str) and text.rstrip("ms").isdecimal():
        case.query["wait"] = SOON
    if case.path_parameters.get("id") == os.environ.get("SEARCH_KEY_ID"):
        case.path_parameters["id"] = "another"
    if (
        isinstance(case.body, dict)
        and isinstance(case.body.get("waitSeconds"), int | float)
        and case.body["waitSeconds"] > 0
    ):
        case.body = {**case.body, "waitSeconds": 0}
