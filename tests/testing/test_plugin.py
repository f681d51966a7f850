from gesta import Engine
from gesta.flows import webhook


async def test_a_throttled_message_is_sent_once_after_the_time_that_the_receiver_names(gesta):
    async with Engine(
        "sqlite:///gesta.db",
        flows=[webhook.flow(url="https://example.com/hook", secret="env:HOOK")],
    ) as engine:
        gesta.sandbox.webhook.next(status=429, retry_after=30)
        before = gesta.runtime.now_ms()
        request = await engine.submit(webhook.Message(type="order.paid", data={"order": 7}))
        await gesta.settle()
        assert [effect.data for effect in gesta.sandbox.webhook.effects] == [{"order": 7}]
        assert gesta.runtime.now_ms() - before >= 30_000
        assert await request.status() == "sent"
