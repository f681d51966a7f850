"""The page about reconciliation names every class, and its program can be loaded."""

from typing import get_args

from gesta.payments.reconciliation import Class
from tests.docs.test_docs import ROOT, program

PAGE = ROOT / "docs" / "reconciliation.md"


def test_the_page_names_every_class_and_its_program_declares_the_schedule(gesta):
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in get_args(Class) if f"`{name}`" not in text] == []
    engine = program(PAGE, "@engine.every")["engine"]
    assert list(engine.schedules) == ["nightly"]
