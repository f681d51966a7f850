"""A fake of Twilio's Messages: sends texts, keeps them, and lists them. A repeat is a second text,
as at Twilio.
"""

import base64
import binascii
import hashlib
import hmac
import re
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from gesta.outbound.http import HttpRequest
from gesta.sandbox.receiver import Call, Effect, Fault, Receiver, Reply, retry_after_header

_PATH: Final = re.compile(r"/2010-04-01/Accounts/(?P<account>[^/]+)/Messages\.json$")
_JSON: Final = {"content-type": "application/json"}
#: The status of a code, where it is not 400.
_STATUSES: Final = {"20003": 401, "20404": 404, "20429": 429, "20500": 500, "21610": 400}
_CODES: Final = {401: "20003", 403: "20003", 404: "20404", 429: "20429", 500: "20500", 503: "20503"}
_PAGE: Final = 50
#: The account in the path, which may differ from the user name of the credentials.
_ACCOUNT: Final = "sandbox-account"


class FakeTwilio(Receiver):
    """The fake behind api.twilio.com.

    `on("+15550100", error="21610")` matches one number, `on("AC1", error="20003")` an account.
    """

    name = "twilio"

    def serves(self, request: HttpRequest) -> bool:
        return _PATH.search(urlsplit(request.url).path) is not None

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        headers = {name.lower(): value for name, value in request.headers.items()}
        parts = urlsplit(request.url)
        account, secret = _credentials(headers.get("authorization", ""))
        if not account or not secret:
            return _error(401, "20003")
        if request.method == "GET":
            asked = dict(parse_qsl(parts.query))
            return Call(
                None, "list", asked, headers, b"", "", (account, secret, asked.get("To", ""))
            )
        sent = dict(
            parse_qsl((request.body or b"").decode(errors="replace"), keep_blank_values=True)
        )
        found = _PATH.search(parts.path)
        headers[_ACCOUNT] = "" if found is None else found["account"]
        if not sent.get("To"):
            return _error(400, "21604")
        if not sent.get("Body"):
            return _error(400, "21602")
        return Call(
            None,
            "create",
            sent,
            headers,
            request.body or b"",
            sent["Body"],
            (account, secret, sent["To"]),
        )

    def refusal(self, fault: Fault) -> Reply:
        code = fault.error or _CODES.get(fault.status or 0, "")
        status = fault.status or _STATUSES.get(code, 400)
        return msgspec.structs.replace(
            _error(status, code), headers=_JSON | retry_after_header(fault)
        )

    def answer(self, call: Call) -> Reply | None:
        if call.type != "list":
            return None
        since, page = call.data.get("DateSent>", ""), int(call.data.get("Page") or 0)
        size = int(call.data.get("PageSize") or _PAGE)
        found = [
            _resource(effect)
            for effect in reversed(self.effects)
            if effect.data["To"] == call.data.get("To", effect.data["To"])
            and _moment(effect).date().isoformat() >= since
        ]
        rest = len(found) > (page + 1) * size
        more = (
            f"/2010-04-01/Accounts/{call.names[0]}/Messages.json"
            f"?{urlencode(call.data | {'Page': page + 1})}"
            if rest
            else None
        )
        body = {
            "messages": found[page * size : (page + 1) * size],
            "page": page,
            "next_page_uri": more,
        }
        return Reply(200, msgspec.json.encode(body), _JSON)

    def success(self, effect: Effect) -> Reply:
        effect.id = f"SM{self.performed:032x}"
        effect.data["at_ms"] = self.now_ms
        return Reply(201, msgspec.json.encode(_resource(effect)), _JSON)

    def report(
        self,
        status: str = "delivered",
        *,
        sid: str | None = None,
        error_code: str = "",
        token: str | None = None,
    ) -> HttpRequest:
        """The signed request that Twilio would post about a text, by default the latest.

        `token` is the account's token where the text was sent with the secret of an API key. Raises
        LookupError where no reports were requested.
        """
        effect = next((one for one in reversed(self.effects) if sid in (None, one.id)), None)
        if effect is None:
            raise LookupError("no such text was sent")
        url = effect.data["StatusCallback"]
        _, secret = _credentials(effect.headers.get("authorization", ""))
        fields = {
            "AccountSid": effect.headers[_ACCOUNT],
            "MessageSid": effect.id,
            "MessageStatus": status,
            "To": effect.data["To"],
        }
        if error_code:
            fields["ErrorCode"] = error_code
        signed = url + "".join(name + fields[name] for name in sorted(fields))
        chosen = secret if token is None else token
        signature = base64.b64encode(
            hmac.digest(chosen.encode(), signed.encode(), hashlib.sha1)
        ).decode()
        headers = {
            "X-Twilio-Signature": signature,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return HttpRequest("POST", url, headers, urlencode(fields).encode())


def _resource(effect: Effect) -> dict[str, Any]:
    moment = format_datetime(_moment(effect))
    return {
        "sid": effect.id,
        "to": effect.data["To"],
        "from": effect.data.get("From"),
        "messaging_service_sid": effect.data.get("MessagingServiceSid"),
        "body": effect.data["Body"],
        "direction": "outbound-api",
        "status": "queued",
        "error_code": None,
        "date_created": moment,
        "date_sent": moment,
    }


def _moment(effect: Effect) -> datetime:
    return datetime.fromtimestamp(effect.data["at_ms"] / 1000, UTC)


def _credentials(header: str) -> tuple[str, str]:
    try:
        account, _, secret = (
            base64.b64decode(header.removeprefix("Basic "), validate=True).decode().partition(":")
        )
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return account, secret


def _error(status: int, code: str) -> Reply:
    body = {"code": int(code or 0), "message": "refused by the sandbox", "status": status}
    return Reply(status, msgspec.json.encode(body) if code else b"", _JSON)
