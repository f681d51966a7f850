"""A fake of Backlog's issues: creates them from form fields, keeps them, and searches them.

A repeat is a second issue, as at Backlog: there is no idempotency key.
"""

from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

import msgspec

from gesta.outbound.http import HttpRequest
from gesta.sandbox.receiver import Call, Effect, Fault, Receiver, Reply, retry_after_header

_PATH: Final = "/api/v2/issues"
_JSON: Final = {"content-type": "application/json;charset=utf-8"}
_FORM: Final = "application/x-www-form-urlencoded"
_REQUIRED: Final = ("projectId", "summary", "issueTypeId", "priorityId")
_SUMMARY_LENGTH_MAX: Final = 255
#: The status of a code, where it is not 400.
_STATUSES: Final = {"1": 500, "4": 403, "5": 403, "6": 404, "11": 401, "13": 429}
#: Backlog's codes by gesta's reasons for them.
_NAMED: Final = {
    "internal_error": "1",
    "licence_error": "2",
    "licence_expired": "3",
    "access_denied": "4",
    "unauthorized_operation": "5",
    "no_resource": "6",
    "invalid_request": "7",
    "space_over_capacity": "8",
    "resource_overflow": "9",
    "too_large": "10",
    "authentication_error": "11",
    "mfa_required": "12",
    "rate_limited": "13",
}
#: A code that Backlog does not have, for errors that have neither number nor name.
_UNKNOWN_CODE: Final = "999"
_CODES: Final = {401: "11", 403: "5", 404: "6", 429: "13", 500: "1"}
#: What a space may do in a minute, as Backlog reports it.
_LIMIT: Final = 600


class FakeBacklog(Receiver):
    """The fake behind a space of Backlog.

    `on("key-1", error="11")` refuses an API key, `on("7", error="no_resource")` a project: by the
    number of Backlog's code, or by gesta's reason for it. `remaining` is what the rate-limit
    headers say; `reset_seconds` when the limit begins anew.
    """

    name = "backlog"

    def __init__(self) -> None:
        super().__init__()
        self.remaining: int = _LIMIT
        self.reset_seconds: int = 60

    def serves(self, request: HttpRequest) -> bool:
        return urlsplit(request.url).path.endswith(_PATH)

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = parse_qs(urlsplit(request.url).query)
        api_key = asked.get("apiKey", [""])[0]
        if not api_key:
            return self._error(401, "11")
        if request.method == "GET":
            projects = tuple(asked.get("projectId[]", []))
            return Call(None, "find", asked, headers, b"", "", (api_key, *projects))
        if headers.get("content-type", "").partition(";")[0] != _FORM:
            # As the real one: a JSON body has no fields that it would read.
            return self._error(400, "7")
        raw = (request.body or b"").decode(errors="replace")
        sent: dict[str, Any] = dict(parse_qsl(raw, keep_blank_values=True))
        lists = {name: found for name, found in parse_qs(raw).items() if name.endswith("[]")}
        summary = sent.get("summary", "")
        if any(not sent.get(name) for name in _REQUIRED):
            return self._error(400, "7")
        if len(summary) > _SUMMARY_LENGTH_MAX or not summary.isprintable():
            return self._error(400, "7")
        return Call(
            None,
            "create",
            sent | lists,
            headers,
            request.body or b"",
            summary,
            (api_key, sent["projectId"]),
        )

    def refusal(self, fault: Fault) -> Reply:
        code = fault.error or _CODES.get(fault.status or 0, "")
        code = _NAMED.get(code, code)
        if code and not code.isdecimal():
            code = _UNKNOWN_CODE
        status = fault.status or _STATUSES.get(code, 400)
        refused, wait = self._error(status, code), retry_after_header(fault)
        headers = dict(refused.headers) | wait
        if wait and "x-ratelimit-reset" in headers:
            headers["x-ratelimit-reset"] = str(self.now_ms // 1000 + int(wait["retry-after"]))
        return msgspec.structs.replace(refused, headers=headers)

    def answer(self, call: Call) -> Reply | None:
        if call.type != "find":
            return None
        keyword = call.data.get("keyword", [""])[0]
        projects = call.data.get("projectId[]", [])
        found = [
            _resource(effect)
            for effect in reversed(self.effects)
            if keyword in f"{effect.data['summary']}\n{effect.data.get('description', '')}"
            and (not projects or effect.data["projectId"] in projects)
        ]
        return Reply(200, msgspec.json.encode(found[: int(call.data.get("count", ["20"])[0])]), {})

    def success(self, effect: Effect) -> Reply:
        effect.id = f"PRJ{effect.data['projectId']}-{self.performed}"
        return Reply(201, msgspec.json.encode(_resource(effect)), self._headers())

    def _headers(self) -> dict[str, str]:
        return _JSON | {
            "x-ratelimit-limit": str(_LIMIT),
            "x-ratelimit-remaining": str(self.remaining),
            "x-ratelimit-reset": str(self.now_ms // 1000 + self.reset_seconds),
        }

    def _error(self, status: int, code: str) -> Reply:
        errors = [{"message": "refused by the sandbox", "code": int(code or 0), "moreInfo": ""}]
        body = msgspec.json.encode({"errors": errors}) if code else b""
        return Reply(status, body, self._headers() if status == 429 else _JSON)


def _resource(effect: Effect) -> dict[str, Any]:
    return {
        "id": int(effect.id.rpartition("-")[2]),
        "projectId": int(effect.data["projectId"]),
        "issueKey": effect.id,
        "summary": effect.data["summary"],
        "description": effect.data.get("description", ""),
    }
