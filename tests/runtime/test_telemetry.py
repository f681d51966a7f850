from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from gesta import Attempt, Done, Engine, Flow, Outcome, Payload, Personal, Rejected, Retry, Unknown
from gesta.flows import webhook
from gesta.ports.leases import LiveProcess
from gesta.runtime.telemetry import logger, reason_label, structure
from tests.world import (
    FLOW,
    URL,
    Gate,
    Note,
    Provider,
    die,
    engine_of,
    let_run,
    note_flow,
    pass_time,
)


def lines(caplog: Any, event: str = "attempt") -> list[dict[str, Any]]:
    found = [
        msgspec.json.decode(record.getMessage(), type=dict[str, Any])
        for record in caplog.records
        if record.name == "gesta"
    ]
    return [line for line in found if line["event"] == event]


def samples(engine: Engine, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in engine.pipeline.telemetry.registry.collect()
        for sample in family.samples
        if sample.name == name
    }


async def test_an_attempt_is_logged_with_the_tags_of_its_request(gesta, caplog):
    caplog.set_level(logging.DEBUG, "gesta")
    async with Engine(URL, flows=[webhook.flow()]) as engine:
        url = "https://hooks.customer-name.example.com/T012/secret-path"
        await engine.admin.put_config(
            webhook.ENDPOINT, "shop", {"url": url, "secret": "whsec_" + "QUJD" * 8}, tenant="acme"
        )
        gesta.sandbox.webhook.next(status=500, slow_seconds=0.5)
        message = webhook.Message(type="a.b", data={"card": "4111"}, endpoint="shop")
        request = await engine.submit(message, tenant="acme", correlation_id="c-1")
        await gesta.settle()
    failed, succeeded = lines(caplog)
    # R1-45
    assert {
        name: failed[name]
        for name in (
            "tenant",
            "requestId",
            "jobId",
            "gateway",
            "attempts",
            "outcome",
            "correlationId",
        )
    } == {
        "tenant": "acme",
        "requestId": request.id,
        "jobId": f"{request.id}-1",
        "gateway": "shop",
        "attempts": 1,
        "outcome": "Retry",
        "correlationId": "c-1",
    }
    assert failed["latencyMs"] == 500.0  # R1-45
    assert (failed["reason"], failed["namespace"], failed["level"]) == (
        "http_500",
        "notification.webhook",
        "info",
    )
    assert (succeeded["outcome"], succeeded["attempts"], succeeded["level"]) == (
        "Done",
        2,
        "debug",
    )  # R1-45
    everything = "".join(record.getMessage() for record in caplog.records)
    # S1-20: neither the path nor the customer's host, nor anything of the payload.
    assert not any(
        text in everything for text in ("secret-path", "customer-name", "4111", "whsec_")
    )


async def test_the_target_in_a_log_is_masked(gesta, caplog):
    caplog.set_level(logging.DEBUG, "gesta")
    url = "https://customer-name.hooks.example.com/T012/secret-path"
    async with Engine(URL, flows=[webhook.flow(url=url, secret="env:HOOK")]) as engine:
        await engine.submit(webhook.Message(type="a.b", data={}))
        await let_run(gesta)
    (line,) = lines(caplog)
    assert line["target"] == "*.example.com"  # R1-45, S1-20


async def test_a_success_is_logged_at_level_debug_only(gesta, caplog):
    caplog.set_level(logging.INFO, "gesta")
    async with engine_of(Provider()) as engine:
        await engine.submit(Note())
        await let_run(gesta)
    assert lines(caplog) == []


class Letter(Payload, frozen=True):
    text: str


class PersonalLetter(Payload, frozen=True):
    email: Personal[str]


async def test_no_secret_and_no_address_comes_through_a_log(gesta, caplog):
    async def execute(payload: Letter, attempt: Attempt) -> Outcome:
        raise RuntimeError(
            f"POST https://ann:pw@api.example.com/v1?apiKey=abc123 failed for {payload.text}"
        )

    caplog.set_level(logging.DEBUG, "gesta")
    async with Engine(URL, flows=[Flow("test.letter", Letter, execute)]) as engine:
        request = await engine.submit(Letter("ann@example.com +49 170 1234567"))
        await let_run(gesta)
        detail = (await request.view()).state.detail
    text = "".join(record.getMessage() for record in caplog.records) + detail
    assert not any(secret in text for secret in ("abc123", "ann@", "1234567", "ann:pw"))


def test_a_value_that_json_cannot_encode_is_still_logged(caplog):
    caplog.set_level(logging.INFO, "gesta")
    logger().info("odd", what="half a pair: \ud800", thing=object(), items=[b"\xff"])
    assert caplog.records[-1].getMessage().startswith("{")
    assert '"odd"' in caplog.records[-1].getMessage()


async def test_metrics_have_the_names_and_labels_of_the_contract(gesta):
    provider = Provider(Retry("throttled"), Rejected("bad_address"))
    async with engine_of(provider) as engine:
        await engine.submit(Note())
        await gesta.settle()
        await engine.submit(Note())
        await gesta.settle()
        namespace = ("namespace", FLOW)
        # R1-46, R1-47
        assert samples(engine, "executor_attempts_total") == {(namespace,): 3}
        assert samples(engine, "executor_success_total") == {(namespace,): 1}  # R1-46
        assert samples(engine, "executor_failed_total") == {
            (namespace, ("reason", "throttled")): 1,
            (namespace, ("reason", "other")): 1,
        }  # R1-46
        assert samples(engine, "executor_latency_ms_count") == {(namespace,): 3}  # R1-46
        assert samples(engine, "queue_lag_ms") == {(("queue", FLOW),): 0}  # R1-46
        text = generate_latest(engine.pipeline.telemetry.registry).decode()
    assert "# TYPE executor_latency_ms histogram" in text  # R1-46
    assert "# TYPE executor_attempts_total counter" in text


async def test_latency_is_the_time_in_the_executor(gesta):
    gate = Gate()
    async with engine_of(Provider(gate)) as engine:
        await engine.submit(Note())
        await let_run(gesta)
        await pass_time(gesta, 3)
        gate.opened.set()
        await let_run(gesta)
        assert samples(engine, "executor_latency_ms_sum") == {(("namespace", FLOW),): 3_000}
        buckets = samples(engine, "executor_latency_ms_bucket")
        assert [value for labels, value in buckets.items() if ("le", "2500.0") in labels] == [0]
        assert [value for labels, value in buckets.items() if ("le", "5000.0") in labels] == [1]


async def test_queue_lag_counts_from_when_a_job_could_have_been_taken(gesta):
    provider = Provider(Retry("busy", after_seconds=100))
    async with engine_of(provider) as engine:
        await engine.submit(Note())
        await let_run(gesta)
    gesta.advance(130)
    async with engine_of(provider) as engine:
        await let_run(gesta)
        # S1-22: due after 100 s, taken after 130 s: the wait that was wanted is no lag.
        assert samples(engine, "queue_lag_ms") == {(("queue", FLOW),): 30_000}


def test_a_reason_becomes_a_label_only_from_a_closed_set():
    assert [
        reason_label(reason)
        for reason in ("timeout", "http_404", "http_503", "Card 4111 declined", "")
    ] == ["timeout", "http_4xx", "http_5xx", "other", "other"]


async def test_a_thousand_reasons_make_no_thousand_series(gesta):
    provider = Provider(*[Rejected(f"reason {number}") for number in range(50)])
    async with engine_of(provider) as engine:
        for _ in range(50):
            await engine.submit(Note(), tenant="acme")
        await let_run(gesta)
        assert samples(engine, "executor_failed_total") == {
            (("namespace", FLOW), ("reason", "other")): 50
        }  # S1-21
        text = generate_latest(engine.pipeline.telemetry.registry).decode()
    assert "acme" not in text  # S1-21: no tenant and no request in a label


async def test_a_quarantined_job_is_counted_and_logged(gesta, caplog):
    provider = Provider()
    async with engine_of(provider) as engine:
        from gesta.ports.job_queue import Job

        await engine.pipeline.environment.stores.queue.put([Job("x-1", "default", FLOW, "x", 1)])
        await pass_time(gesta, 10)
        assert samples(engine, "gesta_quarantined_total") == {(("what", "job"),): 1}
    (line,) = lines(caplog, "quarantined")
    assert (line["what"], line["name"], line["level"]) == ("job", "x-1", "error")


async def test_a_store_outage_is_logged_with_the_component(gesta, ports, caplog):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        ports.events.fail("follow")
        await engine.submit(Note())
        await pass_time(gesta, 3)
    (line,) = lines(caplog, "store failed, trying again")
    assert (line["component"], line["error"]) == ("projector", "the store is out of reach")


@pytest.mark.parametrize(
    "outcome", [Done(id="x"), Rejected("no"), Unknown("timeout"), Retry("busy")]
)
async def test_every_attempt_counts_once(gesta, outcome):
    async with Engine(URL, flows=[note_flow(Provider(outcome), on_unknown="manual")]) as engine:
        await engine.submit(Note())
        await let_run(gesta)
        assert samples(engine, "executor_attempts_total") == {(("namespace", FLOW),): 1}


#: The names of the contract.
CONTRACT = {
    "executor_attempts",
    "executor_success",
    "executor_failed",
    "executor_latency_ms",
    "queue_lag_ms",
    "enriched_jobs",
    "authorized",
    "captured",
    "reversed",
}
LABELS = {"currency", "flow", "status", "reason", "role", "subscription", "what"}


async def test_metrics_beyond_the_contract_are_called_gesta_and_use_base_units(gesta):
    async with engine_of(Provider(Rejected("no"))) as engine:
        await engine.submit(Note())
        await pass_time(gesta, 65)
        families = list(engine.pipeline.telemetry.registry.collect())
    own = [family for family in families if family.name not in CONTRACT]
    assert {family.name for family in families} >= CONTRACT  # R1-46
    assert [one.name for one in own if not one.name.startswith("gesta_")] == []
    assert [one.name for one in own if one.name.endswith(("_ms", "_minutes", "_mb"))] == []
    assert {name for one in own for sample in one.samples for name in sample.labels} <= LABELS


async def test_gauges_show_the_whole_store_and_go_back_to_zero(gesta):
    provider = Provider(Rejected("no"), Unknown("lost"))
    async with engine_of(provider, on_unknown="manual") as engine:
        leases = engine.pipeline.environment.stores.leases
        now = gesta.runtime.now_ms()
        await leases.report(LiveProcess("a", "host", 1, ("worker", "sweeper"), "1", now), 80)
        failed, unknown = await engine.submit(Note()), await engine.submit(Note())
        await let_run(gesta)
        await engine.admin.pause(flow=FLOW)
        await engine.submit(Note())
        await pass_time(gesta, 65)
        flow = ("flow", FLOW)
        assert samples(engine, "gesta_dead_letters") == {(flow,): 1}
        assert samples(engine, "gesta_unknown") == {(flow,): 1}
        assert samples(engine, "gesta_held") == {(flow,): 1}
        assert samples(engine, "gesta_queue_depth")[flow, ("status", "held")] == 1
        assert samples(engine, "gesta_queue_oldest_ready_seconds") == {(flow,): 0}
        assert samples(engine, "gesta_processes")[(("role", "sweeper"),)] >= 1
        await failed.purge()
        await unknown.resolve("rejected", by="ops", evidence="looked")
        await (await engine.request(unknown.id)).purge()
        await engine.admin.resume(flow=FLOW)
        await pass_time(gesta, 120)
        for name in ("gesta_dead_letters", "gesta_unknown", "gesta_held"):
            assert samples(engine, name) == {(flow,): 0}


async def test_a_request_left_unknown_by_a_kill_is_logged_and_counted_once(gesta, caplog):
    """Requests that a killed process left `unknown` had neither a log line nor a metric."""
    caplog.set_level(logging.INFO, "gesta")
    gate = Gate()
    async with engine_of(Provider(gate), on_unknown="manual") as dying:
        request = await dying.submit(Note())
        await let_run(gesta)
        await gate.reached.wait()
        await die(dying)
    async with engine_of(Provider(), on_unknown="manual") as engine:
        await pass_time(gesta, 15)
        assert samples(engine, "gesta_requests_total") == {
            (("flow", FLOW), ("reason", "lease_lost"), ("status", "unknown")): 1
        }
    (line,) = lines(caplog, "a person has to decide")
    assert (line["requestId"], line["reason"]) == (request.id, "lease_lost")


async def test_a_request_that_expires_is_logged_and_counted(gesta, caplog):
    caplog.set_level(logging.INFO, "gesta")
    async with engine_of(Provider(Retry("busy", after_seconds=50)), ttl_seconds=20) as engine:
        request = await engine.submit(Note())
        await pass_time(gesta, 60)
        assert await request.status() == "expired"
        assert [
            (dict(labels)["status"], count)
            for labels, count in samples(engine, "gesta_requests_total").items()
        ] == [("expired", 1)]
    (line,) = lines(caplog, "request expired")
    assert line["requestId"] == request.id


async def test_the_traceback_of_an_executor_is_logged_without_secrets(gesta, caplog):
    async def execute(payload: Letter, attempt: Attempt) -> Outcome:
        try:
            raise KeyError("Authorization: Bearer abcdef123456")
        except KeyError as error:
            raise RuntimeError(f"cannot send to {payload.text}") from error

    caplog.set_level(logging.INFO, "gesta")
    async with Engine(URL, flows=[Flow("test.letter", Letter, execute)]) as engine:
        await engine.submit(Letter("ann@example.com"))
        await let_run(gesta)
    (line,) = lines(caplog, "executor raised")
    trace = line["traceback"]
    assert trace.index("KeyError") < trace.index("RuntimeError: cannot send to [email]")
    assert "in execute" in trace
    assert "test_telemetry.py" in trace
    assert not any(secret in trace for secret in ("abcdef123456", "ann@"))


async def test_a_flow_with_personal_data_that_returns_no_outcome_is_named_in_the_log(gesta, caplog):
    """The detail is encrypted, so the line had an empty `error`."""

    async def execute(payload: PersonalLetter, attempt: Attempt) -> Outcome:
        return None  # type: ignore[return-value]

    caplog.set_level(logging.INFO, "gesta")
    async with Engine(URL, flows=[Flow("test.letter", PersonalLetter, execute)]) as engine:
        await engine.submit(PersonalLetter("ann@example.com"))
        await let_run(gesta)
    (line,) = lines(caplog, "executor raised")
    assert line["error"] == "the executor returned NoneType, not an Outcome"


@pytest.fixture
def library():
    """The logger of a library, left as it was."""
    found = logging.getLogger("uvicorn")
    before = found.handlers[:], found.propagate
    yield found
    found.handlers[:], found.propagate = before


def test_lines_of_a_library_are_structured_and_redacted(caplog, library):
    """Lines of uvicorn were plain text between lines of JSON."""
    caplog.set_level(logging.INFO, "gesta")
    structure("uvicorn")
    try:
        raise ValueError("token=abc123")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Invalid request of ann@example.com")
    (line,) = lines(caplog, "Invalid request of [email]")
    assert (line["logger"], line["level"]) == ("uvicorn.error", "error")
    assert "ValueError: token=[token]" in line["traceback"]
    assert len(library.handlers) == 1


async def test_a_line_about_a_request_says_in_words_what_holds_it_and_has_no_empty_detail(
    gesta, caplog
):
    caplog.set_level(logging.DEBUG, "gesta")
    async with engine_of(Provider()) as engine:
        sent = await engine.submit(Note())
        await let_run(gesta)
        await engine.admin.pause(flow=FLOW)
        held = await engine.submit(Note())
        await let_run(gesta)
    (line,) = lines(caplog, "request held")
    assert (line["requestId"], line["reason"]) == (held.id, f"flow {FLOW} of all tenants")
    assert "detail" not in line
    (line,) = lines(caplog, "attempt")
    assert (line["requestId"], line["outcome"]) == (sent.id, "Done")
    assert not {"detail", "reason"} & line.keys()
