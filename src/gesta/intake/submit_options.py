"""The options of a submit and their validation.

Programs may pass values of any type, and what is stored must stay readable.
"""

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from gesta.api_types.requests import TTL_MAX
from gesta.domain.events import Actor
from gesta.domain.ids import KEY_LENGTH_MAX, TENANT
from gesta.domain.lifecycles import STATUSES
from gesta.flows.validation import YEARS, actor_errors, is_usual_actor, tenant_errors


class Options(msgspec.Struct, frozen=True, gc=False):
    """The options of a request, beside its payload."""

    key: str | None = None
    tenant: str = "default"
    deliver_at: datetime | None = None
    ttl: timedelta | None = None
    priority: int = 5
    correlation_id: str | None = None
    causation_id: str | None = None
    actor: Actor | None = None
    #: A test request: it reaches the sandbox only.
    test: bool = False
    #: The source, if the engine itself submits (domain/status_events.py). A caller can never set
    #: it.
    source: str = "gesta"


NO_OPTIONS = Options()


def is_plain(options: Options) -> bool:
    """Whether at most an ordinary key is set, as in most requests: a cheap test."""
    key = options.key
    if options.actor is not None:
        return False
    if key is None:
        # 5.0 equals 5 but is not an int.
        return options == NO_OPTIONS and type(options.priority) is int
    if type(key) is not str or not key.isascii() or not 0 < len(key) <= KEY_LENGTH_MAX:
        return False
    return options == Options(key) and type(options.priority) is int


def option_errors(options: Options) -> dict[str, str]:
    """Option → its error."""
    if _is_usual(options):
        return {}
    errors = tenant_errors(options.tenant)
    deliver_at: Any = options.deliver_at
    ttl: Any = options.ttl
    test: Any = options.test
    for name in ("key", "correlation_id", "causation_id"):
        text = getattr(options, name)
        if text is not None and not is_text(text):
            errors[name] = f"a string of 1 to {KEY_LENGTH_MAX} characters"
    if deliver_at is not None and (
        not isinstance(deliver_at, datetime) or deliver_at.tzinfo is None
    ):
        errors["deliver_at"] = "a datetime with a time zone, for instance datetime.now(UTC)"
    elif deliver_at is not None and not YEARS[0] <= deliver_at.year <= YEARS[1]:
        errors["deliver_at"] = f"a time in the years {YEARS[0]} to {YEARS[1]}"
    errors |= ttl_errors(ttl)
    if type(options.priority) is not int or not 1 <= options.priority <= 10:
        errors["priority"] = "a whole number from 1 (most urgent) to 10"
    if not isinstance(test, bool):
        errors["test"] = "true or false"
    return errors | actor_errors(options.actor)


def _is_usual(options: Options) -> bool:
    """Whether every option is valid, by a cheap test that most API calls pass."""
    tenant, key, priority = options.tenant, options.key, options.priority
    return (
        options.deliver_at is None
        and options.ttl is None
        and (options.correlation_id is None or is_text(options.correlation_id))
        and options.causation_id is None
        and type(tenant) is str
        and _is_tenant(tenant)
        and (key is None or is_text(key))
        and type(priority) is int
        and 1 <= priority <= 10
        and type(options.test) is bool
        and (options.actor is None or is_usual_actor(options.actor))
    )


@lru_cache(maxsize=1_024)
def _is_tenant(text: str) -> bool:
    # Cached, because a process asks about the same few tenants again and again.
    return TENANT.fullmatch(text) is not None


def ttl_errors(ttl: object) -> dict[str, str]:
    if ttl is None or (isinstance(ttl, timedelta) and timedelta(0) < ttl <= TTL_MAX):
        return {}
    return {"ttl": f"a positive timedelta, at most {TTL_MAX.days} days"}


def filter_errors(status: object, limit: object) -> dict[str, str]:
    """Errors in the filter of a list."""
    errors = {}
    if status is not None and status not in STATUSES:
        errors["status"] = f"{status!r} is not a status; known: {', '.join(STATUSES)}"
    if type(limit) is not int or limit < 1:
        errors["limit"] = "a whole number, 1 or more"
    return errors


def subject_errors(subject: object, tenant: object) -> dict[str, str]:
    """Errors in the name of a data subject to erase."""
    errors = tenant_errors(tenant)
    try:
        is_text = isinstance(subject, str) and bool(subject.encode())
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        errors["subject"] = "a text that identifies the person; it must not be empty"
    return errors


def is_text(value: object) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= KEY_LENGTH_MAX:
        return False
    try:
        # A lone surrogate is a valid str but cannot be stored.
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False
