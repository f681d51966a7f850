"""Batches of which SQS takes a part: a fake of Amazon's client that fails single entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gesta.errors import QueueRefused
from gesta.ports.job_queue import Job
from gesta.runtime.clock import SystemRuntime
from gesta.stores.sqs.address import address_of
from gesta.stores.sqs.client import Outgoing, Sqs
from gesta.stores.sqs.job_queue import SqsJobQueue

URL = "https://sqs.invalid/queue"
BUSY = {"Code": "InternalError", "Message": "try again", "SenderFault": False}
TAKES = {"send_message_batch": "MessageBody", "delete_message_batch": "ReceiptHandle"}


class FakeSqs(Sqs):
    """Takes every entry but `bad`, which fails so often."""

    def __init__(self, bad: str, failures: int) -> None:
        super().__init__(address_of("sqs://eu-west-1/gesta"), SystemRuntime())
        self._bad, self._failures = bad, failures
        self.sizes: list[int] = []
        self.taken: list[str] = []

    async def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "get_queue_url":
            return {"QueueUrl": URL}
        entries: Sequence[dict[str, Any]] = arguments["Entries"]
        self.sizes.append(len(entries))
        failed = []
        for entry in entries:
            text = entry[TAKES[operation]]
            if self._bad in text and self._failures:
                self._failures -= 1
                failed.append({"Id": entry["Id"], **BUSY})
            else:
                self.taken.append(text)
        return {"Failed": failed}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gesta.stores.sqs.client.PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("verb", ["send", "delete"])
async def test_the_one_of_ten_that_fails_is_tried_again_alone(verb: str) -> None:
    sqs, texts = FakeSqs("m3", failures=1), [f"m{n}" for n in range(10)]
    if verb == "send":
        answers = await sqs.send(URL, [Outgoing(text) for text in texts])
    else:
        answers = await sqs.delete(URL, texts)
    assert answers == [None] * 10
    assert sqs.sizes == [10, 1]  # R3-14, S3-17
    # Nothing is lost, and nothing that was taken is sent again.
    assert sorted(sqs.taken) == texts  # S3-17


@pytest.mark.parametrize("verb", ["send", "delete"])
async def test_the_one_that_keeps_failing_is_named_and_the_others_went_through(verb: str) -> None:
    sqs, texts = FakeSqs("m3", failures=100), [f"m{n}" for n in range(10)]
    if verb == "send":
        answers = await sqs.send(URL, [Outgoing(text) for text in texts])
    else:
        answers = await sqs.delete(URL, texts)
    assert [n for n, one in enumerate(answers) if one is not None] == [3]  # S3-17
    assert sorted(sqs.taken) == [text for text in texts if text != "m3"]


async def test_jobs_that_were_not_taken_are_named_so_that_only_they_are_put_again() -> None:
    sqs = FakeSqs("r-3-1", failures=3)
    queue = SqsJobQueue(sqs, SystemRuntime(), is_polling=False)
    jobs = [Job(f"r-{n}-1", "default", "a.b", f"r-{n}", 1, due_ms=0) for n in range(10)]
    with pytest.raises(QueueRefused) as refused:
        await queue.put(jobs)
    assert refused.value.job_ids == ("r-3-1",)
    await queue.put([job for job in jobs if job.id in refused.value.job_ids])
    assert len(sqs.taken) == 10  # S3-17
    assert all(sum(f'"{job.id}"' in text for text in sqs.taken) == 1 for job in jobs)
