"""The one way out by SMTP.

Receives envelopes from a flow (`attempt.mail`); what the server said comes back as an answer, word
for word.

`transport.py` is the port, `smtp_transport.py` the real one, `gesta.sandbox.smtp` its double. What
an answer means for a request is the
flow's to say. aiosmtplib is imported when the first letter goes out.
"""

from gesta.outbound.smtp.transport import (
    Envelope,
    Mail,
    MailAnswer,
    MailFault,
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
    "MailFault",
    "MailReply",
    "MailServer",
    "MailTransport",
    "NoMail",
    "Stage",
]
