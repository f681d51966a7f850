"""What the guides say is so."""

from gesta import Done, Retry, Unknown
from gesta.domain.events import OutcomeUnknown
from gesta.domain.retry_policy import RetryPolicy
from tests.docs.test_docs import ROOT, blocks, run_all
from tests.world import Note, Provider, engine_of


def test_the_commands_of_the_guides_work(tmp_path):
    commands = ['gesta submit notification.webhook \'{"type": "a", "data": {}}\'']
    for name in ("troubleshooting", "testing"):
        for block in blocks(ROOT / "docs" / f"{name}.md", "sh"):
            commands += block.splitlines()
    assert len(commands) == 10
    run_all(commands, tmp_path)


async def test_a_429_after_an_unknown_outcome_leaves_the_request_in_doubt(gesta):
    """docs/own-flow.md: such an attempt did nothing, but the earlier one may have."""
    script = Provider(Unknown("http_500"), Retry("http_429"), Done(id="r-1"))
    async with engine_of(script) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        shown = [
            (event.attempt, event.reason)
            for _, event, _ in await engine.history(request.id)
            if isinstance(event, OutcomeUnknown)
        ]
        assert shown == [(1, "http_500"), (2, "http_429")]
        assert await request.status() == "completed"
    script = Provider(Unknown("http_500"), *[Retry("http_429")] * 2)
    async with engine_of(script, retry=RetryPolicy(attempts=3)) as engine:
        request = await engine.submit(Note())
        await gesta.settle()
        state = (await request.view()).state
        assert (state.status, state.reason, state.waits_for_a_person) == (
            "unknown",
            "http_429",
            True,
        )
        assert script.keys == [script.keys[0]] * 3
