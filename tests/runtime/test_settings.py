from __future__ import annotations

import base64
import logging
import os
import stat
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from gesta import Engine
from gesta.errors import BadSettings, LostMasterKey, WrongMasterKey
from gesta.runtime.settings import Settings, keyword_arguments, load, resolve_reference
from tests.world import Note, Provider, note_flow


@pytest.fixture(autouse=True)
def an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GESTA_")]:
        monkeypatch.delenv(name)
    return tmp_path


def test_without_any_source_the_defaults_count():
    settings = load()
    assert settings == Settings()
    assert settings.url == "sqlite:///gesta.db"
    assert set(settings.sources.values()) == {"default"}


def test_an_argument_goes_before_the_environment_and_that_before_the_file(
    an_empty_folder, monkeypatch
):
    (an_empty_folder / "gesta.toml").write_text(
        'url = "sqlite:///file.db"\ntenant = "file"\nlog_level = "info"\n'
    )
    monkeypatch.setenv("GESTA_URL", "sqlite:///environment.db")
    monkeypatch.setenv("GESTA_TENANT", "environment")
    settings = load({"url": "sqlite:///argument.db", "app": None})
    assert (settings.url, settings.tenant, settings.log_level) == (
        "sqlite:///argument.db",
        "environment",
        "info",
    )
    assert {name: settings.sources[name] for name in ("url", "tenant", "log_level", "app")} == {
        "url": "argument",
        "tenant": "GESTA_TENANT",
        "log_level": "gesta.toml",
        "app": "default",
    }


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"retention": timedelta(days=-3)},
            "retention in Settings(…): a duration from 1m to 36500d is needed, not -3d",
        ),
        ({"api_port": "x"}, "api_port in Settings(…): a whole number from 0 is needed, not 'x'"),
        ({"log_level": "loud"}, "log_level in Settings(…): 'loud' is not one of debug"),
        (
            {"allow_private": ("localhost",)},
            "allow_private in Settings(…): 'localhost' does not appear",
        ),
    ],
)
def test_settings_of_a_program_are_checked_like_those_of_a_file(wrong, words):
    with pytest.raises(BadSettings) as refused:
        Settings(**wrong)
    assert words in str(refused.value)


def test_networks_that_a_program_writes_as_one_text_are_not_read_letter_by_letter():
    network: Any = "10.1.0.0/16"
    assert Settings(allow_private=network).allow_private == ("10.1.0.0/16",)


def test_tables_of_flows_come_from_the_file(an_empty_folder):
    (an_empty_folder / "gesta.toml").write_text('[flows.webhook]\nurl = "https://example.com"\n')
    assert load().flows == {"webhook": {"url": "https://example.com"}}


def test_private_networks_may_be_a_list_or_a_text_with_commas(monkeypatch):
    monkeypatch.setenv("GESTA_ALLOW_PRIVATE", "10.1.0.0/16, 127.0.0.1/32")
    assert load().allow_private == ("10.1.0.0/16", "127.0.0.1/32")
    assert load({"allow_private": ["10.0.0.0/8"]}).allow_private == ("10.0.0.0/8",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("url = 5", ["url", "gesta.toml", "must be a string, not int"]),
        ('ulr = "x"', ["ulr", "unknown setting in gesta.toml", "known: url"]),
        ("url = ", ["gesta.toml", "not valid TOML"]),
        ('log_level = "loud"', ["log_level", "'loud' is not one of debug, info"]),
        ("flows = 5", ["flows", "one table per flow"]),
        ('allow_private = ["10.1.0.0/99"]', ["allow_private", "gesta.toml"]),
        ("allow_private = 5", ["allow_private", "a list of networks is needed"]),
    ],
)
def test_a_bad_setting_is_named_with_its_source(an_empty_folder, text, words):
    (an_empty_folder / "gesta.toml").write_text(text)
    with pytest.raises(BadSettings) as refusal:
        load()
    assert [word for word in words if word not in str(refusal.value)] == []


def test_all_errors_of_all_sources_are_reported_at_once(an_empty_folder, monkeypatch):
    """It reported only the first error; after its fix the next one appeared."""
    (an_empty_folder / "gesta.toml").write_text('ulr = "x"\napi_port = "many"\nalerts = 5\n')
    monkeypatch.setenv("GESTA_LOG_LEVEL", "loud")
    monkeypatch.setenv("GESTA_RETENTION", "-3")
    with pytest.raises(BadSettings) as refusal:
        load({"backlog_max": 0, "colour": "green"})
    lines = str(refusal.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "alerts in gesta.toml",
        "api_port in gesta.toml",
        "log_level in GESTA_LOG_LEVEL",
        "retention in GESTA_RETENTION",
        "backlog_max in argument",
        "ulr",
        "colour",
    ]
    assert str(refusal.value).count("known: url") == 1


def test_invalid_toml_hides_no_other_error(an_empty_folder, monkeypatch):
    (an_empty_folder / "gesta.toml").write_text("url = ")
    monkeypatch.setenv("GESTA_API_RATE", "0")
    with pytest.raises(BadSettings, match=r"(?s)not valid TOML.*\napi_rate in GESTA_API_RATE"):
        load()


def test_all_errors_of_a_program_s_settings_are_reported_at_once():
    with pytest.raises(BadSettings) as refusal:
        Settings(retention=-3, log_level="loud", url=5)  # type: ignore[arg-type]
    assert [line.split(" ")[0] for line in str(refusal.value).splitlines()] == [
        "url",
        "log_level",
        "retention",
    ]


def test_a_file_that_was_named_must_be_there(monkeypatch):
    with pytest.raises(BadSettings, match=r"other\.toml: no such file"):
        load(file="other.toml")
    monkeypatch.setenv("GESTA_FILE", "another.toml")
    with pytest.raises(BadSettings, match=r"another\.toml: no such file"):
        load()


def test_an_unknown_argument_is_refused():
    with pytest.raises(BadSettings, match="unknown setting in argument"):
        load({"colour": "green"})


def test_the_master_key_is_not_shown():
    assert "c2VjcmV0" not in repr(load({"master_key": "c2VjcmV0"}))


def test_a_reference_names_a_variable_of_the_environment(monkeypatch):
    monkeypatch.setenv("TOKEN", "t-1")
    assert resolve_reference("env:TOKEN") == "t-1"
    assert resolve_reference("plain") == "plain"
    with pytest.raises(KeyError):
        resolve_reference("env:NOT_SET")


def engine(**options: str) -> Engine:
    return Engine(flows=[note_flow(Provider())], settings=load(options), work=False)


def test_a_program_without_logging_reads_in_words_that_a_master_key_was_created(an_empty_folder):
    program = (
        "import asyncio\nfrom gesta import Engine\n"
        "async def main():\n"
        "    async with Engine('sqlite:///gesta.db', flows=[], work=False): pass\n"
        "asyncio.run(main())\n"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert first.stderr.startswith("gesta: created a master key in gesta.key (mode 0600); back it")
    assert (len(first.stderr.splitlines()), second.stderr) == (1, "")


async def test_an_engine_without_stderr_starts_although_it_created_a_master_key(
    an_empty_folder, monkeypatch
):
    for name in ("gesta", ""):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
    monkeypatch.setattr(sys, "stderr", None)
    async with engine():
        pass


async def test_the_new_master_key_is_logged_as_information(an_empty_folder, caplog):
    caplog.set_level(logging.INFO, "gesta")
    async with engine():
        pass
    (record,) = [one for one in caplog.records if "created a master key" in one.message]
    assert record.levelname == "INFO"


async def test_a_master_key_is_created_beside_the_store_for_its_owner_only_and_logged(
    an_empty_folder,
):
    async with engine() as first:
        assert "created a master key in gesta.key (mode 0600)" in first.notes[0]
        await first.submit(Note(), key="k")
    path = an_empty_folder / "gesta.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(base64.b64decode(path.read_text())) == 32
    async with engine() as second:
        assert second.notes == ()
        # The digests of keys hang on it: the same key is recognised by another process.
        assert (await second.submit(Note(), key="k")).verdict == "duplicate"


async def test_a_wrong_master_key_is_refused_and_changes_nothing(an_empty_folder):
    async with engine() as first:
        await first.submit(Note())
    before = {path.name: path.read_bytes() for path in an_empty_folder.iterdir()}
    with pytest.raises(WrongMasterKey, match="the master key from argument does not decrypt"):
        await engine(master_key=base64.b64encode(bytes(32)).decode()).start()
    assert {path.name: path.read_bytes() for path in an_empty_folder.iterdir()} == before


async def test_a_lost_key_file_is_reported_and_not_replaced(an_empty_folder):
    async with engine():
        pass
    (an_empty_folder / "gesta.key").unlink()
    with pytest.raises(LostMasterKey):
        await engine().start()
    assert not (an_empty_folder / "gesta.key").exists()


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff\xfe" * 22])
async def test_a_key_file_without_a_key_is_refused(an_empty_folder, content):
    (an_empty_folder / "gesta.key").write_bytes(content)
    with pytest.raises(
        BadSettings,
        match=(
            r"master key from gesta\.key: 32 bytes in base64 are needed; for a new store make one"
        ),
    ):
        await engine().start()


@pytest.mark.parametrize("given", [None, "c2hvcnQ="])
async def test_a_broken_key_of_a_store_with_secrets_is_not_replaced(an_empty_folder, given):
    """It advised `openssl rand`: a new key opens nothing of what is there."""
    async with engine():
        pass
    (an_empty_folder / "gesta.key").write_text("half of it")
    where = "gesta.key" if given is None else "argument"
    with pytest.raises(
        BadSettings, match=f"that a new key cannot decrypt: restore {where} from a backup"
    ) as refusal:
        await engine(**({} if given is None else {"master_key": given})).start()
    assert "openssl" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("gesta.db", "is not a store URL; write for instance 'sqlite:///gesta.db'"),
        ("sqlite:gesta.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("oracle://host", "there is no store 'oracle'"),
        ("postgres://host/shop", "write postgresql:// instead of postgres://"),
    ],
)
async def test_a_url_that_names_no_store_is_refused(url, text):
    with pytest.raises(BadSettings, match=text):
        await engine(url=url).start()


async def test_a_store_in_memory_needs_no_master_key():
    """`Engine("memory:")` was refused with "this store has no place for a key file"."""
    async with engine(url="memory:") as opened:
        request = await opened.submit(Note(), key="k")
        assert (request.verdict, list(opened.notes)) == ("created", [])


@pytest.mark.parametrize("master_key", [None, base64.b64encode(bytes(32)).decode()])
async def test_a_store_on_disk_has_no_vault_in_memory(tmp_path, master_key):
    """After a restart, keys would have other digests: the same key would have a second effect."""
    url = f"sqlite:///{tmp_path}/gesta.db"
    with pytest.raises(BadSettings, match="a vault in memory ends with the process"):
        await engine(url=url, vault_url="memory:", master_key=master_key).start()


@pytest.mark.parametrize(("given", "value"), [("5000", 5000), ("1_000_000", 1_000_000), (7, 7)])
def test_a_whole_number_may_be_written_in_the_environment_or_in_the_file(given, value):
    assert load({"backlog_max": given}).backlog_max == value


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("backlog_max", "0"),
        ("backlog_max", "many"),
        ("disk_free_min_mb", -1),
        ("disk_free_min_mb", True),
    ],
)
def test_a_value_that_is_not_a_whole_number_is_refused(name, given):
    with pytest.raises(BadSettings, match=f"{name} in argument: a whole number from"):
        load({name: given})


def test_a_table_of_a_flow_writes_its_durations_with_units():
    types = {"timeout_seconds": float, "concurrency": int, "ttl_seconds": float | None}
    table = {"timeout": "1m30s", "concurrency": 5, "ttl": "1d"}
    assert keyword_arguments(table, types) == {
        "timeout_seconds": 90.0,
        "concurrency": 5,
        "ttl_seconds": 86_400.0,
    }
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 -- the whole text is compared
        keyword_arguments(
            {"timeout_seconds": 90, "ttl": 90, "colour": 1, "concurrency": "x"}, types
        )
    assert str(refusal.value) == (
        "colour: unknown; known: timeout, concurrency, ttl; concurrency: expected int, got str;"
        " timeout_seconds: unknown; use timeout and write a number with a unit, for instance"
        " 500ms, 5s, 2m, 2h, 1d or 1h30m; ttl: 90 is not a duration; write a number with a unit,"
        " for instance 500ms, 5s, 2m, 2h, 1d or 1h30m"
    )
