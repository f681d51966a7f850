"""Free texts of executors: personal data in any spelling is in no file and no log line, and is
unreadable once the person is erased.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import urllib.parse
from collections.abc import Callable

import pytest

from gesta import (
    Attempt,
    Done,
    Engine,
    Flow,
    Outcome,
    Payload,
    Personal,
    Rejected,
    RetryPolicy,
    Unknown,
)
from gesta.domain.commands import Rules
from gesta.flows.deferrals import CredentialRefused
from tests.searches.forms import files_of

NAME, EMAIL = "Zoë Quixfield", "zoe.quixfield@planted.example"
#: How a provider or a library may write a person's data into an error text.
SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "JSON escapes": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "URL encoding": lambda text: urllib.parse.quote(text, safe=""),
    "URL encoding twice": lambda text: urllib.parse.quote(urllib.parse.quote(text, safe="")),
    "form encoding": urllib.parse.quote_plus,
    "upper case": str.upper,
    "lower case": str.lower,
    "repr of bytes": lambda text: repr(text.encode()),
    "without accents": lambda text: text.replace("ë", "e"),
    "part of a name": lambda text: text.split()[-1],
    "part of a name, in a code": lambda text: f"no_{text.split()[-1].lower()}",
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "reversed": lambda text: text[::-1],
}
#: What must not be found, in lower case: every spelling above contains one of these.
TRACES = [
    b"quixfield",
    b"dleifxiuq",
    *{base64.b64encode(text.encode()).lower().rstrip(b"=")[:16] for text in (NAME, EMAIL)},
]


class Letter(Payload, frozen=True):
    name: Personal[str]
    email: Personal[str]
    spelling: str
    ends: str

    @property
    def subject(self) -> str:
        return "customer-7"


class Note(Payload, frozen=True):
    """Without a subject: each personal field is its own data subject."""

    name: Personal[str]
    email: Personal[str]
    spelling: str
    ends: str


async def send(letter: Letter | Note, attempt: Attempt) -> Outcome:
    written = SPELLINGS[letter.spelling]
    text = f"{written(letter.name)} refused, also {written(letter.email)}"
    match letter.ends:
        case "done":
            return Done("p-1", target=text, detail=text)
        case "rejected":
            return Rejected(text, text)
        case "unknown":
            return Unknown(text, text)
        case "refused":
            raise CredentialRefused("shop.account/main", text, text)
        case _:
            raise ValueError(text)


def shown_in_logs(letter: Letter | Note) -> str:
    """What the flow's own functions give to log lines. Only spellings can be hidden there."""
    is_spelling = letter.spelling not in ("base64", "reversed")
    return SPELLINGS[letter.spelling](letter.name) if is_spelling else "shop"


def flow_of(kind: type[Payload]) -> Flow:
    return Flow(
        f"shop.{kind.__name__.lower()}",
        kind,
        send,
        Rules(RetryPolicy(attempts=1), "manual"),
        target=shown_in_logs,
        tags=lambda letter, _: {"who": shown_in_logs(letter)},
    )


def found(content: bytes) -> list[bytes]:
    return [trace for trace in TRACES if trace in content.lower()]


@pytest.mark.parametrize("kind", [Letter, Note])
async def test_no_spelling_of_personal_data_is_stored_or_logged_and_erase_removes_it(
    tmp_path, caplog, kind
):
    caplog.set_level(logging.DEBUG, "gesta")
    url = f"sqlite:///{tmp_path / 'gesta.db'}"
    flows, ids = [flow_of(kind)], []
    async with Engine(url, flows=flows) as engine:
        for spelling in SPELLINGS:
            for end in ("done", "rejected", "unknown", "raised"):
                request = await engine.submit(kind(NAME, EMAIL, spelling, end))
                outcome = await request.outcome()
                # The text is there for those who may read the request.
                assert outcome.detail, (spelling, end)
                ids.append(request.id)
            await engine.submit(kind(NAME, EMAIL, spelling, "refused"))
        while not await engine.admin.paused():
            await asyncio.sleep(0.01)
        metrics = engine.metrics()
    logged = "".join(record.getMessage() for record in caplog.records)
    assert "executor raised" in logged
    assert found(logged.encode() + metrics) == []
    assert [name for name, content in files_of(tmp_path).items() if found(content)] == []
    async with Engine(url, flows=flows) as engine:
        assert await engine.erase("customer-7" if kind is Letter else NAME) == 1
        for request_id in ids:
            # Nothing of the text is readable any more, in whichever spelling: G7.
            view = await engine.get(request_id)
            shown = repr((view.state, await engine.history(request_id))).encode()
            assert (found(shown), b"refused, also" in shown) == ([], False)
            assert "[erased]" in view.state.detail
    assert [name for name, content in files_of(tmp_path).items() if found(content)] == []
