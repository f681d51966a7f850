"""The payload of a text message, and the config kind of accounts."""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Final

import msgspec

from gesta.errors import MissingExtra
from gesta.flows.flow import ConfigBody, Payload, Personal, Secret
from gesta.outbound.rate_limits import PerSecond
from gesta.tenants.suppression import Addresses

NAME: Final = "notification.sms"
#: The config kind of this channel.
ACCOUNT: Final = "sms.account"
#: The account of a message that names none, and the one that `flow(account_sid=…)` declares.
DEFAULT: Final = "default"
API_URL: Final = "https://api.twilio.com"
#: Twilio's limit.
BODY_LENGTH_MAX: Final = 1_600
NOT_A_NUMBER: Final = (
    "must be a phone number with its country code, like +4930123456; without one, the account needs"
    " a default_region"
)

_PUNCTUATION: Final = re.compile(r"[^0-9+]")
Code = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class Message(Payload, frozen=True, omit_defaults=True):
    """A text to one person: `body`, or a template with its data. Number, text and data are stored
    encrypted.
    """

    to: Personal[Annotated[str, msgspec.Meta(min_length=3, max_length=40)]]
    body: Personal[
        Annotated[str, msgspec.Meta(min_length=1, max_length=BODY_LENGTH_MAX)] | None
    ] = None
    template: Code | None = None
    data: Personal[dict[str, Any]] = msgspec.field(default_factory=dict)
    locale: Annotated[str, msgspec.Meta(min_length=1, max_length=35)] | None = None
    account: Code = DEFAULT

    @property
    def subject(self) -> str:
        """The data subject: the number without punctuation."""
        return _PUNCTUATION.sub("", self.to)


class Account(ConfigBody, frozen=True):
    """An account at Twilio. `auth_token` is its token, or the secret of `api_key_sid`."""

    sent_to: ClassVar = {"auth_token": ("api_url",)}

    account_sid: Annotated[str, msgspec.Meta(pattern="^AC[0-9A-Za-z]{1,64}$", examples=["AC0123"])]
    auth_token: Secret[str]
    #: The number, short code or name of the sender; or a messaging service, which chooses one.
    sender: Annotated[str, msgspec.Meta(min_length=1, max_length=20)] | None = None
    messaging_service_sid: (
        Annotated[str, msgspec.Meta(pattern="^MG[0-9A-Za-z]{1,64}$", examples=["MG0123"])] | None
    ) = None
    #: The account's token where `auth_token` is the secret of an API key: Twilio signs reports with
    #: it.
    callback_token: Secret[str] = ""
    api_key_sid: (
        Annotated[str, msgspec.Meta(pattern="^SK[0-9A-Za-z]{1,64}$", examples=["SK0123"])] | None
    ) = None
    #: The country of numbers without country code, e.g. DE.
    default_region: Annotated[str, msgspec.Meta(pattern="^[A-Z]{2}$", examples=["DE"])] | None = (
        None
    )
    per_second: PerSecond = 10.0
    #: Another address of the API; the private-address guard applies.
    api_url: Annotated[
        str, msgspec.Meta(pattern=r"^https?://[^\s/?#]+[^/]*", max_length=2_048, examples=[API_URL])
    ] = API_URL

    def __repr__(self) -> str:
        return f"Account({self.account_sid})"


def number_of(text: str) -> str | None:
    """The form on the suppression list; it needs a country code."""
    return e164(text, None)


def masked_number(text: str) -> str:
    """`+4930123456` → `+49***56`."""
    number = number_of(text) or ""
    return f"{number[:3]}***{number[-2:]}" if len(number) > 8 else "***"


ADDRESSES: Final = Addresses("sms.suppressed", number_of, masked_number)


def require_library() -> None:
    """Raises MissingExtra with the install command."""
    if find_spec("phonenumbers") is None:
        raise MissingExtra(NAME, "phonenumberslite", "sms")


def e164(number: str, region: str | None) -> str | None:
    """The number as E.164; None when it cannot be one. Only its form is checked, because numbers in
    use change weekly.
    """
    # Imported with the first message, because its tables are large.
    import phonenumbers

    try:
        parsed = phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return None
    return (
        phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)
        if phonenumbers.is_possible_number(parsed)
        else None
    )


def errors_of(message: Message, region: str | None) -> Mapping[str, str]:
    """Field → error, for what the type cannot express. No error quotes the number."""
    errors = {}
    if message.template is not None and message.body is not None:
        errors["template"] = "give either a template or a body, not both"
    elif message.template is None and message.body is None:
        errors["body"] = "missing: a message needs a body or a template"
    if message.template is None and (message.data or message.locale is not None):
        errors["data" if message.data else "locale"] = "only used with a template"
    if e164(message.to, region) is None:
        errors["to"] = NOT_A_NUMBER
    return errors


def tags_of(message: Message, _: str) -> Mapping[str, str]:
    """Codes that every log line about the request carries."""
    return {"accountCode": message.account} | (
        {} if message.template is None else {"templateCode": message.template}
    )


#: One septet each.
_BASIC: Final = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ"
    " !\"#¤%&'()*+,-./0123456789:;<=>?¡"
    "ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
#: Two septets: an escape and the character, which stay together.
_EXTENSION: Final = frozenset("\f^{}\\[~]|€")
#: The capacity of a single message, and of each part of several, which have headers.
_SEPTETS, _SEPTETS_OF_MANY = 160, 153
_UNITS, _UNITS_OF_MANY = 70, 67


class Segments(msgspec.Struct, frozen=True):
    count: int
    encoding: str

    def __str__(self) -> str:
        return f"{self.count} segment{'' if self.count == 1 else 's'}, {self.encoding}"


def segments_of(text: str) -> Segments:
    """How the text is split. A character of two septets or code units is never split."""
    if all(character in _BASIC or character in _EXTENSION for character in text):
        widths = [1 if character in _BASIC else 2 for character in text]
        return Segments(_count(widths, _SEPTETS, _SEPTETS_OF_MANY), "GSM-7")
    widths = [1 if ord(character) < 0x10000 else 2 for character in text]
    return Segments(_count(widths, _UNITS, _UNITS_OF_MANY), "UCS-2")


def _count(widths: list[int], one: int, of_many: int) -> int:
    if sum(widths) <= one:
        return 1
    count, filled = 1, 0
    for width in widths:
        if filled + width > of_many:
            count, filled = count + 1, 0
        filled += width
    return count
