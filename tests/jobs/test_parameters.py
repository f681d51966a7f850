"""What a handler may take and return: it comes back from the store as it was."""

from __future__ import annotations

import datetime as dt
import inspect
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from typing import Annotated, Any
from uuid import UUID

import httpx
import pytest
from fastapi import BackgroundTasks, Body, Cookie, FastAPI, Header, Query, Response, UploadFile
from litestar import Request as LitestarRequest
from litestar.params import FromCookie
from pydantic import BaseModel, Field, HttpUrl, SecretStr, computed_field
from starlette.requests import HTTPConnection

from gesta import Engine
from gesta.domain.stored_job import job_at
from gesta.errors import BadFlow
from gesta.jobs.arguments import parameters_of
from gesta.jobs.fastapi import Endpoints


class Color(Enum):
    RED = "red"


class Order(BaseModel):
    order_id: int = Field(alias="orderId")
    price: Decimal = Decimal("1.10")
    at: dt.datetime | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return f"order {self.order_id}"


class Swapped(BaseModel):
    a: int = Field(alias="b")
    b: int = Field(alias="a")


class Public(BaseModel):
    name: str


class User(Public):
    password: str = "hunter2"


@dataclass
class Pair:
    order: Order
    many: list[int]


ORDER = {"orderId": 3, "at": "2026-01-01T00:00:00Z"}
ID = "11111111-2222-3333-4444-555555555555"


async def round_trip(tmp_path, handler, path, declared="/call", **call) -> Any:
    """Answer of the job of a handler that is called over HTTP."""
    engine, app = Engine(f"sqlite:///{tmp_path}/gesta.db"), FastAPI()
    jobs = Endpoints(engine)
    app.mount("/jobs", jobs.app)
    app.post(declared, status_code=202)(jobs.endpoint("a.call", on_unknown="manual")(handler))
    transport = httpx.ASGITransport(app)
    async with engine, httpx.AsyncClient(transport=transport, base_url="http://s") as client:
        answer = await client.post(path, **call)
        if answer.status_code != 202:
            return answer
        found = await client.get(answer.headers["location"], params={"wait": "20s"})
        return found.json()


def taking(got: list[Any], *types: Any) -> Any:
    """A handler with one parameter of each type, that notes what it gets."""

    async def handler(**given: Any) -> None:
        got.extend(given.values())

    parameters = [
        inspect.Parameter(f"p{n}", inspect.Parameter.KEYWORD_ONLY, annotation=kind)
        for n, kind in enumerate(types)
    ]
    handler.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    handler.__annotations__ = {one.name: one.annotation for one in parameters}
    return handler


@pytest.mark.parametrize(
    ("kinds", "query", "expected"),
    [
        ((int, Color), "p0=5&p1=red", [5, Color.RED]),
        ((UUID,), f"p0={ID}", [UUID(ID)]),
        ((Annotated[list[int], Query()],), "p0=2&p0=1&p0=2", [[2, 1, 2]]),
        ((Annotated[set[int], Query()],), "p0=1&p0=2", [{1, 2}]),
        ((dt.date,), "p0=2026-01-02", [dt.date(2026, 1, 2)]),
        ((dt.timedelta,), "p0=PT1H", [dt.timedelta(0, 3600)]),
        ((IPv4Address,), "p0=127.0.0.1", [IPv4Address("127.0.0.1")]),
        ((HttpUrl,), "p0=http://a.b/", [HttpUrl("http://a.b/")]),
        ((Annotated[Order, Query()],), "orderId=3", [Order.model_validate({"orderId": 3})]),
        ((int,), "p0=123456789012345678901234567890", [123456789012345678901234567890]),
    ],
)
async def test_a_query_parameter_reaches_the_handler_as_fastapi_parsed_it(
    tmp_path, kinds, query, expected
):
    got: list[Any] = []
    await round_trip(tmp_path, taking(got, *kinds), f"/call?{query}")
    assert got == expected


@pytest.mark.parametrize(
    ("kind", "sent", "expected"),
    [
        (Order, ORDER, Order.model_validate(ORDER)),
        (list[Order], [ORDER], [Order.model_validate(ORDER)]),
        (Annotated[dict[str, Order], Body()], {"x": ORDER}, {"x": Order.model_validate(ORDER)}),
        (Swapped, {"a": 1, "b": 2}, Swapped.model_validate({"a": 1, "b": 2})),
        (Pair, {"order": ORDER, "many": [1]}, Pair(Order.model_validate(ORDER), [1])),
        (Annotated[bytes, Body()], "aGk=", b"aGk="),
        (Annotated[dict[int, str], Body()], {"1": "x"}, {1: "x"}),
    ],
)
async def test_a_body_reaches_the_handler_as_fastapi_parsed_it(tmp_path, kind, sent, expected):
    got: list[Any] = []
    await round_trip(tmp_path, taking(got, kind), "/call", json=sent)
    assert got == [expected]


async def test_a_number_that_json_does_not_have_is_refused(tmp_path):
    answer = await round_trip(tmp_path, taking([], float), "/call?p0=nan")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_call")


async def test_a_result_has_only_what_the_return_annotation_has(tmp_path):
    async def one() -> Public:
        return User(name="ada")

    async def many() -> list[Public]:
        return [User(name="ada")]

    for handler, expected in ((one, {"name": "ada"}), (many, [{"name": "ada"}])):
        folder = tmp_path / handler.__name__
        folder.mkdir()
        job = await round_trip(folder, handler, "/call")
        # As FastAPI would have answered.
        assert (job["status"], job["result"]) == ("Completed", expected)


async def test_a_result_is_written_under_its_aliases_as_fastapi_does(tmp_path):
    async def handler():
        return {"order": Order.model_validate({"orderId": 3})}

    job = await round_trip(tmp_path, handler, "/call")
    assert job["result"]["order"] == {
        "orderId": 3,
        "price": "1.10",
        "at": None,
        "label": "order 3",
    }


async def test_a_result_of_another_type_than_its_annotation_fails_the_job(tmp_path):
    async def handler() -> Public:
        return {"password": "hunter2"}  # type: ignore[return-value]

    job = await round_trip(tmp_path, handler, "/call")
    assert (job["status"], job["error"]["code"]) == ("Failed", "RESULT_NOT_STORABLE")
    assert "hunter2" not in str(job)


class Credentials(BaseModel):
    user: str
    password: SecretStr


class CommonHeaders(BaseModel):
    authorization: str


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (UploadFile, "cannot be stored"),
        (list[UploadFile], "cannot be stored"),
        (BackgroundTasks, "cannot be stored"),
        (Response, "cannot be stored"),
        (HTTPConnection, "cannot be stored"),
        (Credentials, "secrets are never stored"),
        (dict[str, Credentials], "secrets are never stored"),
        (Annotated[str, Cookie()], "secrets are never stored"),
        (FromCookie[str], "secrets are never stored"),
        (Annotated[str, Header(alias="Authorization")], "secrets are never stored"),
        (Annotated[CommonHeaders, Header()], "secrets are never stored"),
    ],
)
def test_a_parameter_that_must_not_be_stored_is_refused_when_it_is_declared(kind, why):
    with pytest.raises(BadFlow, match=why):
        parameters_of("a.b", taking([], kind), LitestarRequest, by_pydantic=True)


def test_a_positional_parameter_is_refused_when_it_is_declared():
    async def handler(x: int, /) -> None: ...

    with pytest.raises(BadFlow, match="positional-only"):
        parameters_of("a.b", handler, LitestarRequest, by_pydantic=True)


async def test_a_plain_header_is_an_argument_like_any_other(tmp_path):
    got: list[Any] = []
    handler = taking(got, Annotated[str, Header(alias="X-Trace")])
    await round_trip(tmp_path, handler, "/call", headers={"X-Trace": "abc"})
    assert got == ["abc"]


def test_a_job_of_another_service_is_read_by_alias_and_with_every_query_value():
    async def handler(order: Order, tags: list[int], page: int = 1) -> None: ...

    parameters = parameters_of("a.b", handler, LitestarRequest, by_pydantic=True)
    job = job_at(
        0,
        id=ID,
        name="a.b",
        query_params=[("tags", ["1", "2"]), ("page", ["1", "2"])],
        payload='{"orderId": 3, "label": "ignored"}',
    )
    stored = parameters.of_job(job)
    assert stored["tags"] == [1, 2]
    assert stored["page"] == 2
    assert stored["order"]["order_id"] == 3
