import pytest

from tests.architecture.source import ROOT
from tests.architecture.texts import check_texts, check_words


def test_no_file_names_a_registry_or_a_path_of_a_machine():
    assert check_texts(ROOT) == []


def test_no_name_comment_or_docstring_has_a_private_word():
    assert check_words(ROOT) == []


@pytest.mark.parametrize(
    "line", ["# Who" + "ever asks.", "def is_to" + "ld(): ...", '"""It is no' + 'body\'s."""']
)
def test_a_private_word_is_found(tmp_path, line):
    (tmp_path / "module.py").write_text(f"{line}\n")
    assert len(check_words(tmp_path)) == 1
    (tmp_path / "module.py").write_text(f"text = {line!r}\n")
    assert check_words(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        "https://" + "pypi" + ".org/simple",
        "--index" + "-url=https://packages.example/",
        "--extra-index" + "-url x",
        "-r https://files.python" + "hosted.org/packages",
        "cd /" + "root/project",
        "see /" + "home/ada/gesta",
        '"/' + 'Users/ada/gesta"',
    ],
)
def test_a_host_or_a_path_is_found(tmp_path, line):
    (tmp_path / "notes.md").write_text(f"first\n{line}\n")
    assert len(check_texts(tmp_path)) == 1
    assert check_texts(tmp_path)[0].startswith("notes.md:2: ")


def test_other_addresses_are_left_alone(tmp_path):
    (tmp_path / "notes.md").write_text(
        "https://example.com/work/items\n/v1/requests\n./home/page/x\n/tmp/gesta.db\n"
    )
    (tmp_path / "gesta.db").write_bytes(b"\xff\xfe/root/x")
    assert check_texts(tmp_path) == []
