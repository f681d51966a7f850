"""/v1/reports: delivery receipts that providers post.

A signature authenticates them. Every forged report gets the same answer.
"""

from gesta.errors import InvalidSignature
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Route
from gesta.intake.provider_reports import BODY_BYTES_MAX

FORM = "application/x-www-form-urlencoded"


async def report_of_twilio(call: Call) -> Answer:
    """A status callback of Twilio. The signature covers the URL, which names the request."""
    return await _accept(call, "twilio", (call.params["account"], call.params["id"]))


async def report_of_ses(call: Call) -> Answer:
    """A message of SNS about e-mails, or its request to confirm the subscription."""
    return await _accept(call, "ses", ())


async def _accept(call: Call, provider: str, parts: tuple[str, ...]) -> Answer:
    try:
        await call.pipeline.reports.take(
            provider, call.params["tenant"], parts, call.header, call.raw
        )
    except InvalidSignature as forged:
        raise Problem(403, "forged", str(forged)) from None
    # Also for repeated reports and unknown requests: the provider must not send them again.
    return Answer(status=204)


ROUTES = [
    Route(
        "POST",
        "/v1/reports/twilio/{tenant}/{account}/{id}",
        report_of_twilio,
        None,
        "Receive status callbacks of Twilio",
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
        "Receive bounces, complaints and deliveries of SES",
        "reports",
        status=204,
        problems=(403,),
        takes="text/plain",
        body_bytes_max=BODY_BYTES_MAX,
    ),
]
