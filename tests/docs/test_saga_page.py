"""The program of the page about sagas prints what the page says."""

import asyncio

from tests.docs.test_docs import ROOT, blocks, program

PAGE = ROOT / "docs" / "sagas.md"


def test_the_program_of_the_saga_page_prints_what_it_says(gesta, capsys):
    asyncio.run(program(PAGE, '@saga("saga.order")')["main"]())
    printed = capsys.readouterr().out
    assert printed == blocks(PAGE, "text")[0]
