"""Where a process gets its flows and settings: a program, gesta.toml, other packages."""

import base64

import pytest

from gesta.cli.flows import flows_of, left_out
from gesta.flows.channels import EXTRAS, flow_name, unknown_flow
from gesta.runtime.settings import Settings, load
from gesta.runtime.telemetry import Telemetry
from tests.cli.shop import APP

WEBHOOK = ("submit", "notification.webhook", '{"type": "a", "data": {}}')


def rows(answer) -> dict[str, tuple[object, str]]:
    return {row["name"]: (row["value"], row["source"]) for row in answer.items}


def test_every_setting_shows_its_value_and_its_source(cli, folder, monkeypatch):
    (folder / "gesta.toml").write_text(
        "tenant = 'acme'\nlog_level = 'info'\nmaster_key = 'hidden'\n"
        "[flows.webhook]\nurl = 'https://example.com'\nsecret = 'hidden'\n"
    )
    monkeypatch.setenv("GESTA_LOG_LEVEL", "error")
    monkeypatch.delenv("GESTA_API_PORT")
    answer = cli("settings", "--url", "sqlite:///other.db", "--json")
    assert rows(answer) == {
        "url": ("sqlite:///other.db", "argument"),
        "events_url": (None, "default"),
        "queue_url": (None, "default"),
        "vault_url": (None, "default"),
        "views_url": (None, "default"),
        "inbound_queue_url": (None, "default"),
        "master_key": ("(secret)", "gesta.toml"),
        "tenant": ("acme", "gesta.toml"),
        "log_level": ("error", "GESTA_LOG_LEVEL"),
        "log_format": ("auto", "default"),
        "app": (None, "default"),
        "allow_private": ([], "default"),
        "retention": (None, "default"),
        "backlog_max": (1_000_000, "default"),
        "disk_free_min_mb": (200, "default"),
        "api_host": ("127.0.0.1", "default"),
        "api_port": (8420, "default"),
        "api_rate": (5_000, "default"),
        "server": (None, "default"),
        "api_key": (None, "default"),
        "public_url": (None, "default"),
        "sns_url": (None, "default"),
        "enriched_jobs_until": (None, "default"),
        "alerts_to": (None, "default"),
        "flows.webhook.url": ("https://example.com", "gesta.toml"),
        "flows.webhook.secret": ("(secret)", "gesta.toml"),
    }
    assert "hidden" not in cli("settings").out


def test_a_reference_to_a_secret_is_not_masked(cli, folder):
    (folder / "gesta.toml").write_text(
        "[flows.webhook]\nurl = 'https://example.com'\nsecret = 'env:HOOK'\n"
    )
    assert rows(cli("settings", "--json"))["flows.webhook.secret"] == ("env:HOOK", "gesta.toml")


def test_a_programs_own_settings_hold_where_the_command_line_says_nothing(cli, monkeypatch):
    monkeypatch.setenv("GESTA_URL", "sqlite:///elsewhere.db")
    shown = rows(cli("settings", "--app", APP, "--json"))
    assert shown["url"] == ("sqlite:///gesta.db", APP)
    assert shown["app"] == (APP, "argument")
    shown = rows(cli("settings", "--app", APP, "--url", "sqlite:///third.db", "--json"))
    assert shown["url"] == ("sqlite:///third.db", "argument")


def test_settings_say_which_file_the_master_key_comes_from(cli, monkeypatch):
    """They said `default`, while the file beside the store was in use."""
    assert rows(cli("settings", "--json"))["master_key"] == (None, "default")
    assert cli(*WEBHOOK).code == 0
    assert rows(cli("settings", "--json"))["master_key"] == ("(secret)", "gesta.key")
    monkeypatch.setenv("GESTA_MASTER_KEY", base64.b64encode(bytes(32)).decode())
    assert rows(cli("settings", "--json"))["master_key"] == ("(secret)", "GESTA_MASTER_KEY")


def test_a_program_in_the_current_folder_is_found(cli, folder):
    (folder / "own_program.py").write_text(
        "from gesta import *\n\nclass Hello(Payload):\n    text: str\n\n"
        "@flow('own.hello', on_unknown='manual')\n"
        "async def hello(payload: Hello, attempt: Attempt) -> Outcome:\n    return Done()\n\n"
        "engine = Engine('sqlite:///gesta.db', flows=[hello])\n"
    )
    (folder / "gesta.toml").write_text("app = 'own_program:engine'\n")
    assert cli("submit", "own.hello", '{"text": "hi"}').code == 0


def test_flows_that_others_execute_are_declared_without_python(cli, folder):
    (folder / "gesta.toml").write_text(
        '[flows.external."warehouse.pick"]\nlease = "30s"\non_unknown = "resend"\nattempts = 2\n'
    )
    assert cli("submit", "warehouse.pick", '{"any": ["thing"]}').code == 0
    (flow,) = [one for one in flows_of(load(file="gesta.toml")) if one.name == "warehouse.pick"]
    assert (flow.lease_seconds, flow.rules.on_unknown, flow.rules.retry.attempts) == (
        30.0,
        "resend",
        2,
    )
    assert rows(cli("settings", "--json"))["flows.external.warehouse.pick"][1] == "gesta.toml"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("lease = '0s'\non_unknown = 'manual'", "lease_seconds must be from 1 to 300"),
        ("lease = 'long'\ncolour = 1", "colour: unknown; known: lease,"),
        ("lease = '30s'", "choose on_unknown"),
        ("on_unknown = 'reconcile'", "on_unknown must be 'resend' or 'manual'"),
        ("attempts = 0\non_unknown = 'manual'", "must be positive"),
    ],
)
def test_an_error_in_the_table_of_such_a_flow_names_its_location(cli, folder, table, message):
    (folder / "gesta.toml").write_text(f'[flows.external."warehouse.pick"]\n{table}\n')
    answer = cli("submit", "warehouse.pick", "{}")
    assert answer.code == 2
    assert '[flows.external."warehouse.pick"] in gesta.toml' in " ".join(answer.err.split())
    assert message in " ".join(answer.err.split())


def test_a_flow_that_others_execute_needs_a_table_and_a_name(cli, folder):
    (folder / "gesta.toml").write_text("[flows.external]\npick = 1\n")
    assert "write one table per flow" in " ".join(cli("submit", "warehouse.pick", "{}").err.split())
    (folder / "gesta.toml").write_text("[flows.external.pick]\non_unknown = 'manual'\n")
    assert "two or more parts" in " ".join(cli("submit", "warehouse.pick", "{}").err.split())


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("shop", "'shop' must be MODULE:NAME"),
        ("nowhere.at_all:engine", "nowhere.at_all cannot be imported: ModuleNotFoundError"),
        (
            "broken_program:engine",
            "broken_program cannot be imported: ZeroDivisionError: division by zero",
        ),
        ("tests.cli.shop:motor", "tests.cli.shop has no Engine called 'motor'; it has: engine"),
        ("tests.cli.shop:note", "no Engine called 'note'"),
    ],
)
def test_a_program_that_cannot_be_loaded_is_named_with_the_reason(cli, folder, app, message):
    (folder / "broken_program.py").write_text("1 / 0\n")
    answer = cli(*WEBHOOK, "--app", app)
    assert answer.code == 2
    assert message in answer.err
    assert not (folder / "gesta.db").exists()


def test_the_engine_of_a_synchronous_program_is_loaded(cli, folder, monkeypatch):
    """`shop has no Engine called 'engine'` was the answer to every Flask and Django program."""
    (folder / "flask_shop.py").write_text(
        "from gesta.sync import Engine\n"
        "from tests.cli.shop import note\n"
        'engine = Engine("sqlite:///gesta.db", flows=[note])\n'
    )
    made = cli("submit", "shop.note", "{}", "--app", "flask_shop:engine")
    assert made.code == 0, made.err
    shown = cli("show", made.out.strip(), "--app", "flask_shop:engine", "--json")
    assert shown.json["flow"] == "shop.note"
    wrong = cli("list", "--app", "flask_shop:motor")
    assert "has no Engine called 'motor'; it has: engine" in wrong.err


def test_another_packages_flow_is_there_once_it_is_installed(cli, folder, monkeypatch):
    (folder / "pigeon.py").write_text(
        "from gesta import *\n\nclass Letter(Payload):\n    to: str\n\n"
        "def flow_of_pigeons(speed: int = 1) -> Flow:\n"
        "    async def fly(letter: Letter, attempt: Attempt) -> Outcome:\n        return Done()\n"
        "    return Flow('pigeon.letter', Letter, fly)\n"
    )
    (folder / "pigeon-1.0.dist-info").mkdir()
    (folder / "pigeon-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pigeon\nVersion: 1.0\n"
    )
    (folder / "pigeon-1.0.dist-info" / "entry_points.txt").write_text(
        "[gesta.flows]\npigeon = pigeon:flow_of_pigeons\n"
    )
    (folder / "gesta.toml").write_text("[flows.pigeon]\nspeed = 3\n")
    monkeypatch.syspath_prepend(str(folder))
    assert cli("submit", "pigeon.letter", '{"to": "Ada"}').code == 0
    (folder / "gesta.toml").write_text("[flows.pigeon]\nspeed = 'fast'\n")
    assert (
        "[flows.pigeon] in gesta.toml: speed: expected int, got str"
        in cli("submit", "pigeon.letter", '{"to": "Ada"}').err
    )


def test_a_channel_without_its_library_is_left_out_and_names_what_to_install(cli, monkeypatch):
    monkeypatch.setattr("gesta.flows.slack.client.find_spec", lambda _: None)
    assert cli(*WEBHOOK).code == 0
    answer = cli("submit", "notification.slack", '{"channel": "C012AB3CD", "text": "a"}')
    assert answer.code == 2
    assert "pip install 'gesta[slack]'" in answer.err
    # There is no program here whose flows it could be added to.
    assert "to the Engine's flows" not in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "put", "slack.workspace", "default", "token=xoxb-1-a"),
        ("config", "apply", "slack.toml"),
        ("pause", "--flow", "notification.slack"),
    ],
)
def test_using_a_channel_without_its_library_raises_an_error_that_names_what_to_install(
    cli, folder, monkeypatch, arguments
):
    """It said `no flow of this process has config of kind 'slack.workspace'`, and nothing of what
    brings it.
    """
    monkeypatch.setattr("gesta.flows.slack.client.find_spec", lambda _: None)
    (folder / "slack.toml").write_text("[slack.workspace.default]\ntoken = 'env:TOKEN'\n")
    answer = cli(*arguments)
    assert answer.code == 2
    assert "pip install 'gesta[slack]'" in answer.err


def test_an_unknown_user_flow_error_names_the_option_that_loads_it(cli):
    sent = cli("submit", "shop.ship", "{}")
    assert sent.code == 2
    assert "no flow 'shop.ship' is registered with this engine; it has: " in sent.err
    assert "; name its program with --app MODULE:NAME" in sent.err
    assert (
        "; name its program with --app MODULE:NAME"
        in cli("config", "put", "shop.counter", "a", "b=c").err
    )
    # Its program was named: what is wrong is the name.
    assert "--app" not in cli("submit", "shop.ship", "{}", "--app", "tests.cli.shop:engine").err


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_over_http_and_in_programs_a_missing_library_is_part_of_the_text(monkeypatch, extra):
    assert "pip install" not in str(unknown_flow(flow_name(extra), []))
    monkeypatch.setattr("gesta.flows.channels.find_spec", lambda _: None)
    text = str(unknown_flow(flow_name(extra), []))
    assert text.endswith(
        f"; its libraries are not installed: pip install 'gesta[{extra}]' and restart this process;"
        f" your own program also adds gesta.flows.{extra}.flow() to the Engine's flows"
    )
    assert "pip install" not in str(unknown_flow(extra, []))


def test_a_configured_channel_needs_its_library(cli, folder, monkeypatch):
    monkeypatch.setattr("gesta.flows.slack.client.find_spec", lambda _: None)
    (folder / "gesta.toml").write_text("[flows.slack]\ntoken = 'env:SLACK_TOKEN'\n")
    answer = cli(*WEBHOOK)
    assert (answer.code, "pip install 'gesta[slack]'" in answer.err) == (2, True)


def test_a_channel_left_out_is_logged(caplog, monkeypatch):
    monkeypatch.setattr("gesta.flows.sms.message.find_spec", lambda _: None)
    caplog.set_level("INFO", "gesta")
    [missing] = left_out(Settings())
    Telemetry().channel_left_out(missing)
    assert (missing.name, "pip install 'gesta[sms]'" in caplog.text) == ("notification.sms", True)
