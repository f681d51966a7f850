"""docs: the documentation of this version, in the terminal."""

import sys
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
        near = get_close_matches(name, pages, n=3, cutoff=0.4)
        raise NotFound("page", topic, f"; topics: {', '.join(near or pages)}")
    text = pages[name].read_text(encoding="utf-8")
    if sys.stdout.isatty():
        print_markdown(text)
    else:
        print_text(text)


def _folder() -> Path:
    """The wheel has the pages inside the package; a checkout has them next to src/."""
    package = Path(gesta.__file__).parent
    return next(
        (one for one in (package / "docs", package.parents[1] / "docs") if one.is_dir()), package
    )


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as page:
        return next((line.lstrip("# ").strip() for line in page if line.startswith("# ")), "")
