"""How many segments a text is sent in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.flows.sms.message import Segments, segments_of


@pytest.mark.parametrize(
    ("text", "count", "encoding"),
    [
        ("a", 1, "GSM-7"),
        ("a" * 160, 1, "GSM-7"),
        ("a" * 161, 2, "GSM-7"),
        ("a" * 306, 2, "GSM-7"),
        ("a" * 307, 3, "GSM-7"),
        ("é" * 160, 1, "GSM-7"),
        ("€" * 80, 1, "GSM-7"),
        ("€" * 81, 2, "GSM-7"),
        # 153 septets hold 76 characters of two; the odd one stays empty.
        ("€" * 152, 2, "GSM-7"),
        ("€" * 153, 3, "GSM-7"),
        ("a" * 152 + "€" + "a" * 152, 3, "GSM-7"),
        ("ê" * 70, 1, "UCS-2"),
        ("ê" * 71, 2, "UCS-2"),
        ("ê" * 134, 2, "UCS-2"),
        ("ê" * 135, 3, "UCS-2"),
        ("😀" * 35, 1, "UCS-2"),
        ("😀" * 36, 2, "UCS-2"),
        # 67 units hold 33 pairs.
        ("😀" * 66, 2, "UCS-2"),
        ("😀" * 67, 3, "UCS-2"),
        ("a`", 1, "UCS-2"),
    ],
)
def test_segments_are_counted_as_they_are_cut(text, count, encoding):
    assert segments_of(text) == Segments(count, encoding)


@given(st.text(alphabet="a€ê😀", max_size=400))
def test_no_cut_goes_through_a_character_and_no_segment_is_wasted(text):
    found = segments_of(text)
    wide, one, many = ("€", 160, 153) if found.encoding == "GSM-7" else ("😀", 70, 67)
    units = sum(2 if character == wide else 1 for character in text)
    assert (found.count == 1) == (units <= one)
    if units > one:
        # Each segment but the last has at most one unit free.
        assert found.count * many >= units > (found.count - 1) * (many - 1)


def test_segments_are_described():
    assert [str(segments_of("a")), str(segments_of("ê" * 80))] == [
        "1 segment, GSM-7",
        "2 segments, UCS-2",
    ]
