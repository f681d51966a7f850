"""One tenant tries every public call with the ids, keys and codes of another: it finds nothing,
changes nothing, is shown nothing.

The calls are those that the public classes and the command line have; one that is new and has no
case here fails the test.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from gesta import Actor, Engine, NotFound, Options, Request
from gesta.admin.admin import Admin
from gesta.admin.request_queries import Narrow
from gesta.api_types.bulk import Bulk, BulkProgress
from gesta.cli.main import COMMANDS, GROUPS
from gesta.intake.submit import Accepted
from gesta.ports.read_model import Filter
from gesta.requests.pages import Page
from gesta.runtime.clock import run
from gesta.worker.external import RecordSent, WorkItem
from gesta.worker.external.external import External
from tests.cli.conftest import cli, folder, start
from tests.searches.other_tenant import (
    APP,
    CODE,
    FIELDS,
    INTRUDER,
    KIND,
    OWNER,
    PARCELS,
    PERSON,
    WORD,
    Letter,
    Planted,
    all_of_the_owner,
    flows,
    plant,
)

__all__ = ["cli", "folder", "start"]

#: Asked under the intruder's name for something that is the owner's, by a name that is the owner's:
#: each ends in NotFound.
Act = Callable[[Engine, str], Awaitable[object]]
NOT_FOUND: dict[str, Act] = {
    "Engine.request": lambda engine, name: engine.request(name, tenant=INTRUDER),
    "Engine.get": lambda engine, name: engine.get(name, tenant=INTRUDER),
    "Engine.history": lambda engine, name: engine.history(name, tenant=INTRUDER),
    "Admin.look_up": lambda engine, name: engine.admin.look_up(name, INTRUDER),
    "Admin.dead_letter": lambda engine, name: engine.admin.dead_letter(name, INTRUDER),
    "Admin.delete_config": lambda engine, _: engine.admin.delete_config(
        KIND, CODE, tenant=INTRUDER
    ),
    "Admin.get_config": lambda engine, _: engine.admin.get_config(KIND, CODE, tenant=INTRUDER),
    "Admin.template": lambda engine, _: engine.admin.template(CODE, tenant=INTRUDER),
    "Admin.preview": lambda engine, _: engine.admin.preview(CODE, {}, tenant=INTRUDER),
    "Admin.revoke_key": lambda engine, name: engine.admin.revoke_key(
        name, tenant=INTRUDER, actor=Actor("me")
    ),
    "Admin.resume_bulk": lambda engine, _: anext(
        engine.admin.resume_bulk(1, "redrive", tenant=INTRUDER)
    ),
    "Admin.unsuppress_entry": lambda engine, name: engine.admin.unsuppress_entry(
        "shop.letter", name, tenant=INTRUDER
    ),
    "Request.view": lambda engine, name: handle(engine, name).view(),
    "Request.payload": lambda engine, name: handle(engine, name).payload(),
    "Request.status": lambda engine, name: handle(engine, name).status(),
    "Request.outcome": lambda engine, name: handle(engine, name).outcome(timeout=1),
    "Request.cancel": lambda engine, name: handle(engine, name).cancel(),
    "Request.retry": lambda engine, name: handle(engine, name).retry(),
    "Request.redrive": lambda engine, name: handle(engine, name).redrive(again=True),
    "Request.resolve": lambda engine, name: handle(engine, name).resolve(
        "executed", by="me", evidence="none"
    ),
    "Request.capture": lambda engine, name: handle(engine, name).capture(key="k"),
    "Request.post": lambda engine, name: handle(engine, name).post(key="k"),
    "Request.refund": lambda engine, name: handle(engine, name).refund(key="k"),
    "Request.void": lambda engine, name: handle(engine, name).void(key="k"),
    "Request.reverse": lambda engine, name: handle(engine, name).reverse(key="k"),
    "Request.purge": lambda engine, name: handle(engine, name).purge(),
}

#: Listings: empty.
EMPTY: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "Engine.find": lambda engine: engine.find(tenant=INTRUDER),
    "Admin.by_key": lambda engine: engine.admin.by_key(f"{WORD} done", INTRUDER),
    "Admin.counts": lambda engine: engine.admin.counts(INTRUDER),
    "Admin.quarantined": lambda engine: engine.admin.quarantined(INTRUDER),
    "Admin.dead_letters": lambda engine: engine.admin.dead_letters(INTRUDER),
    "Admin.dead_letter_page": lambda engine: items(engine.admin.dead_letter_page(INTRUDER)),
    "Admin.dead_letter_reasons": lambda engine: engine.admin.dead_letter_reasons(INTRUDER),
    "Admin.request_page": lambda engine: items(
        engine.admin.request_page(
            engine.pipeline.environment.stores.read_model.find, Filter(INTRUDER), Narrow()
        )
    ),
    "Admin.bulk": lambda engine: matched(
        engine.admin.bulk(Bulk(action="redrive", flow="shop.letter", dry_run=True), tenant=INTRUDER)
    ),
    "Admin.undecided_page": lambda engine: items(engine.admin.undecided_page(INTRUDER)),
    "Admin.stored_beside": lambda engine: engine.admin.stored_beside(
        KIND, CODE, set(), tenant=INTRUDER
    ),
    "Admin.config_version": lambda engine: engine.admin.config_version(KIND, CODE, tenant=INTRUDER),
    "Admin.paused": lambda engine: engine.admin.paused(INTRUDER),
    "Admin.list_config": lambda engine: engine.admin.list_config(INTRUDER),
    "Admin.list_keys": lambda engine: engine.admin.list_keys(INTRUDER),
    "Admin.audit": lambda engine: engine.admin.audit(INTRUDER),
    "Admin.event_webhooks": lambda engine: engine.admin.event_webhooks(INTRUDER),
    "Admin.suppressed": lambda engine: engine.admin.suppressed(
        "shop.letter", PERSON, tenant=INTRUDER
    ),
    "Admin.unsuppress": lambda engine: engine.admin.unsuppress(
        "shop.letter", PERSON, tenant=INTRUDER
    ),
    "Admin.list_suppressed": lambda engine: first(
        engine.admin.list_suppressed("shop.letter", tenant=INTRUDER)
    ),
    "External.take": lambda engine: engine.external.take(PARCELS, tenant=INTRUDER, limit=100),
}

#: Asked for work that the owner has in hand, with the owner's own id and token: each ends in
#: NotFound.
IN_HAND: dict[str, Callable[[External, WorkItem], Awaitable[object]]] = {
    "External.fetch": lambda work, item: work.fetch(PARCELS, item.id, item.token, tenant=INTRUDER),
    "External.extend": lambda work, item: work.extend(
        PARCELS, item.id, item.token, tenant=INTRUDER
    ),
    "External.report": lambda work, item: work.report(
        PARCELS, item.id, item.token, RecordSent(attempts=1), tenant=INTRUDER
    ),
}


async def matched(run: AsyncGenerator[BulkProgress, None]) -> int:
    return sum([progress.matched async for progress in run])


async def first(asked: Awaitable[tuple[Any, object]]) -> Any:
    return (await asked)[0]


#: What has an effect of the intruder's own, whatever the owner has under the same key or code.
OWN = {
    "Engine.submit",
    "Engine.submit_many",
    "Engine.erase",
    "Admin.erase",
    "Admin.put_config",
    "Admin.check_config",
    "Admin.create_key",
    "Admin.suppress",
    "External.give_back",
}

#: Calls that name no tenant, and why they show none.
WITHOUT_TENANT = {
    "Engine.add": "declares a flow",
    "Engine.add_component": "declares a component of this process",
    "Engine.components": "of this process",
    "Engine.every": "declares a schedule of this process",
    "Engine.schedule": "declares a schedule of this process",
    "Engine.schedules": "of this process",
    "Admin.reconcile": "needs the gateway of its own tenant's config: tests/payments",
    "Engine.flows": "of this process",
    "Engine.flow": "of this process",
    "Engine.payload": "reads what the caller gives",
    "Engine.pipeline": "the inside of the engine",
    "Engine.admin": "see Admin",
    "Engine.external": "see External",
    "External.stop": "of this process",
    "Engine.notes": "of this process",
    "Engine.is_running": "of this process",
    "Engine.web": "the API, whose routes are walked by themselves: tests/http_api",
    "Engine.metrics": "no tenant in a label; searched below",
    "Engine.start": "of this process",
    "Engine.stop": "of this process",
    "Engine.on": "declares a handler of this process, which gets events of every tenant",
    "Engine.subscribe": "declares a handler of this process",
    "Engine.subscriptions": "of this process",
    "Engine.lifespan": "of this process",
    "Admin.is_worked_on": "of the installation: yes or no",
    "Admin.unseen": "of the installation: a number",
    "Admin.pause_everything": "of the installation: nothing",
    "Admin.resume_everything": "of the installation: a number",
    "Admin.pause": "its own tenant, or a flow of the installation; see the test of pausing",
    "Admin.resume": "its own tenant, or a flow of the installation; see the test of pausing",
    "Admin.pauses_of": "takes views, and those of another tenant cannot be had",
    "Admin.shown_payload": "takes a view, and those of another tenant cannot be had",
    "Admin.held": "of the installation: for those who run it",
    "Admin.rebuild": "of the installation: a number",
    "Admin.handlers": "of the installation: for those who run it",
    "Admin.forget_handler": "of the installation: for those who run it",
    "Admin.request": "takes a dead letter, and those of another tenant cannot be had",
}


def handle(engine: Engine, name: str) -> Request:
    return Request(engine.pipeline, Accepted("shop.letter", INTRUDER, name, "duplicate"))


async def items(page: Awaitable[Page[Any]]) -> list[Any]:
    return (await page).items


def public_calls() -> set[str]:
    return {
        f"{kind.__name__}.{name}"
        for kind in (Engine, Admin, External, Request)
        for name, value in inspect.getmembers(kind)
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }


def test_every_public_call_has_its_case():
    assert public_calls() == {*NOT_FOUND, *EMPTY, *IN_HAND, *OWN, *WITHOUT_TENANT}


async def refusal(call: str, asked: Awaitable[object]) -> str:
    """What the caller gets when nothing is found."""
    try:
        shown = await asked
    except NotFound as error:
        return str(error)
    raise AssertionError(f"{call} answered {shown!r}")


async def searched(planted: Planted, engine: Engine) -> None:
    """Every case once; raises what is not as it should be."""
    for call, ask in NOT_FOUND.items():
        for name in planted.names:
            assert WORD not in (await refusal(call, ask(engine, name))).replace(CODE, ""), call
    for call, look in EMPTY.items():
        assert not await look(engine), call
    for call, reach in IN_HAND.items():
        assert WORD not in await refusal(call, reach(engine.external, planted.item)), call
    assert WORD not in engine.metrics().decode()


@pytest.mark.parametrize("lags", [False, True])
async def test_the_requests_and_config_of_another_tenant_cannot_be_had(gesta, lags):
    async with Engine("memory:tenants", flows=flows()) as engine:
        planted = await plant(engine)
        if lags:
            # As long as the views are behind, requests are read from their streams alone.
            await (await engine.pipeline.environment.stores.read_model.shadow()).swap(
                ["projector"], 0, []
            )
        before = await all_of_the_owner(engine, planted)
        await searched(planted, engine)
        assert await all_of_the_owner(engine, planted) == before


async def test_the_same_key_and_code_of_two_tenants_are_two_things(gesta):
    async with Engine("memory:tenants", flows=flows()) as engine:
        planted = await plant(engine)
        before = await all_of_the_owner(engine, planted)
        again = await engine.submit(Letter(), key=f"{WORD} done", tenant=INTRUDER)
        many = await engine.submit_many(
            [(Letter(text="other"), Options(key=f"{WORD} failed", tenant=INTRUDER))]
        )
        assert [one.verdict for one in (again, *many) if isinstance(one, Request)] == [
            "created",
            "created",
        ]
        assert not {again.id, *(one.id for one in many if isinstance(one, Request))} & {
            *planted.ids.values()
        }
        await engine.admin.check_config(KIND, CODE, dict(FIELDS), tenant=INTRUDER)
        mine = await engine.admin.put_config(
            KIND, CODE, {"url": "https://mine.example.com", "token": "t"}, tenant=INTRUDER
        )
        assert mine.version == 1
        await again.outcome()
        await engine.admin.delete_config(KIND, CODE, tenant=INTRUDER)
        assert await all_of_the_owner(engine, planted) == before


async def test_a_tenant_pauses_and_resumes_itself_only(gesta):
    async with Engine("memory:tenants", flows=flows()) as engine:
        planted = await plant(engine)
        before = await all_of_the_owner(engine, planted)
        await engine.admin.pause(tenant=OWNER, reason=WORD)
        assert await engine.admin.paused(INTRUDER) == []
        with pytest.raises(NotFound):
            await engine.admin.resume(tenant=INTRUDER)
        await engine.admin.resume(tenant=OWNER)
        await engine.admin.pause(tenant=INTRUDER)
        assert await engine.admin.paused(OWNER) == []
        assert await all_of_the_owner(engine, planted) == before


async def test_a_person_is_erased_for_one_tenant_only(gesta):
    async with Engine("memory:tenants", flows=flows()) as engine:
        planted = await plant(engine)
        before = await all_of_the_owner(engine, planted)
        assert await engine.erase(PERSON, tenant=INTRUDER) == 0
        assert await engine.admin.erase(PERSON, tenant=INTRUDER) == 0
        assert await all_of_the_owner(engine, planted) == before
        waiting = await engine.request(planted.ids["waiting"], tenant=OWNER)
        assert await waiting.payload() == Letter()


async def test_an_address_is_put_on_the_list_of_one_tenant_only(gesta):
    async with Engine("memory:tenants", flows=flows()) as engine:
        planted = await plant(engine)
        before = await all_of_the_owner(engine, planted)
        for address in (PERSON, "another person"):
            mine = await engine.admin.suppress(
                "shop.letter", address, reason="mine", tenant=INTRUDER
            )
            assert (mine.suppressed.reason, mine.id != planted.entry_id) == ("mine", True)
        assert await engine.admin.suppressed("shop.letter", "another person", tenant=OWNER) is None
        assert await engine.admin.unsuppress("shop.letter", PERSON, tenant=INTRUDER)
        assert await all_of_the_owner(engine, planted) == before


async def test_no_tenant_releases_the_work_of_another_tenant(gesta):
    async with Engine("memory:tenants", flows=flows()) as engine:
        planted = await plant(engine)
        waiting = {one.state.id for one in await engine.find(tenant=OWNER, flow=PARCELS)} - {
            planted.item.id
        }
        await engine.external.give_back([planted.item], tenant=INTRUDER)
        left = await engine.external.take(PARCELS, tenant=OWNER, limit=100)
        assert {one.id for one in left} == waiting
        assert (
            await engine.external.fetch(PARCELS, planted.item.id, planted.item.token, tenant=OWNER)
            == planted.item
        )


async def test_a_key_is_its_tenants_alone(gesta):
    async with Engine("memory:tenants", flows=flows()) as engine:
        planted = await plant(engine)
        before = [await all_of_the_owner(engine, planted), await engine.admin.audit(OWNER)]
        mine, text = await engine.admin.create_key(name="mine", tenant=INTRUDER, actor=Actor("me"))
        assert (await engine.pipeline.keys.check(text)).tenant == INTRUDER
        assert await engine.admin.list_keys(INTRUDER) == [mine]
        await engine.admin.revoke_key(mine.id, tenant=INTRUDER, actor=Actor("me"))
        assert [one.about for one in await engine.admin.audit(INTRUDER)] == [mine.id, mine.id]
        assert [
            await all_of_the_owner(engine, planted),
            await engine.admin.audit(OWNER),
        ] == before


#: What each command is given; {name}: the owner's name for a request. Exit code 3: not found.
COMMANDS_NOT_FOUND = {
    "show": ["{name}"],
    "doctor": ["{name}"],
    "retry": ["{name}"],
    "cancel": ["{name}"],
    "redrive": ["{name}", "--again"],
    "resolve": ["{name}", "--succeeded", "--evidence", "none"],
    "dlq show": ["{name}"],
    "dlq redrive": ["{name}", "--again"],
    "dlq purge": ["{name}"],
    "config get": [KIND, CODE],
    "config delete": [KIND, CODE],
    "template preview": [CODE],
    "key revoke": ["{name}"],
    "tx show": ["{name}"],
    "tx capture": ["{name}", "--key", "k"],
    "tx post": ["{name}", "--key", "k"],
    "tx refund": ["{name}", "--key", "k"],
    "tx void": ["{name}"],
    "tx reverse": ["{name}"],
}
COMMANDS_EMPTY = [
    ["list"],
    ["list", "--quarantined"],
    ["list", "--json"],
    ["dlq list"],
    ["dlq list", "--json"],
    ["dlq redrive", "--all", "--again"],
    ["dlq purge", "--all"],
    ["config list"],
    ["config list", "--json"],
    ["key list"],
    ["key list", "--json"],
    ["tx unknown"],
    ["tx unknown", "--json"],
]
COMMANDS_WITHOUT_TENANT = {
    "demo": "a store of its own",
    "docs": "of the program: no store is opened",
    "openapi": "of the program: no store is opened",
    "api": "tests/http_api walks its routes",
    "serve": "works for all tenants and prints nothing of them",
    "worker": "as serve",
    "copy": "of the installation, or of the tenant that is named: numbers",
    "rebuild": "of the installation: a number",
    "settings": "of this process",
    "pause": "its own requests; see the test of pausing",
    "resume": "its own requests; see the test of pausing",
    "erase": "its own people; see the test of erasing",
    "submit": "its own request; see the test of the same key",
    "config put": "its own entity; see the test of the same code",
    "key create": "its own key; see the test of keys",
    "config apply": "its own entities; see the test of the same code",
    "tail": "see the test of tail",
    "tx authorize": "its own transaction, as submit",
    "reconcile": "needs the gateway of its own tenant's config: tests/payments",
    "jobs migrate": "of the installation: numbers",
    "sandbox slack-event": "of the program: no store is opened",
    "dlq inbound": "of the installation: a queue that other programs share",
    "dlq redrive-inbound": "as dlq inbound",
    "dlq purge-inbound": "as dlq inbound",
}


def test_every_command_has_its_case():
    commands = {name for panel in COMMANDS.values() for name in panel}
    commands |= {f"{group} {name}" for group, (_, names) in GROUPS.items() for name in names}
    assert commands == {
        *COMMANDS_NOT_FOUND,
        *(one[0] for one in COMMANDS_EMPTY),
        *COMMANDS_WITHOUT_TENANT,
    }


async def planted_in_a_file() -> tuple[Planted, list[Any]]:
    async with Engine("sqlite:///gesta.db", flows=flows()) as engine:
        planted = await plant(engine)
        return planted, await all_of_the_owner(engine, planted)


async def owner_in_the_file(planted: Planted) -> list[Any]:
    async with Engine("sqlite:///gesta.db", flows=flows(), work=False) as engine:
        return await all_of_the_owner(engine, planted)


@pytest.mark.slow
def test_no_command_shows_or_changes_what_is_another_tenants(cli):
    planted, before = run(planted_in_a_file())
    asked = [
        [*command.split(), *(one.format(name=name) for one in rest)]
        for command, rest in COMMANDS_NOT_FOUND.items()
        for name in planted.names[:: 1 if "{name}" in rest else len(planted.names)]
    ]
    for command in asked:
        answer = cli(*command, "--app", APP, "--tenant", INTRUDER)
        assert answer.code == 3, (command, answer)
        assert WORD not in (answer.out + answer.err).replace(CODE, ""), command
    for first, *rest in COMMANDS_EMPTY:
        answer = cli(*first.split(), *rest, "--app", APP, "--tenant", INTRUDER)
        assert answer.code == 0, (first, rest, answer)
        # A bulk run prints how many requests it decided about.
        shown = answer.items if "--json" in rest else answer.out
        assert shown in ([], "", "0\n"), (first, answer)
        assert WORD not in answer.err
    assert run(owner_in_the_file(planted)) == before


@pytest.mark.slow
def test_tail_follows_the_events_of_its_own_tenant_only(cli, start):
    cli("submit", "shop.letter", "{}", "--app", APP, "--tenant", OWNER)
    following = start("tail", "--count", "1", "--json", "--app", APP, "--tenant", INTRUDER)
    following.wait_for("following")
    cli("submit", "shop.letter", "{}", "--key", WORD, "--app", APP, "--tenant", OWNER)
    mine = cli(
        "submit", "shop.letter", '{"text": "mine"}', "--app", APP, "--tenant", INTRUDER
    ).out.strip()
    answer = following.end()
    assert [line["requestId"] for line in answer.lines] == [mine]
    assert WORD not in answer.out + answer.err
