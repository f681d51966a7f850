"""`gesta sandbox slack-event` posts what a server accepts."""

from __future__ import annotations

import asyncio

from gesta.cli.main import main
from tests.intake.inbound.slack_posts import KEYWORD, SECRET, TEAM
from tests.intake.inbound.stage import PATH, Stage, stage


async def run(made: Stage, *more: str, secret: str = SECRET) -> int:
    arguments = ["sandbox", "slack-event", f"{KEYWORD} from the command line", "--team", TEAM]
    arguments += ["--secret", secret, "--to", made.api.address + PATH, *more]

    def called() -> int:
        try:
            main(arguments)
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    return await asyncio.to_thread(called)


async def test_an_event_is_posted_and_its_repeat_is_a_duplicate(tmp_path, capfd) -> None:
    async with stage(f"sqlite:///{tmp_path / 'gesta.db'}") as made:
        assert await run(made, "--times", "3") == 0
        await made.ended("completed")
        assert made.issues == ["from the command line"]
        lines = capfd.readouterr().out.splitlines()
        assert ["accepted" in lines[0], *("duplicate" in one for one in lines[1:])] == [True] * 3


async def test_an_event_id_that_is_posted_again_leads_to_nothing_new(tmp_path, capfd) -> None:
    async with stage(f"sqlite:///{tmp_path / 'gesta.db'}") as made:
        assert await run(made, "--event-id", "Ev0AGAIN") == 0
        await made.ended("completed")
        assert await run(made, "--event-id", "Ev0AGAIN") == 0
        assert await run(made, "--event-id", "Ev0AGAIN", "--ts", "1700000000.000100") == 0
        lines = capfd.readouterr().out.splitlines()
        assert ["accepted" in lines[0], *("duplicate" in one for one in lines[1:])] == [True] * 3
        assert len(await made.of("ticket.backlog")) == 1  # R3-6
        assert made.issues == ["from the command line"]


async def test_a_wrong_secret_is_reported(tmp_path, capfd) -> None:
    async with stage(f"sqlite:///{tmp_path / 'gesta.db'}") as made:
        assert await run(made, secret="other") == 1
        assert "check --secret" in capfd.readouterr().err


async def test_a_server_that_does_not_run_is_reported(tmp_path, capfd) -> None:
    async with stage(f"sqlite:///{tmp_path / 'gesta.db'}") as made:
        assert await run(made, "--to", "http://127.0.0.1:1/inbound/slack/events") == 2
        assert "gesta serve" in capfd.readouterr().err
