"""What an executor says of people and secrets is hidden before it is stored, wherever it says
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from gesta import Done, Engine, Payload, Personal, Rejected, Retry, Unknown
from gesta.worker.outcome_sanitizer import discreet, without_texts
from tests.security.people import ANA, URL, flow_of
from tests.world import Gate, Provider, all_events, let_run


@dataclass
class Name:
    first: str


class File(Payload, frozen=True):
    number: Personal[int]
    born: Personal[date]
    words: Personal[dict[str, str]]
    who: Personal[Name]
    size: Personal[int] = 500


FILE = File(87654321, date(1980, 2, 3), {"Ana Lima": "a friend"}, Name("Benedita"))


def test_numbers_dates_names_of_things_and_parts_of_dataclasses_are_hidden():
    reported = discreet(
        Rejected("no", "87654321 of 1980-02-03, Ana Lima, a friend of Benedita"), FILE, ()
    )
    assert reported == Rejected("no", "[hidden] of [hidden], [hidden], [hidden] of [hidden]")


def test_a_reason_is_hidden_like_a_detail_and_a_target():
    assert discreet(Retry("token open sesame refused"), FILE, ["open sesame"]) == Retry(
        "token [hidden] refused"
    )
    assert discreet(Done("p-1", target="Benedita"), FILE, ()) == Done("p-1", target="[hidden]")


def test_a_short_number_is_no_secret_part_of_a_label():
    assert discreet(Retry("http_500"), FILE, ()) == Retry("http_500")


def test_of_an_unreadable_value_only_a_label_is_kept():
    assert without_texts(Rejected("no_mailbox", "of Ana")) == Rejected("no_mailbox")
    assert without_texts(Rejected("no mailbox of Ana")) == Rejected("reported")
    assert without_texts(Done("p-1", "Ana", "to Ana")) == Done("p-1")


async def test_the_name_in_a_reason_is_in_no_event_and_goes_with_the_person(gesta):
    provider = Provider(Rejected("no mailbox for Ana Lima", "no mailbox for Ana Lima"))
    async with Engine(URL, flows=[flow_of(provider)]) as engine:
        request = await engine.submit(ANA)
        await let_run(gesta)
        state = (await request.view()).state
        hidden = "no mailbox for [hidden]"
        assert (state.reason, state.detail) == ("rejected", f"{hidden}: {hidden}")
        assert not any(b"mailbox" in event.data for event in await all_events(engine))
        await engine.erase("Ana Lima")
        assert (await request.view()).state.detail == "[erased]"


async def test_a_text_about_several_people_is_unreadable_once_any_of_them_is_erased(gesta):
    async with Engine(URL, flows=[flow_of(Provider(Rejected("no", "a text")))]) as engine:
        request = await engine.submit(ANA)
        await let_run(gesta)
        assert (await request.view()).state.detail == "a text"
        await engine.erase("Bo")
        assert (await request.view()).state.detail == "[erased]"


async def test_an_outcome_is_recorded_without_its_text_while_the_vault_does_not_answer(
    gesta, ports
):
    gate = Gate(Rejected("no", "a text"))
    async with Engine(URL, flows=[flow_of(Provider(gate))]) as engine:
        request = await engine.submit(ANA)
        await let_run(gesta)
        ports.vault.fail("get")
        gate.opened.set()
        await let_run(gesta)
        state = (await request.view()).state
        assert (state.status, state.reason, state.detail) == ("failed", "no", "")


async def test_a_command_writes_no_text_in_clear_that_was_encrypted(gesta):
    """Whatever a decision copies from the request is copied as it is stored."""
    provider = Provider(Unknown("lost"), Rejected("no", "a text"))
    async with Engine(URL, flows=[flow_of(provider)]) as engine:
        request = await engine.submit(ANA)
        await gesta.settle()
        assert (await request.view()).state.detail == "a text"
        await request.resolve("not_executed", by="ops", evidence="looked")
        copied = (await all_events(engine))[-1]
        assert (copied.type, b"a text" in copied.data) == ("test.letter.Failed.v1", False)
        assert (await request.view()).state.detail == "a text"
