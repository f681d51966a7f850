"""The drawings in docs/ show the lifecycles as they are."""

import pytest

from tests.docs.lifecycle_drawing import DOCS, LIFECYCLES, drawing


@pytest.mark.parametrize("name", LIFECYCLES)
def test_the_committed_drawing_of_a_lifecycle_is_fresh(name):
    committed = (DOCS / name).read_text(encoding="utf-8")
    assert committed == drawing(LIFECYCLES[name]), "run python -m tests.docs.lifecycle_drawing"


def test_every_drawing_in_the_docs_has_a_lifecycle():
    assert {path.name for path in DOCS.glob("*.svg")} == set(LIFECYCLES)
