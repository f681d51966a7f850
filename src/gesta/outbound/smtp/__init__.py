"""SMTP for executors (`attempt.mail`).

`transport.py` is the port, `smtp_transport.py` the real transport, `gesta.sandbox.smtp` its fake.
The flow decides what an answer means. aiosmtplib is imported for the first e-mail.
"""

from gesta.outbound.smtp.transport import (
    Envelope,
    Mail,
    MailAnswer,
    MailError,
    MailReply,
    MailServer,
    MailTransport,
    NoMail,
    Stage,
)

__all__ = [
    "Envelope",
    "Mail",
    "MailAnswer",
    "MailError",
    "MailReply",
    "MailServer",
    "MailTransport",
    "NoMail",
    "Stage",
]
