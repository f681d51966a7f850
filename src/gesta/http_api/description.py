"""GET /openapi.json and GET /docs: the description of the API for programs and for people.

Both are generated from the table of routes and need no key.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from typing import Any

import msgspec

from gesta.flows.flow import Flow
from gesta.http_api.openapi import PLACE, Schema, describe
from gesta.http_api.route import Answer, Call, Route

#: The page contains its style and loads nothing.
CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_HOST = re.compile(r"[0-9A-Za-z.\[\]:-]{1,255}")
_CODE = re.compile(r"`([^`]+)`")
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_STYLE = """
:root{--ink:#1c2024;--soft:#60646c;--line:#e0e3e8;--back:#fff;--panel:#f6f7f9;--get:#0b6bcb;
--post:#18794e;--put:#ad5700;--delete:#ce2c31}
@media(prefers-color-scheme:dark){:root{--ink:#edeef0;--soft:#b0b4ba;--line:#363a3f;
--back:#111113;--panel:#1a1b1e;--get:#70b8ff;--post:#3dd68c;--put:#ffa057;--delete:#ff9592}}
*{box-sizing:border-box}html{scroll-padding-top:1rem}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.55 system-ui,sans-serif;
-webkit-text-size-adjust:100%}
main{max-width:58rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.9rem;line-height:1.2;margin:.5rem 0}h2{margin:3rem 0 .5rem;font-size:1.35rem;
text-transform:capitalize}
h3{font-size:1.05rem;margin:0;display:flex;flex-wrap:wrap;gap:.4rem .7rem;align-items:baseline}
a{color:inherit;text-decoration-color:var(--soft)}
code,pre{font:.86em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{overflow-wrap:anywhere}
pre{background:var(--panel);border:1px solid var(--line);border-radius:.5rem;padding:.8rem;
overflow-x:auto;margin:.6rem 0}
section{border:1px solid var(--line);border-radius:.7rem;padding:1rem;margin:1rem 0}
section>p{margin:.5rem 0}.soft{color:var(--soft)}
.verb{font-weight:700;font-size:.8rem;letter-spacing:.04em}
.get{color:var(--get)}.post{color:var(--post)}.put{color:var(--put)}.delete{color:var(--delete)}
nav ul,ul.answers{list-style:none;padding:0;margin:.3rem 0}nav li{padding:.15rem 0}
nav a{text-decoration:none}nav a:hover{text-decoration:underline}
dl{margin:.6rem 0;display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.3rem 1rem}
dd{margin:0}
@media(max-width:34rem){dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.6rem}}
summary{cursor:pointer;padding:.2rem 0}details{margin:.3rem 0}
"""
#: The server in the examples, replaced by the one that the reader has called.
SERVER = "http://127.0.0.1:8420"


class Description:
    """The description in both formats, generated once."""

    def __init__(self, routes: Sequence[Route], flows: Mapping[str, Flow]) -> None:
        self.document = describe(routes, flows)

    @cached_property
    def page(self) -> bytes:
        return page_of(self.document)

    def json(self, root: str = "") -> bytes:
        """`root`: where the API is mounted."""
        return msgspec.json.encode(
            self.document | {"servers": [{"url": root}]} if root else self.document
        )


async def openapi(call: Call) -> Answer:
    """The OpenAPI 3.1 description of the API, with the payloads of this process's flows."""
    return Answer(call.web.description.json(call.root))


async def docs(call: Call) -> Answer:
    """The description as a page without scripts."""
    headers = {"Content-Security-Policy": CSP, "Referrer-Policy": "no-referrer"}
    page, host = call.web.description.page, call.header("host")
    if host is not None and _HOST.fullmatch(host):
        # The examples name the server that the reader has called.
        page = page.replace(
            SERVER.encode(), f"{call.scheme}://{host}{escape(call.root)}".encode(), 1
        )
    return Answer(page, headers=headers, media_type="text/html; charset=utf-8")


def page_of(document: Schema) -> bytes:
    info = document["info"]
    parts = [
        (
            "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport"
            " content='width=device-width,initial-scale=1'>"
        ),
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body><main>",
        (
            f"<h1>{escape(info['title'])} <span"
            f" class=soft>{escape(info['version'])}</span></h1>{_text(info['description'])}"
        ),
        (
            "<p>For programs: <a href=openapi.json>openapi.json</a>. The examples change real data."
            " They use these variables; fill in <code>$FLOW</code>, <code>$ID</code> and the"
            " others:</p>"
        ),
        (
            f"<pre>SERVER={SERVER}\nKEY=$(gesta key create --scope admin)  # with --test, requests"
            " reach only the sandbox</pre>"
        ),
        *_contents(document),
        *_operations(document),
        *_types(document),
        "</main></body></html>",
    ]
    return "".join(parts).encode()


def _each(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _contents(document: Schema) -> Iterator[str]:
    yield "<nav>"
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2><ul>"
        for path, method, operation in _each(document):
            if tag["name"] in operation["tags"]:
                yield (
                    f"<li><a href='#{escape(operation['operationId'])}'><span class='verb"
                    f" {method}'>{method.upper()}</span> <code>{escape(path)}</code></a> <span"
                    f" class=soft>{escape(operation['summary'])}</span></li>"
                )
        yield "</ul>"
    yield "</nav>"


def _operations(document: Schema) -> Iterator[str]:
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2>"
        for path, method, operation in _each(document):
            if tag["name"] in operation["tags"]:
                yield from _operation(path, method, operation, document)


def _operation(path: str, method: str, operation: Schema, document: Schema) -> Iterator[str]:
    yield f"<section id='{escape(operation['operationId'])}'>"
    yield (
        f"<h3><span class='verb {method}'>{method.upper()}</span> <code>{escape(path)}</code></h3>"
    )
    scopes = [scope for each in operation["security"] for scope in each["bearer"]]
    needs = "needs any key" if operation["security"] else "needs no key"
    if scopes:
        needs = f"needs the scope <code>{escape(scopes[0])}</code>"
    yield _text(operation.get("description") or operation["summary"])
    yield f"<p class=soft>{needs}</p>"
    if operation["parameters"]:
        yield "<dl>" + "".join(_parameter(one) for one in operation["parameters"]) + "</dl>"
    body = operation.get("requestBody")
    examples: dict[str, Any] = {}
    if body is not None:
        ((kind, content),) = body["content"].items()
        yield f"<p>Body: {_kind(content['schema'])} <span class=soft>as {escape(kind)}</span></p>"
        examples = {name: one["value"] for name, one in content.get("examples", {}).items()}
    yield from _tries(path, method, operation, examples)
    yield "<details><summary>Answers</summary><ul class=answers>"
    for status, answer in operation["responses"].items():
        yield f"<li><code>{status}</code> {_answer(answer, document)}</li>"
    yield "</ul></details></section>"


def _tries(path: str, method: str, operation: Schema, examples: Mapping[str, Any]) -> Iterator[str]:
    """Examples for a shell: the first one open, the others folded."""
    text = [_curl(path, method, operation, value) for value in examples.values()] or [
        _curl(path, method, operation, None)
    ]
    yield f"<pre>{escape(text[0])}</pre>"
    for name, line in zip(list(examples)[1:], text[1:], strict=True):
        yield f"<details><summary>{escape(name)}</summary><pre>{escape(line)}</pre></details>"


def _curl(path: str, method: str, operation: Schema, body: Any) -> str:
    line = "curl " if method == "get" else f"curl -X {method.upper()} "
    # Shell variables, because curl treats braces as a pattern.
    place = _PARAMETER.sub(lambda found: f"${found[1].upper()}", path)
    line += f'"$SERVER{place}"'
    if operation["security"]:
        line += ' \\\n  -H "Authorization: Bearer $KEY"'
    if body is not None:
        text = (
            msgspec.json.format(msgspec.json.encode(body), indent=2).decode().replace("'", "'\\''")
        )
        line += f" \\\n  -H 'Content-Type: application/json' -d '{text}'"
    return line


def _parameter(one: Schema) -> str:
    where = {"path": "in the path", "query": "in the query", "header": "a header"}[one["in"]]
    more = f" {_marked(one['description'])}" if "description" in one else ""
    need = ", needed" if one["required"] and one["in"] != "path" else ""
    return (
        f"<dt><code>{escape(one['name'])}</code></dt><dd>{_kind(one['schema'])} <span"
        f" class=soft>{where}{need}</span>{more}</dd>"
    )


def _answer(answer: Schema, document: Schema) -> str:
    if "$ref" in answer:
        answer = document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    kinds = [_kind(content["schema"]) for content in answer.get("content", {}).values()]
    return (
        f"{escape(answer['description'])} <span class=soft>{', '.join(kinds) or 'nothing'}</span>"
    )


def _types(document: Schema) -> Iterator[str]:
    yield "<h2>Types</h2>"
    for name, schema in document["components"]["schemas"].items():
        yield (
            f"<section id='type-{escape(name)}'><h3><code>{escape(name)}</code></h3>"
            f"{_text(schema.get('description', ''))}"
        )
        fields, needed = schema.get("properties"), schema.get("required", ())
        if fields:
            yield "<dl>"
            for field, kind in fields.items():
                more = f" {_marked(kind['description'])}" if "description" in kind else ""
                need = (
                    " <span class=soft>needed</span>"
                    if field in needed and schema.get("additionalProperties") is False
                    else ""
                )
                yield f"<dt><code>{escape(field)}</code></dt><dd>{_kind(kind)}{need}{more}</dd>"
            yield "</dl>"
        elif fields is None:
            yield f"<p>{_kind(schema)}</p>"
        yield "</section>"


def _kind(schema: Schema) -> str:
    """A short text for a schema, with a link where it has a name."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(PLACE)
        return f"<a href='#type-{escape(name)}'>{escape(name)}</a>"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_kind(one) for one in schema[word])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}" if schema.get("items") else "list"
    text = str(schema.get("format") or schema.get("type") or "anything")
    bounds = [
        f"{word} {schema[key]}"
        for key, word in (
            ("minimum", "from"),
            ("exclusiveMinimum", "above"),
            ("maximum", "to"),
            ("minLength", "at least"),
            ("maxLength", "at most"),
        )
        if key in schema
    ]
    if "pattern" in schema:
        bounds.append(f"like {schema['pattern']}")
    if schema.get("default") not in (None, {}, [], ""):
        bounds.append(f"else {schema['default']}")
    return escape(text) + (
        f" <span class=soft>({escape(', '.join(bounds))})</span>" if bounds else ""
    )


def _text(text: str) -> str:
    return "".join(f"<p>{_marked(part)}</p>" for part in text.split("\n\n") if part)


def _marked(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))


ROUTES = [
    Route(
        "GET",
        "/openapi.json",
        openapi,
        None,
        "OpenAPI description",
        "about",
        gives="application/json",
    ),
    Route("GET", "/docs", docs, None, "Documentation", "about", gives="text/html"),
]
