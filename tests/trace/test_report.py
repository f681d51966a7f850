import pytest

from tests.trace import report


def checkout(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return root


def test_the_page_of_requirements_is_up_to_date():
    stale = report.PAGE.read_text(encoding="utf-8") != report.page(report.ROOT)
    assert not stale, "tests/trace/requirements.md is stale: run `make requirements-doc`"


def test_every_id_named_by_a_test_exists_and_stands_in_a_test():
    assert report.problems(report.ROOT) == []


def test_every_requirement_has_an_id_of_its_own():
    assert len(report.lines("requirements")) == 163
    assert {name.split("-")[0] for name in report.lines("requirements")} == set(report.titles())
    assert report.lines("requirements").keys() & report.lines("hazards").keys() == set()


def test_every_correction_that_a_requirement_points_to_exists():
    pointed = {
        name for text in report.lines("requirements").values() for name in report.ID.findall(text)
    }
    assert pointed - report.lines("requirements").keys() - report.lines("hazards").keys() == set()


def test_a_comment_beside_an_assertion_is_evidence(tmp_path):
    text = (
        "def test_a():\n    assert x  # R1-28, S1-7: why\n\n\nasync def test_b():\n    # R1-28\n   "
        " assert y\n"
    )
    root = checkout(tmp_path, "tests/domain/test_x.py", text)
    assert report.evidence(root) == {
        "R1-28": ["tests/domain/test_x.py::test_a", "tests/domain/test_x.py::test_b"],
        "S1-7": ["tests/domain/test_x.py::test_a"],
    }
    assert report.problems(root) == []
    assert "- **R1-28** MessageRequestAggregate" in report.page(root)
    assert "  - `tests/domain/test_x.py::test_b`\n" in report.page(root)
    assert "R1-28" not in report.missing(root)
    assert "R1-29" in report.missing(root)


def test_a_comment_above_a_test_and_in_a_state_machine_is_evidence(tmp_path):
    text = (
        "# R1-1\n@mark\ndef test_a():\n    pass\n\n\nclass Machine:\n    @rule()\n    def"
        " sends(self):\n        assert x  # R1-31\n"
    )
    root = checkout(tmp_path, "tests/test_x.py", text)
    assert report.evidence(root) == {
        "R1-1": ["tests/test_x.py::test_a"],
        "R1-31": ["tests/test_x.py::Machine::sends"],
    }


def test_a_promise_of_a_contract_is_evidence(tmp_path):
    root = checkout(
        tmp_path,
        "src/gesta/testing/contracts/read_model.py",
        "class Views:\n    async def test_a(self):\n        assert x  # R1-50\n",
    )
    assert report.evidence(root) == {
        "R1-50": ["src/gesta/testing/contracts/read_model.py::Views::test_a"]
    }


def test_an_id_in_a_string_or_in_prose_does_not_count_as_evidence(tmp_path):
    root = checkout(
        tmp_path, "tests/test_x.py", 'def test_a():\n    """R1-28"""\n    assert "R1-29"\n'
    )
    assert report.evidence(root) == {}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "tests/test_x.py",
            "def test_a():\n    assert x  # R1-99\n",
            "tests/test_x.py:2: R1-99 does not exist",
        ),
        (
            "tests/test_x.py",
            "def test_a():\n    assert x  # R1-1 R1-2 R1-3 R1-4\n",
            "tests/test_x.py:2: names 4 ids",
        ),
        ("tests/test_x.py", "X = 1  # R1-1\n", "tests/test_x.py:1: names R1-1 outside of a test"),
        (
            "tests/pipeline.py",
            "def send():\n    assert x  # R1-1\n",
            "tests/pipeline.py:2: names R1-1 outside of a test",
        ),
    ],
)
def test_a_comment_that_proves_nothing_is_found(tmp_path, name, text, problem):
    (found,) = report.problems(checkout(tmp_path, name, text))
    assert found.startswith(problem)


def test_a_renamed_test_makes_the_page_stale(tmp_path):
    before = report.page(
        checkout(tmp_path, "tests/test_x.py", "def test_a():\n    assert x  # R1-1\n")
    )
    after = report.page(
        checkout(tmp_path, "tests/test_x.py", "def test_b():\n    assert x  # R1-1\n")
    )
    assert before != after
