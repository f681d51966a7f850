"""What the data of a job may be."""

import msgspec
import pytest

from gesta.errors import BadInput
from gesta.stores.pointers import pointer_of, pointer_to

ID = "019a9c2e-0000-7000-8000-000000000001"
SLACK, EMAIL = "notification.slack", "notification.email"


def test_our_own_jobs_are_pointers_and_nothing_else():
    assert msgspec.json.decode(pointer_to(SLACK, "acme", ID)) == {
        "messageRequestId": ID,
        "tenant": "acme",
    }  # R0-1, R0-21
    assert msgspec.json.decode(pointer_to(EMAIL, "acme", ID)) == {
        "tenant": "acme",
        "requestId": ID,
    }  # R1-3
    assert pointer_to(f"@{SLACK}/acme", "acme", ID) == pointer_to(SLACK, "acme", ID)


def test_a_thread_is_the_only_other_key():
    data = f'{{"messageRequestId": "{ID}", "tenant": "acme", "threadTs": "1700000000.000100"}}'
    assert pointer_of(SLACK, data).thread_ts == "1700000000.000100"  # R0-1, S0-14
    assert pointer_of(SLACK, data.replace('"1700000000.000100"', "null")).thread_ts is None


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"messageRequestId": ID, "tenant": "acme", "token": "xoxb-1"}, "token"),  # R0-1, R0-2
        ({"messageRequestId": "12", "tenant": "acme"}, "messageRequestId"),
        ({"messageRequestId": ID}, "tenant"),
        ({"messageRequestId": ID, "tenant": "a{b"}, "tenant"),
        ({"messageRequestId": ID, "tenant": "acme", "threadTs": 1.5}, "threadTs"),
        ([], "object"),
    ],
)
def test_other_data_is_refused_with_the_field_and_without_its_value(data, error):
    with pytest.raises(BadInput, match=error) as refused:
        pointer_of(SLACK, msgspec.json.encode(data))
    assert "xoxb" not in str(refused.value)


def test_data_that_is_no_json_is_refused():
    with pytest.raises(BadInput, match="truncated"):
        pointer_of(SLACK, "{")
