import pytest

from tests.architecture import shape
from tests.architecture.source import ROOT, plant


def test_no_line_is_over_100_columns():
    assert shape.check_columns(ROOT) == []


@pytest.mark.parametrize(
    "place", ["src/gesta/engine/engine.py", "tests/pipeline/test_pipeline.py", "examples/a.py"]
)
def test_a_long_line_is_found(tmp_path, place):
    assert shape.check_columns(plant(tmp_path, {place: "#" * 100})) == []
    assert len(shape.check_columns(plant(tmp_path, {place: "#" * 101}))) == 1
    assert len(shape.check_columns(plant(tmp_path, {place: "#" * 101 + "  # noqa: E501"}))) == 1


def test_the_formatter_applies_everywhere():
    assert shape.check_formatter(ROOT) == []


@pytest.mark.parametrize("mark", ["skip", "off"])
def test_a_formatter_that_is_switched_off_is_found(tmp_path, mark):
    text = f"x = 1  # fmt: {mark}\n"
    assert len(shape.check_formatter(plant(tmp_path, {"src/gesta/engine/engine.py": text}))) == 1


def test_no_function_takes_more_than_eight_arguments_and_constructors_take_theirs_by_name():
    assert shape.check_arguments(ROOT) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("def f(a, b, c, d, e, g, h, i): ...", 0),
        ("def f(a, b, c, d, e, g, h, i, j): ...", 1),
        ("class A:\n    async def f(self, a, b, c, d, e, *, g, h, i, j=1): ...", 1),
        ("class A:\n    def __init__(self, a, b, c, *, d, e): ...", 0),
        ("class A:\n    def __init__(self, a, b, c, d): ...", 1),
    ],
)
def test_too_many_arguments_are_found(tmp_path, text, count):
    found = shape.check_arguments(plant(tmp_path, {"src/gesta/engine/engine.py": text}))
    assert len(found) == count


def test_no_function_is_over_70_lines():
    assert shape.check_function_lengths(ROOT) == []


def test_a_long_function_is_found(tmp_path):
    text = "class A:\n    async def f(self):\n" + "        x = 1\n" * 69
    assert shape.check_function_lengths(plant(tmp_path, {"src/gesta/engine/engine.py": text})) == []
    root = plant(tmp_path, {"src/gesta/engine/engine.py": text + "        x = 1\n"})
    assert shape.check_function_lengths(root) == [
        "src/gesta/engine/engine.py:2: f has 71 lines, at most 70"
    ]


def test_every_module_is_called_after_what_it_holds():
    assert shape.check_names(ROOT) == []


@pytest.mark.parametrize("name", ["manager", "helpers", "http_utils", "common/thing", "base"])
def test_an_empty_name_is_found(tmp_path, name):
    assert len(shape.check_names(plant(tmp_path, {f"src/gesta/{name}.py": ""}))) == 1


def test_nothing_is_left_for_later():
    assert shape.check_leftovers(ROOT) == []


@pytest.mark.parametrize(
    "text", ["def f():\n    raise NotImplementedError", "x = 1  # TODO: better"]
)
def test_a_leftover_is_found(tmp_path, text):
    assert len(shape.check_leftovers(plant(tmp_path, {"src/gesta/engine/engine.py": text}))) == 1


def test_the_sql_of_adapters_lives_in_sql_files():
    assert shape.check_sql(ROOT) == []


@pytest.mark.parametrize(
    "text",
    [
        'x = "INSERT INTO event VALUES (?)"',
        'x = "insert or ignore into event values (?)"',
        'x = """select id\n  from job"""',
        'x = f"select * from {table}"',
        'def f(db):\n    db.execute("update job set token = ?")',
        'x = "DELETE FROM job"',
        'x = "create table job (id)"',
    ],
)
def test_sql_in_an_adapters_python_is_found(tmp_path, text):
    assert shape.check_sql(plant(tmp_path, {"src/gesta/stores/sqlite/read_model.py": text}))


def test_a_docstring_may_speak_of_sql(tmp_path):
    text = '"""Select the rows from the queue."""\nx = "pragma journal_mode = wal"'
    assert shape.check_sql(plant(tmp_path, {"src/gesta/stores/sqlite/read_model.py": text})) == []


def test_every_flow_has_its_test():
    assert shape.check_flow_tests(ROOT) == []


def test_a_flow_without_a_test_is_found(tmp_path):
    root = plant(
        tmp_path,
        {
            "src/gesta/flows/__init__.py": "",
            "src/gesta/flows/flow.py": "",
            "src/gesta/flows/slack.py": "",
            "src/gesta/flows/payment/__init__.py": "",
            "tests/flows/test_slack.py": "",
        },
    )
    assert shape.check_flow_tests(root) == [
        "src/gesta/flows/payment: tests/flows/test_payment.py is missing"
    ]
