"""Pages made ready for mail programs: styles on the elements, MJML laid out, a text part; and
hostile ones, which stop no other.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.runtime.clock import SystemRuntime
from gesta.tenants.templates.child_renderer import ChildRenderer
from gesta.tenants.templates.email_html import dress, plain_text
from gesta.tenants.templates.press import RenderError, Sheet


def dressed(source: str, markup: str = "html") -> dict[str, str]:
    found = dress(markup, source)  # type: ignore[arg-type]
    assert isinstance(found, Sheet)
    return found.parts


def test_styles_are_put_on_the_elements():
    html = dressed(
        "<html><head><style>p {color: red} @media (max-width: 600px) {p {color:"
        " blue}}</style></head><body><p>Hi</p></body></html>"
    )["html"]
    assert '<p style="color: red;">Hi</p>' in html
    assert "@media" in html


def test_a_page_without_styles_is_left_as_it_is():
    page = "<p>Hi &amp; <b>bye"
    assert dressed(page)["html"] == page


def test_nothing_is_fetched():
    page = (
        '<style>@import url("file:///etc/passwd");</style><link rel="stylesheet"'
        ' href="http://127.0.0.1:9/x.css"><p>Hi</p>'
    )
    assert "root:" not in dressed(page)["html"]
    assert isinstance(
        dress("mjml", '<mjml><mj-body><mj-include path="/etc/passwd"/></mj-body></mjml>'),
        RenderError,
    )


def test_mjml_is_laid_out():
    parts = dressed(
        "<mjml><mj-body><mj-section><mj-column><mj-text>Olá</mj-text></mj-column>"
        "</mj-section></mj-body></mjml>",
        "mjml",
    )
    assert "<table" in parts["html"]
    assert parts["text"].strip() == "Olá"


@pytest.mark.parametrize("source", ["", "x", "<mjml>", "<p>secret</p>"])
def test_the_error_of_malformed_mjml_does_not_repeat_it(source):
    assert dress("mjml", source) == RenderError("mjml", "is not well-formed MJML")


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One</p><p>Two<br>Three</p>", "One\n\nTwo\nThree\n"),
        ("<ul><li>a</li><li>b</li></ul>", "- a\n- b\n"),
        ("<a href='https://x.example/y'>here</a>", "here (https://x.example/y)\n"),
        (
            "<a href='https://x.example'>https://x.example</a> <a href='mailto:a@b.c'>a@b.c</a>",
            "https://x.example a@b.c\n",
        ),
        (
            "<a href='#top'>up</a><a href='https://x.example'><img alt='Logo'></a>",
            "upLogo (https://x.example)\n",
        ),
        ("<title>no</title><style>p{}</style><script>alert(1)</script><h1>Yes</h1>", "Yes\n"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\nc\n"),
        ("a &lt; b &nbsp; c\n\n  d", "a < b c d\n"),
        ("<a href=1>a<a href=2>b", "a (1)b\n"),
        ("", "\n"),
    ],
)
def test_the_text_part_has_the_words_in_order(html, text):
    assert plain_text(html) == text


@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from(
            [
                "<p>",
                "</p>",
                "<a href=x>",
                "</a>",
                "<b",
                "&#",
                "<!--",
                "-->",
                "<script>",
                "x",
                "<![CDATA[",
            ]
        ),
        max_size=40,
    ).map("".join)
)
def test_every_page_has_a_text_part(html):
    assert plain_text(html).endswith("\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("markup", "source"),
    [
        ("html", "<style>div {color: red}</style>" + "<div>" * 100_000),
        ("html", "<style>" + "*{color:red}" * 20_000 + "</style>" + "<p>x</p>" * 20_000),
        ("html", "<!" * 200_000),
        (
            "mjml",
            "<mjml><mj-body>"
            + "<mj-section>" * 20_000
            + "</mj-section>" * 20_000
            + "</mj-body></mjml>",
        ),
        (
            "mjml",
            "<mjml><mj-body><mj-raw>"
            + "<div>" * 50_000
            + "</div>" * 50_000
            + "</mj-raw></mj-body></mjml>",
        ),
    ],
    ids=["deep", "many rules", "half a tag", "deep mjml", "deep raw"],
)
async def test_a_page_that_kills_the_child_fails_alone(markup, source):
    renderer = ChildRenderer(SystemRuntime())
    try:
        assert isinstance(await renderer.dress(markup, source), RenderError)
        assert await renderer.dress("html", "<p>Hi</p>") == Sheet(
            {"html": "<p>Hi</p>", "text": "Hi\n"}
        )
        again = await renderer.dress(markup, source)
        assert isinstance(again, RenderError)
        assert again.part == "template"
    finally:
        await renderer.close()
