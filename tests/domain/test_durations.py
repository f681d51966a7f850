"""Durations are written with a unit, in one spelling everywhere."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.domain.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5),
        ("1.5s", 1.5),
        ("2m", 120),
        ("2h", 7_200),
        ("1h30m", 5_400),
        ("1d", 86_400),
        ("1d2h3m4s5ms", 93_784.005),
        ("0s", 0),
    ],
)
def test_a_number_with_a_unit_is_read(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "wrong",
    ["", "5", 5, 5.0, True, None, "s", "5 s", " 5s", "-5s", "5S", "5min", "30m1h", "5s5s", "٥s"],
)
def test_anything_else_is_refused_with_the_right_spelling(wrong):
    with pytest.raises(ValueError, match=r"is not a duration; write a number with a unit.* 5s, 2m"):
        parse_duration(wrong)


def test_a_duration_beyond_all_calendars_is_refused():
    with pytest.raises(ValueError, match="is too long"):
        parse_duration("999999999999d")


@given(st.integers(0, 10**13))
def test_the_spelling_of_a_duration_is_read_back(milliseconds):
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


def test_a_duration_is_spelled_largest_unit_first():
    assert format_duration(timedelta(hours=1, minutes=30)) == "1h30m"
    assert format_duration(timedelta(0)) == "0s"
    assert format_duration(timedelta(hours=-1)) == "-1h"
