"""The names of the HTTP surface: routes, parameters, JSON fields, codes and client calls.

A change here is a change for every caller: it needs a line in CHANGELOG.md.
"""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

from gesta.api_types import (
    admin,
    bulk,
    config,
    decisions,
    keys,
    problem,
    requests,
    structs,
    subscriptions,
    work,
)
from gesta.client import Client
from gesta.client.problems import NOTHING_DONE
from gesta.http_api.app import ROUTES
from gesta.http_api.problem import TITLES

#: Method and path → scope, and the parameters of the query.
NAMES: dict[str, tuple[str | None, str]] = {
    "POST /v1/requests": ("submit", "wait"),
    "POST /v1/requests/batch": ("submit", ""),
    "GET /v1/requests": (
        "read",
        "cursor limit flow status key reason since until held test",
    ),
    "GET /v1/requests/{id}": ("read", "wait flow"),
    "GET /v1/requests/{id}/events": ("read", "flow"),
    "GET /v1/requests/{id}/attempts": ("read", "flow"),
    "POST /v1/requests/{id}/cancel": ("operate", "flow"),
    "POST /v1/requests/{id}/retry": ("operate", "flow"),
    "POST /v1/requests/{id}/redrive": ("operate", "flow"),
    "POST /v1/requests/{id}/resolve": ("operate", "flow"),
    "POST /v1/transactions/authorize": ("submit", "wait"),
    "GET /v1/transactions/{id}": ("read", "flow"),
    "POST /v1/requests/{id}/capture": ("submit", "flow"),
    "POST /v1/requests/{id}/post": ("submit", "flow"),
    "POST /v1/requests/{id}/refund": ("submit", "flow"),
    "POST /v1/requests/{id}/void": ("submit", "flow"),
    "POST /v1/requests/{id}/reverse": ("submit", "flow"),
    "POST /v1/reconciliations": ("operate", ""),
    "GET /v1/dead-letters": ("read", "cursor limit flow reason"),
    "GET /v1/dead-letters/{id}": ("read", "flow"),
    "DELETE /v1/dead-letters/{id}": ("operate", "flow"),
    "GET /v1/unknown": ("read", "cursor limit flow"),
    "POST /v1/bulk": ("operate", ""),
    "POST /v1/bulk/{id}/resume": ("operate", ""),
    "POST /v1/flows/{flow}/work": ("execute", ""),
    "GET /v1/requests/{id}/work": ("execute", "flow"),
    "POST /v1/requests/{id}/lease": ("execute", "flow"),
    "POST /v1/requests/{id}/outcome": ("execute", "flow"),
    "GET /v1/stream": ("read", "flow request"),
    "GET /live": (None, ""),
    "GET /ready": (None, ""),
    "GET /metrics": ("operate", ""),
    "GET /v1/whoami": ("any", ""),
    "GET /v1/flows": ("read", ""),
    "GET /v1/counts": ("read", ""),
    "GET /v1/quarantined": ("operate", "cursor limit"),
    "GET /v1/pauses": ("operate", ""),
    "POST /v1/pauses": ("operate", ""),
    "DELETE /v1/pauses": ("operate", "flow credential"),
    "POST /v1/erase": ("admin", ""),
    "GET /v1/config": ("read", "cursor limit kind"),
    "GET /v1/config-kinds": ("read", ""),
    "GET /v1/config/{kind}/{code}": ("read", ""),
    "PUT /v1/config/{kind}/{code}": ("admin", "keep"),
    "DELETE /v1/config/{kind}/{code}": ("admin", ""),
    "POST /v1/templates/{code}/preview": ("read", ""),
    "POST /v1/templates/{code}/test": ("submit", "wait"),
    "POST /v1/endpoints/{code}/test": ("submit", "wait"),
    "POST /v1/keys": ("admin", ""),
    "GET /v1/keys": ("admin", ""),
    "DELETE /v1/keys/{id}": ("admin", ""),
    "GET /v1/audit": ("admin", "cursor limit"),
    "GET /first-key": (None, "token"),
    "POST /first-key": (None, ""),
    "POST /v1/first-key": (None, ""),
    "POST /v1/reports/twilio/{tenant}/{account}/{id}": (None, ""),
    "POST /v1/reports/ses/{tenant}": (None, ""),
    "POST /inbound/slack/events": (None, ""),
    "POST /inbound/slack/events/{tenant}": (None, ""),
    "POST /inbound/webhook/{tenant}/{code}": (None, ""),
    "POST /inbound/gateway/{tenant}/{code}": (None, ""),
    "GET /v1/subscriptions": ("operate", ""),
    "DELETE /v1/subscriptions/{name:path}": ("admin", ""),
    "GET /v1/suppression/{flow}": ("operate", "cursor limit"),
    "PUT /v1/suppression/{flow}": ("operate", ""),
    "POST /v1/suppression/{flow}/find": ("operate", ""),
    "DELETE /v1/suppression/{flow}/{id}": ("operate", ""),
    "GET /openapi.json": (None, ""),
    "GET /docs": (None, ""),
}
#: Bodies: method and path → fields.
BODIES = {
    "POST /v1/requests": "flow payload key deliverAt ttlSeconds priority correlationId causationId",
    "POST /v1/requests/batch": "requests",
    "POST /v1/requests/{id}/redrive": "ttlSeconds again",
    "POST /v1/requests/{id}/resolve": "outcome evidence id amount",
    "POST /v1/transactions/authorize": "payload key flow",
    "POST /v1/requests/{id}/capture": "key amount final",
    "POST /v1/requests/{id}/post": "key amount final",
    "POST /v1/requests/{id}/refund": "key amount",
    "POST /v1/requests/{id}/void": "key",
    "POST /v1/requests/{id}/reverse": "key",
    "POST /v1/reconciliations": "gateway from to",
    "POST /v1/bulk": (
        "action flow status reason target template deadLetters since until dryRun rate outcome "
        "evidence ttlSeconds again"
    ),
    "POST /v1/bulk/{id}/resume": "action deadLetters rate",
    "POST /v1/flows/{flow}/work": "limit waitSeconds leaseSeconds",
    "POST /v1/requests/{id}/lease": "token leaseSeconds",
    "POST /v1/requests/{id}/outcome": (
        "type token attempts id tenant providerMessageId targetId providerTxnId amount reason "
        "retryable "
        "lastError retryAfterSec correlationId causationId actor"
    ),
    "POST /v1/pauses": "flow credential reason",
    "POST /v1/erase": "subject",
    "PUT /v1/config/{kind}/{code}": "fields",
    "POST /v1/templates/{code}/preview": "variables locale",
    "POST /v1/templates/{code}/test": "flow destination variables locale",
    "POST /v1/keys": "name scopes expiresAt test",
    "POST /v1/first-key": "token",
    "PUT /v1/suppression/{flow}": "address reason",
    "POST /v1/suppression/{flow}/find": "address",
}
#: Answers: type → fields.
FIELDS: dict[Any, str] = {
    requests.HeldBy: "kind flow tenant name reason",
    requests.RequestRepresentation: (
        "id flow tenant status key attemptCount reason detail providerId targetId inDoubt "
        "cancelRequested operation intent priority createdAt updatedAt dueAt expiresAt "
        "correlationId version heldBy test deliveredAt bouncedAt bounce complainedAt "
        "complaint"
    ),
    requests.Whole: (
        "id flow tenant status key attemptCount reason detail providerId targetId inDoubt "
        "cancelRequested operation intent priority createdAt updatedAt dueAt expiresAt "
        "correlationId version heldBy test deliveredAt bouncedAt bounce complainedAt "
        "complaint payload"
    ),
    requests.EventRepresentation: "version type at actor data",
    requests.StreamEvent: "version type at actor data requestId flow",
    requests.AttemptRepresentation: (
        "number startedAt endedAt outcome reason detail nextAt used durationMs worker "
        "host httpStatus providerCode answer traceback"
    ),
    requests.SubmitWarning: "code message",
    requests.Submitted: "id flow verdict request warnings",
    requests.BatchResult: "verdict id flow problem warnings",
    requests.Decided: "id flow status heldBy",
    decisions.Failure: "reason detail at attemptCount keptUntil",
    decisions.DeadLetter: (
        "id flow tenant status key attemptCount reason detail providerId targetId inDoubt "
        "cancelRequested operation intent priority createdAt updatedAt dueAt expiresAt "
        "correlationId version heldBy test deliveredAt bouncedAt bounce complainedAt "
        "complaint failure message"
    ),
    decisions.UnknownOutcome: (
        "id flow tenant status key attemptCount reason detail providerId targetId inDoubt "
        "cancelRequested operation intent priority createdAt updatedAt dueAt expiresAt "
        "correlationId version heldBy test deliveredAt bouncedAt bounce complainedAt "
        "complaint since ageSeconds"
    ),
    admin.FlowRepresentation: "name payload external onUnknown attempts ttlSeconds config",
    admin.Count: "flow status count",
    admin.QuarantinedRepresentation: "what tenant name version error at",
    admin.PauseRepresentation: "scope flow tenant credential reason since refused by held",
    admin.Resumed: "held",
    admin.ErasedRepresentation: "destroyed",
    keys.KeyRepresentation: (
        "id tenant name scopes test createdAt createdBy expiresAt revokedAt revokedBy"
    ),
    keys.MadeKey: (
        "id tenant name scopes test createdAt createdBy expiresAt revokedAt revokedBy key"
    ),
    keys.Myself: "keyId name tenant scopes test expiresAt",
    keys.ChangeRepresentation: "version at what about by roles details",
    config.EntityRepresentation: "kind code version fields secrets warnings",
    config.ConfigKindRepresentation: "kind schema secrets usedBy",
    config.Previewed: "code version parts",
    bulk.BulkSample: "id flow status reason createdAt",
    bulk.BulkRefusal: "id flow code detail",
    bulk.BulkProgress: "action id matched done refused finished sample refusals",
    bulk.BulkLine: "progress problem",
    subscriptions.WebhookSubscription: "code flow statuses endpoint error",
    subscriptions.HandlerSubscription: "name behind isHeld isStuck",
    subscriptions.SuppressedRepresentation: "id masked reason source since",
    work.Work: (
        "flow id token leaseUntil attempt key payload correlationId createdAt dueAt "
        "expiresAt priority cancelRequested operation amount"
    ),
    work.Extended: "leaseUntil cancelRequested",
    work.Recorded: "flow id status attemptCount reason nextAttemptAt",
    problem.ProblemRepresentation: "type title status code detail errors requestId flows now",
    structs.ListOf: "items next",
    structs.ListOfReasons: "items next others",
    structs.OtherReason: "flow reason count",
}

STATUSES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Content too large",
    415: "Unsupported media type",
    422: "Validation failed",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
    507: "Insufficient storage",
}
#: Earlier names, which must not come back: of routes, fields and parameters, codes, client calls.
GONE_PATHS = ("/v1/parked", "/v1/dead-letters/redrive", "{flow}/{id}/")
GONE_FIELDS = {
    "dlqMetadata",
    "errorInfo",
    "lastFailureReason",
    "original",
    "fault",
    "more",
    "webhooks",
    "handlers",
    "result",
    "results",
    "before",
}
GONE_CODES = {"fault", "changed", "too_many", "try_later", "method"}
GONE_CALLS = {"look_up", "redrive_all"}
#: Client calls about one request: its id first, the flow by name.
CALLS_BY_ID = "get wait events attempts cancel retry redrive resolve dead_letter purge".split()


def test_every_route_has_its_path_scope_and_parameters():
    assert {
        f"{route.method} {route.path}": (route.scope, _names(route.query)) for route in ROUTES
    } == NAMES


def test_every_body_has_its_fields():
    assert {
        f"{route.method} {route.path}": _names(route.body)
        for route in ROUTES
        if route.body is not None
    } == BODIES


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_every_answer_has_its_fields(kind):
    assert _names(kind) == FIELDS[kind]


def test_every_list_is_items_and_next():
    lists = [route.answer for route in ROUTES if "items" in _names(route.answer or requests.Submit)]
    assert len(lists) == 17
    assert {_names(one) for one in lists} == {"items next", "items next others"}


def test_problems_have_standard_titles():
    assert TITLES == STATUSES


def test_the_answer_of_resolve_and_what_holds_a_request_have_their_words():
    (resolve,) = [route.body for route in ROUTES if route.name == "resolve"]
    words = msgspec.json.schema(resolve)["$defs"]["Resolve"]["properties"]["outcome"]["enum"]
    assert sorted(words) == ["failed", "not_executed", "succeeded"]
    held = msgspec.json.schema(requests.HeldBy)["$defs"]["HeldBy"]["properties"]["kind"]["enum"]
    assert sorted(held) == ["config", "credential", "pause"]


def test_earlier_names_are_gone():
    paths = " ".join(NAMES)
    assert [one for one in GONE_PATHS if one in paths] == []
    fields = {name for text in (*FIELDS.values(), *BODIES.values()) for name in text.split()}
    parameters = {name for _, text in NAMES.values() for name in text.split()}
    assert GONE_FIELDS & (fields | parameters) == set()
    assert set() == GONE_CODES & NOTHING_DONE
    assert GONE_CALLS & set(dir(Client)) == set()


@pytest.mark.parametrize("name", CALLS_BY_ID)
def test_a_client_call_about_a_request_takes_the_id_alone(name):
    parameters = inspect.signature(getattr(Client, name)).parameters
    assert list(parameters)[1] == "request_id"
    assert parameters["flow"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["flow"].default is None


def _names(kind: Any) -> str:
    fields = msgspec.structs.fields(kind) if hasattr(kind, "__struct_fields__") else ()
    if not fields and hasattr(kind, "__origin__"):
        fields = msgspec.structs.fields(kind.__origin__)
    return " ".join(field.encode_name for field in fields)
