"""What the engine itself has to say, as a letter.

Its body is kept like any other, under a name that the same notice has again.
"""

from __future__ import annotations

import hashlib
from html import escape

from gesta.domain.ids import id_text
from gesta.flows.email.addresses import address_fault
from gesta.flows.email.keeping import BODY
from gesta.flows.email.message import DEFAULT, Message
from gesta.flows.email.rules import SUBJECT_LENGTH_MAX
from gesta.flows.email.sender import SENDER
from gesta.flows.flow import Notice, Notices, Payload
from gesta.tenants.config import TenantConfig
from gesta.tenants.flow_records import TenantRecords


async def _write(address: str, notice: Notice, records: TenantRecords) -> Payload:
    html = f"<p>{escape(notice.text)}</p>".encode()
    name = id_text(hashlib.sha256(notice.key.encode() + b"\0" + html).digest()[:16])
    # Written before already: it is the same.
    await records.put(BODY, name, 1, html)
    subject = f"gesta: {notice.title}"
    return Message(address, subject[:SUBJECT_LENGTH_MAX], f"db:{name}")


def _fault(address: str, config: TenantConfig) -> str:
    if fault := address_fault(address):
        return f"the address {fault}"
    return "" if config.find(SENDER, DEFAULT) is not None else f"there is no {SENDER} {DEFAULT}"


NOTICES = Notices(_write, _fault)
