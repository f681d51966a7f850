"""Templates in the pipeline: stored by code and locale, checked when they are put and at submit,
filled in at execution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gesta import Attempt, Done, Engine, Flow, InvalidRequest, NotFound, Outcome, Payload
from gesta.domain.commands import Rules
from gesta.domain.retry_policy import RetryPolicy
from gesta.errors import BadConfig, RendererDown
from gesta.tenants.config import TenantConfig
from gesta.tenants.templates.renderer import InlineRenderer
from gesta.tenants.templates.templates import TEMPLATE, Template, Templates, codes
from gesta.testing.plugin import Harness

URL = "sqlite:///templates.db"


class Letter(Payload, frozen=True):
    template: str = "welcome"
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    locale: str | None = None


class Post:
    """A flow that fills in a template and puts the letter on a pile."""

    def __init__(self, *, is_checked: bool = False) -> None:
        self.pile: list[dict[str, str]] = []
        self.flow = Flow(
            "test.letter",
            Letter,
            self._send,
            Rules(RetryPolicy(attempts=2), "manual"),
            config={TEMPLATE: Template},
            check=self._check if is_checked else None,
        )

    async def _send(self, letter: Letter, attempt: Attempt) -> Outcome:
        rendered = await attempt.templates.render(letter.template, letter.data, letter.locale)
        self.pile.append(rendered.parts)
        return Done(f"version {rendered.version}")

    async def _check(
        self, letter: Letter, _: TenantConfig, templates: Templates
    ) -> Mapping[str, str]:
        return await templates.missing(letter.template, letter.data, letter.locale)


async def put(engine: Engine, code: str = "welcome", tenant: str = "default", **parts: str) -> None:
    await engine.admin.put_config(TEMPLATE, code, parts, tenant=tenant)


async def outcome(engine: Engine, letter: Letter, tenant: str = "default") -> tuple[str, str]:
    """Status, and the reason with its detail."""
    request = await engine.submit(letter, tenant=tenant)
    await request.outcome(60)
    view = await engine.get(request.id, tenant=tenant)
    return view.state.status, f"{view.state.reason}: {view.state.detail}"


async def test_an_attempt_renders_the_template_as_stored_when_it_begins(gesta: Harness) -> None:
    post = Post()
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="Hello {{ name }}")
        first = await engine.submit(Letter(data={"name": "Ann"}))
        await first.outcome(60)
        await put(engine, text="Bye {{ name }}")
        second = await engine.submit(Letter(data={"name": "Ann"}))
        await second.outcome(60)
        assert post.pile == [{"text": "Hello Ann"}, {"text": "Bye Ann"}]  # R0-22
        last = [(await engine.history(one.id))[-1][1] for one in (first, second)]
        assert [getattr(event, "used", None) for event in last] == [
            {"template/welcome": 1},
            {"template/welcome": 2},
        ]


async def test_a_template_that_is_missing_or_was_removed_ends_the_attempt(gesta: Harness) -> None:
    post = Post()
    async with Engine(URL, flows=[post.flow]) as engine:
        to_do = (
            "store it, then redrive the request: gesta config put template welcome text=@FILE (or"
            " PUT /v1/config/template/welcome)"
        )
        assert await outcome(engine, Letter()) == (
            "failed",
            f"template_missing: the tenant has no template welcome; {to_do}",
        )
        await put(engine, text="x")
        await put(engine, "other", tenant="b", text="of b")
        await engine.admin.delete_config(TEMPLATE, "welcome")
        assert (await outcome(engine, Letter()))[1].startswith("template_missing")
        # What another tenant has is not there.
        assert (await outcome(engine, Letter("other")))[1].startswith("template_missing")
        assert (await outcome(engine, Letter("other"), tenant="b"))[0] == "completed"


async def test_a_missing_variable_sends_nothing_and_shows_no_data(gesta: Harness) -> None:
    post = Post()
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="{{ greeting }}\n{{ name }}")
        reported = await outcome(engine, Letter(data={"greeting": "Topsecret"}))
        assert reported == (
            "failed",
            "template_render_failed: template welcome, text: line 2: name is missing",
        )  # S0-16, R1-43
        assert post.pile == []


async def test_the_nearest_locale_is_used(gesta: Harness) -> None:
    post = Post()
    async with Engine(URL, flows=[post.flow]) as engine:
        for code in ("welcome", "welcome@pt", "welcome@pt-BR"):
            await put(engine, code, text=code)
        for locale in ("pt-BR", "pt_br", "pt-PT", "de", None, "no locale at all"):
            await outcome(engine, Letter(locale=locale))
        found = [parts["text"] for parts in post.pile]
        assert found == [
            "welcome@pt-BR",
            "welcome@pt-BR",
            "welcome@pt",
            "welcome",
            "welcome",
            "welcome",
        ]


@pytest.mark.parametrize(
    ("locale", "found"),
    [
        ("zh_hant_tw", ("w@zh-Hant-TW", "w@zh-Hant", "w@zh", "w")),
        ("es-419", ("w@es-419", "w@es", "w")),
        ("x" * 10_000, ("w",)),
        ("-" * 10_000, ("w",)),
        ("", ("w",)),
    ],
)
def test_a_locale_is_normalised(locale: str, found: tuple[str, ...]) -> None:
    assert codes("w", locale) == found


@pytest.mark.parametrize(
    ("code", "parts", "errors"),
    [
        (
            "a",
            {"text": "one\n{{ name"},
            {"text": "line 2: unexpected end of input, expected end of variable block"},
        ),
        ("a", {"text": "x", "html": "{% if %}"}, {"html": "line 1: unexpected end of block"}),
        (
            "a",
            {"text": "x", "blocks": "\n\n{% include 'b' %}"},
            {"blocks": "line 3: include is not allowed: a template must be self-contained"},
        ),
        ("a", {"text": "x" * 200_001}, {"template": "longer than 200000 characters"}),
        ("a", {}, {"template": "give at least one of subject, text, html, mjml, blocks"}),
        ("a", {"text": "\ud800"}, {"text": "contains a lone surrogate; write UTF-8"}),
        ("a", {"txt": "x"}, {"txt": "unknown field; known: subject, text, html, mjml, blocks"}),
        (
            "a@PT",
            {"text": "x"},
            {"code": "after @ write a locale such as pt, pt-BR or zh-Hant-TW"},
        ),
        (
            "a@",
            {"text": "x"},
            {"code": "after @ write a locale such as pt, pt-BR or zh-Hant-TW"},
        ),
    ],
)
async def test_a_template_is_checked_when_it_is_put(
    gesta: Harness, code: str, parts: dict[str, str], errors: dict[str, str]
) -> None:
    async with Engine(URL, flows=[Post().flow]) as engine:
        with pytest.raises(BadConfig) as refused:
            await put(engine, code, **parts)
        assert refused.value.fields == errors
        with pytest.raises(NotFound):
            await engine.admin.get_config(TEMPLATE, code)


async def test_a_variable_that_the_data_lacks_is_refused_at_submit(gesta: Harness) -> None:
    post = Post(is_checked=True)
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(
            engine,
            subject="{{ title }}",
            text="{{ user.name }}, {{ user.city }}{% for x in things %}{{ x }}{% endfor %}",
        )
        with pytest.raises(InvalidRequest) as refused:
            await engine.submit(Letter(data={"title": "Hi", "user": {"name": "Ann"}}))
        assert refused.value.fields == {
            "data.user.city": "the template welcome needs it",
            "data.things": "the template welcome needs it",
        }
        with pytest.raises(InvalidRequest) as refused:
            await engine.submit(Letter(data={}))
        assert set(refused.value.fields) == {
            "data.title",
            "data.user.name",
            "data.user.city",
            "data.things",
        }
        assert await engine.find() == []
        assert (
            await outcome(
                engine, Letter(data={"title": "", "user": {"name": "", "city": ""}, "things": []})
            )
        )[0] == "completed"


async def test_a_variable_that_only_a_filter_is_given_is_refused_at_submit(gesta: Harness) -> None:
    post = Post(is_checked=True)
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(
            engine,
            text=(
                "{{ a|default('')|e }}{{ name|e }} https://x.example/?c={{ user.city|urlencode }}{{"
                " last }}"
            ),
        )
        with pytest.raises(InvalidRequest) as refused:
            await engine.submit(Letter(data={"other": 1}))
        assert set(refused.value.fields) == {"data.name", "data.user.city", "data.last"}
        assert (
            await outcome(engine, Letter(data={"name": "<", "user": {"city": "a b"}, "last": 1}))
        )[0] == "completed"
        assert post.pile == [{"text": "&lt; https://x.example/?c=a%20b1"}]


async def test_optional_variables_are_not_required_at_submit(gesta: Harness) -> None:
    post = Post(is_checked=True)
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(
            engine, text="{{ a|default('-') }}{% if b is defined %}{{ b.c }}{% endif %}{{ d }}"
        )
        with pytest.raises(InvalidRequest) as refused:
            await engine.submit(Letter(data={}))
        assert set(refused.value.fields) == {"data.d"}
        assert (await outcome(engine, Letter(data={"d": 1})))[0] == "completed"
        assert post.pile == [{"text": "-1"}]


async def test_a_process_that_only_submits_checks_the_stored_template(gesta: Harness) -> None:
    async with Engine(URL, flows=[Post().flow], work=False) as engine:
        await put(engine, text="{{ name }}")
    async with Engine(URL, flows=[Post(is_checked=True).flow], work=False) as other:
        with pytest.raises(InvalidRequest, match=r"data\.name"):
            await other.submit(Letter())


async def test_the_variables_of_a_template_are_cached_until_the_config_changes(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Template] = []
    variables = InlineRenderer.variables

    async def counted(renderer: InlineRenderer, template: Template, tenant: str = "") -> Any:
        asked.append(template)
        return await variables(renderer, template)

    async with Engine(URL, flows=[Post(is_checked=True).flow]) as engine:
        await put(engine, text="{{ name }}")
        monkeypatch.setattr(InlineRenderer, "variables", counted)
        for _ in range(3):
            await engine.submit(Letter(data={"name": "Ann"}))
        assert len(asked) == 1
        with pytest.raises(InvalidRequest, match=r"data\.name"):
            await engine.submit(Letter(data={"other": "Ann"}))
        await put(engine, text="{{ name }}{{ city }}")
        with pytest.raises(InvalidRequest, match=r"data\.city"):
            await engine.submit(Letter(data={"name": "Ann"}))
        await put(engine, text="{{ user.name }}")
        for _ in range(2):
            with pytest.raises(InvalidRequest, match=r"data\.user\.name"):
                await engine.submit(Letter(data={"name": "Ann", "user": {}}))


async def test_a_template_may_be_stored_after_submit_and_before_the_attempt(gesta: Harness) -> None:
    async with Engine(URL, flows=[Post(is_checked=True).flow]) as engine:
        assert (await outcome(engine, Letter()))[1].startswith("template_missing")


async def test_without_a_renderer_attempts_are_retried_and_submit_accepts(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: object) -> None:
        raise RendererDown("no memory left")

    post = Post(is_checked=True)
    async with Engine(URL, flows=[post.flow]) as engine:
        await put(engine, text="{{ name }}")
        monkeypatch.setattr(InlineRenderer, "variables", down)
        monkeypatch.setattr(InlineRenderer, "render", down)
        request = await engine.submit(Letter())
        await gesta.settle(days=0)
        view = await engine.get(request.id)
        assert (view.state.status, view.state.reason) == ("queued", "renderer_unavailable")
        monkeypatch.undo()
        await gesta.settle()
        assert (await engine.get(request.id)).state.reason == "template_render_failed"


async def test_the_error_of_data_that_is_not_json_does_not_contain_it(gesta: Harness) -> None:
    async with Engine(URL, flows=[Post().flow]) as engine:
        await put(engine, text="x")
        config = engine.pipeline.config.of("default")
        templates = Templates(InlineRenderer(), config)
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        for hostile in ({"a": "\ud800"}, {"a": object()}, {"a": deep}):
            with pytest.raises(
                Exception, match=r"template_render_failed.*data: cannot be written as JSON"
            ):
                await templates.render("welcome", hostile)
