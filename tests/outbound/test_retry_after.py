"""Retry-After: seconds or a date, never trusted beyond a day."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.outbound.http import retry_after_seconds

#: Sun, 06 Nov 1994 08:49:37 GMT, the example of the RFC.
NOW_MS = 784_111_777_000


@pytest.mark.parametrize(
    ("value", "seconds"), [("0", 0.0), ("30", 30.0), (" 120 ", 120.0), ("1.5", 1.5)]
)
def test_seconds_are_read(value, seconds):
    assert retry_after_seconds(value, NOW_MS) == seconds  # S1-19, R1-27


@pytest.mark.parametrize(
    "value",
    [
        "Sun, 06 Nov 1994 08:50:37 GMT",
        "Sunday, 06-Nov-94 08:50:37 GMT",
        "Sun Nov  6 08:50:37 1994",
        "Sun, 06 Nov 1994 09:50:37 +0100",
    ],
)
def test_every_form_of_an_http_date_is_read(value):
    assert retry_after_seconds(value, NOW_MS) == 60.0  # S1-19: seconds or HTTP-date


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "soon",
        "-5",
        "1e3",
        "inf",
        "nan",
        "0x10",
        "٣٠",
        "10, 20",
        "Sun, 99 Nov 1994 08:50:37 GMT",
        "1994-11-06T08:50:37Z",
    ],
)
def test_a_bad_value_is_ignored(value):
    assert retry_after_seconds(value, NOW_MS) is None  # S1-19


def test_no_wait_is_longer_than_a_day_or_negative():
    assert retry_after_seconds("999999999", NOW_MS) == 86_400.0
    assert retry_after_seconds("Mon, 07 Nov 2094 08:49:37 GMT", NOW_MS) == 86_400.0
    assert retry_after_seconds("Sat, 05 Nov 1994 08:49:37 GMT", NOW_MS) == 0.0


numbers = st.integers(min_value=-1, max_value=10**20)
nearly_dates = st.builds(
    "{}, {} {} {} {}:{}:{} {}".format,
    st.text(max_size=3),
    numbers,
    st.sampled_from(["Nov", "nov", "13"]),
    numbers,
    numbers,
    numbers,
    numbers,
    st.sampled_from(["GMT", "-9999", "+99999999", "", "Z"]),
)


@given(st.text(max_size=60) | nearly_dates | numbers.map(str))
def test_no_text_breaks_it_and_no_answer_leaves_the_limits(value):
    seconds = retry_after_seconds(value, NOW_MS)
    assert seconds is None or 0 <= seconds <= 86_400


@given(st.integers(min_value=0, max_value=86_400))
def test_a_date_means_the_same_as_the_seconds_until_it(seconds):
    moment = datetime.fromtimestamp(NOW_MS / 1000 + seconds, UTC)
    assert (
        retry_after_seconds(format_datetime(moment, usegmt=True), NOW_MS)
        == seconds
        == retry_after_seconds(str(seconds), NOW_MS)
    )


def test_a_date_without_a_zone_is_gmt_wherever_the_process_runs(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert retry_after_seconds("Sun Nov  6 08:50:37 1994", NOW_MS) == 60.0
    finally:
        monkeypatch.undo()
        time.tzset()
