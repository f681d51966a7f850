"""What intake knows of a request before it is in the store: its flow's kind of payload, and the
draft itself, checked and in clear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from gesta.domain.ids import KEY_LENGTH_MAX, REQUEST_ID
from gesta.errors import InvalidRequest
from gesta.flows.flow import Flow, Payload
from gesta.flows.personal_fields import Plan, places_apart, subject_name
from gesta.intake.submit_options import Options, is_text
from gesta.security.subject_keys import Clear


class PayloadType(msgspec.Struct, frozen=True):
    """What is known of a flow's payloads before any comes."""

    flow: Flow
    encode: Callable[[Payload], bytes]
    decode: Callable[[bytes], object]
    #: It can hold a time: by its type, or where its type takes anything.
    has_times: bool
    #: See validation.open_names.
    open_names: Sequence[str] | None
    #: Where it tells something about a person.
    plan: Plan | None


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A request on its way into the store, checked; what is personal in it is still in clear."""

    flow: Flow
    body: bytes
    options: Options
    at: int
    raw_id: bytes
    request_id: str
    #: Whom it is about, where the payload says so.
    about: str | None
    #: Its key is the caller's own id of it.
    is_own: bool = False


def keyed_by(own: str, flow: Flow, options: Options) -> Options:
    """The options with the caller's own id as the key: the same id with the same content is a
    duplicate then.
    """
    if not REQUEST_ID.fullmatch(own):
        raise InvalidRequest(
            flow.name, {"id": "the payload's own id must be a UUID: 36 characters, lower case"}
        )
    if options.key not in (None, own):
        raise InvalidRequest(
            flow.name,
            {"key": "the payload brings an id of its own, which is the key; leave this one out"},
        )
    return replace(options, key=own)


def clear_of(draft: Draft, plan: Plan) -> Clear:
    apart = places_apart(draft.flow.payload)
    return Clear(
        draft.options.tenant,
        draft.flow.name,
        draft.request_id,
        plan,
        draft.body,
        draft.about,
        apart,
    )


def about_of(payload: Payload) -> tuple[str | None, dict[str, str]]:
    """Whom the payload says it is about, and what is wrong with that.

    A property is a program's own, and may do anything.
    """
    name = subject_name(type(payload))
    if name is None:
        return None, {}
    try:
        about = getattr(payload, name)
    except Exception as error:  # noqa: BLE001 -- see above
        return None, {name: f"the property raised {type(error).__name__}"}
    if about is None or about == "":
        return None, {}
    return (
        (about, {})
        if is_text(about)
        else (None, {name: f"a string of at most {KEY_LENGTH_MAX} characters, or None"})
    )
