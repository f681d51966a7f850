"""/v1/reports: what providers post about what they have taken.

Their signature is the access; whatever is forged gets one answer.
"""

from gesta.errors import InvalidSignature
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Route
from gesta.intake.provider_reports import BODY_BYTES_MAX

FORM = "application/x-www-form-urlencoded"


async def report_of_twilio(call: Call) -> Answer:
    """A status callback. Its URL is ours, so Twilio's signature says which request it is about."""
    return await _leased(call, "twilio", (call.params["account"], call.params["id"]))


async def report_of_ses(call: Call) -> Answer:
    """A message of SNS about letters, or its question whether it may send such messages."""
    return await _leased(call, "ses", ())


async def _leased(call: Call, provider: str, parts: tuple[str, ...]) -> Answer:
    try:
        await call.pipeline.reports.take(
            provider, call.params["tenant"], parts, call.header, call.raw
        )
    except InvalidSignature as forged:
        raise Problem(403, "forged", str(forged)) from None
    # Also for what was told before, and for what is about nothing here: the provider need not say
    # it again.
    return Answer(status=204)


ROUTES = [
    Route(
        "POST",
        "/v1/reports/twilio/{tenant}/{account}/{id}",
        report_of_twilio,
        None,
        "Twilio's status callbacks",
        "reports",
        status=204,
        problems=(403,),
        takes=FORM,
        body_bytes_max=BODY_BYTES_MAX,
        headers={"X-Twilio-Signature": "HMAC-SHA1 of URL and fields under the account's token"},
    ),
    Route(
        "POST",
        "/v1/reports/ses/{tenant}",
        report_of_ses,
        None,
        "Bounces, complaints and deliveries of SES, by SNS",
        "reports",
        status=204,
        problems=(403,),
        takes="text/plain",
        body_bytes_max=BODY_BYTES_MAX,
    ),
]
