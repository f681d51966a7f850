"""Validation of a payload and its options, and the body that is stored."""

from collections.abc import Callable, Sequence

import msgspec

from gesta.domain.ids import KEY_LENGTH_MAX, REQUEST_ID
from gesta.errors import InvalidRequest
from gesta.flows.flow import Flow, Payload
from gesta.flows.payload_codec import decoder_of, encoder_of
from gesta.flows.personal_fields import Plan, plan_of, subject_name
from gesta.flows.validation import (
    TOO_DEEP,
    comes_back,
    holds_times,
    is_too_deep,
    naive_times,
    open_names,
    value_errors,
)
from gesta.intake.submit_options import Options, is_plain, is_text, option_errors
from gesta.security.field_encryption import MARK, forged

PAYLOAD_BYTES_MAX = 256 * 1024
NO_TESTS = (
    "this flow does not accept test requests, because a test may reach only the"
    " sandbox. If the executor acts only"
    " through attempt.http and attempt.mail, declare the flow with @flow(…, effects='attempt')"
)


class PayloadType(msgspec.Struct, frozen=True):
    """What is known about a flow's payloads before the first one arrives."""

    flow: Flow
    encode: Callable[[Payload], bytes]
    decode: Callable[[bytes], object]
    #: Whether a payload can contain a time: by its type, or because its type accepts anything.
    has_times: bool
    #: See validation.open_names.
    open_names: Sequence[str] | None
    #: The personal fields; None: there are none.
    plan: Plan | None

    @classmethod
    def of(cls, flow: Flow) -> "PayloadType":
        kind = flow.payload
        return cls(
            flow,
            encoder_of(kind),
            decoder_of(kind),
            has_times=holds_times(kind),
            open_names=open_names(kind),
            plan=plan_of(kind),
        )

    def validated(self, payload: Payload, options: Options) -> tuple[bytes, str | None]:
        """The body to store, and the data subject that the payload names.

        Raises InvalidRequest with every error of payload and options at once.
        """
        about, errors = (None, {}) if self.plan is None else _data_subject(payload)
        try:
            body = self.encode(payload)
            # Programs build payloads unchecked. Decoding is the check, and the cheapest one.
            stored = self.decode(body)
            if is_too_deep(body):
                errors |= {"payload": TOO_DEEP}
            elif self.has_times and not comes_back(self.open_names, payload, stored):
                errors |= naive_times(payload)
        except RecursionError:
            body = b""
            errors |= {"payload": TOO_DEEP}
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            body = b""
            errors |= value_errors(payload) or {"payload": f"cannot be stored: {error}"}
        if len(body) > PAYLOAD_BYTES_MAX:
            too_long = f"{len(body)} bytes, and {PAYLOAD_BYTES_MAX} is the maximum"
            errors = {"payload": f"{too_long}. Store it elsewhere and send a reference"}
        if MARK in body:
            errors |= forged(body)
        if errors or not is_plain(options):
            errors |= option_errors(options)
        if options.test and self.flow.effects != "attempt":
            errors["test"] = NO_TESTS
        if errors:
            raise InvalidRequest(self.flow.name, errors)
        return body, about

    def own_id(self, payload: Payload, options: Options) -> tuple[str | None, Options]:
        """The id that the payload brings, and the options with that id as the key: the same id
        with the same content is then a duplicate.
        """
        own = None if self.flow.request_id is None else self.flow.request_id(payload)
        if own is None:
            return None, options
        if not REQUEST_ID.fullmatch(own):
            wrong = {"id": "the payload's own id must be a UUID: 36 characters, lower case"}
            raise InvalidRequest(self.flow.name, wrong)
        if options.key not in (None, own):
            wrong = {
                "key": "the payload has its own id, which is also the key; leave this field out"
            }
            raise InvalidRequest(self.flow.name, wrong)
        return own, msgspec.structs.replace(options, key=own)


def _data_subject(payload: Payload) -> tuple[str | None, dict[str, str]]:
    """The data subject that the payload names, and the error in that name."""
    name = subject_name(type(payload))
    if name is None:
        return None, {}
    try:
        about = getattr(payload, name)
    except Exception as error:  # noqa: BLE001 -- a property is the program's own code
        return None, {name: f"the property raised {type(error).__name__}"}
    if about is None or about == "":
        return None, {}
    if is_text(about):
        return about, {}
    return None, {name: f"a string of at most {KEY_LENGTH_MAX} characters, or None"}
