"""docs: the documentation of this version, in the terminal."""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

import gesta
from gesta.cli.invocation import Call
from gesta.cli.output import print_markdown, print_text, show, table, tell
from gesta.errors import NotFound

Topic = Annotated[
    str | None, typer.Argument(metavar="[TOPIC]", help="A page, e.g. concepts. Default: list them.")
]


def docs(_: Call, topic: Topic = None) -> None:
    """Show a page of the documentation; without a topic, list all pages."""
    pages = {path.stem: path for path in sorted(_folder().glob("*.md"))}
    if topic is None:
        rows = [(name, _title(path)) for name, path in pages.items()]
        show(table(("topic", "title"), rows, folded=("title",)))
        tell("show a page with: gesta docs TOPIC")
        return
    name = topic.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        raise NotFound("page", topic, f"; {_instead(name, pages)}", among="")
    text = pages[name].read_text(encoding="utf-8")
    if sys.stdout.isatty():
        print_markdown(text)
    else:
        print_text(text)


def _instead(name: str, pages: Mapping[str, Path]) -> str:
    """The pages to read: those of a similar name, else those that describe the word."""
    if near := get_close_matches(name, pages, n=3, cutoff=0.6):
        return f"the nearest page is {' or '.join(near)}"
    word, found = name.lower(), {}
    for page, path in pages.items():
        text = path.read_text("utf-8").lower()
        headings = sum(word in line for line in text.splitlines() if line.startswith("#"))
        if count := text.count(word):
            found[page] = (headings, count)
    if found:
        most = sorted(found, key=lambda page: found[page], reverse=True)[:3]
        return (
            f"it is described on the page {' or '.join(most)}; show it with: gesta docs {most[0]}"
        )
    return f"pages: {', '.join(pages)}"


def _folder() -> Path:
    """The wheel has the pages inside the package; a checkout has them next to src/."""
    package = Path(gesta.__file__).parent
    return next(
        (one for one in (package / "docs", package.parents[1] / "docs") if one.is_dir()), package
    )


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as page:
        return next((line.lstrip("# ").strip() for line in page if line.startswith("# ")), "")
