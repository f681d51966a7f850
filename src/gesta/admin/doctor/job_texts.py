"""Searches what queues store about jobs for secrets, and for personal data that stays there. Pure.

The findings name queue, state and field, never a value.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gesta.admin.doctor.checks import Finding
from gesta.admin.wording import count_of
from gesta.errors import BadInput
from gesta.ports.foreign_jobs import JobTexts
from gesta.runtime.redaction import scrub
from gesta.stores.pointers import pointer_of

#: Texts are searched in pieces that overlap: `scrub` looks at the beginning of a text only.
PIECE, OVERLAP = 1_500, 300
SECRET = ("[token]", "[tax id]")
PERSONAL = ("[email]", "[phone]")


def job_findings(sampled: Sequence[JobTexts]) -> list[Finding]:
    """One finding for each queue, state and field that holds what it should not hold."""
    secret: Counter[tuple[str, str, str]] = Counter()
    personal: Counter[tuple[str, str, str]] = Counter()
    for job in sampled:
        secrets, people = _fields(job)
        secret.update((job.flow, job.state, field) for field in secrets)
        personal.update((job.flow, job.state, field) for field in people - secrets)
    return [
        *(
            Finding(
                "bad",
                f"queue of {flow}",
                f"{count_of(count, f'{state} job')} with a secret, or more than a pointer, in"
                f" {field}",
                "find out which program wrote it, change the secret, and remove the job",
            )
            for (flow, state, field), count in sorted(secret.items())
        ),
        *(
            Finding(
                "warn",
                f"queue of {flow}",
                f"{count_of(count, f'{state} job')} with an address or a phone number in {field}",
                "let the producer set removeOnComplete and removeOnFail, so that the job is"
                " removed",
            )
            for (flow, state, field), count in sorted(personal.items())
        ),
    ]


def _fields(job: JobTexts) -> tuple[set[str], set[str]]:
    """The fields with secrets, and those with personal data. In a job of gesta both are wrong."""
    secret: set[str] = set()
    personal: set[str] = set()
    for name, text in job.texts.items():
        for path, found in _leaves(name, _parsed(text)):
            marks = _marks(found)
            if any(mark in marks for mark in SECRET):
                secret.add(path)
            if any(mark in marks for mark in PERSONAL):
                personal.add(path)
    if job.is_own and not _is_pointer(job):
        secret.add("data")
    return (secret | personal, set()) if job.is_own else (secret, personal)


def _is_pointer(job: JobTexts) -> bool:
    try:
        pointer_of(job.flow, job.texts.get("data", ""))
    except BadInput:
        return False
    return True


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Path → `"name": "text"`, because some secrets are recognised by their name only.

    A name may hold anything: one that is no identifier is left out of the path.
    """
    if isinstance(value, dict):
        for name, one in value.items():
            yield path, name
            shown = name if name.isidentifier() and scrub(name) == name else "…"
            yield from _leaves(f"{path}.{shown}", one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(path, one)
    elif isinstance(value, str):
        yield path, f'"{path.rpartition(".")[2]}": "{value}"'
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path, str(value)


def _marks(text: str) -> str:
    step = PIECE - OVERLAP
    pieces = (text[at : at + PIECE] for at in range(0, max(1, len(text) - OVERLAP), step))
    # Marks make a text longer.
    scrubbed = ((one, scrub(one, 4 * PIECE)) for one in pieces)
    return "".join(after for before, after in scrubbed if after != before)
