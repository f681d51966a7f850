"""What a process remembers of its own appends is whole or not used: a follower never misses an
event because of it.
"""

from __future__ import annotations

from gesta.runtime.clock import ManualRuntime
from gesta.stores.own_events import OwnEvents
from gesta.testing.contracts.samples import fresh_append


def test_projected_events_are_kept_for_a_follower_that_has_read_up_to_them():
    own = OwnEvents(ManualRuntime())
    assert own.after(0, 10) == []
    own.add_projected([fresh_append(count=2)], 1, 2)
    assert [event.position for event in own.after(0, 10)] == [1, 2]
    assert own.after(2, 10) == []
    own.add_projected([fresh_append()], 3, 3)
    assert [event.position for event in own.after(2, 10)] == [3]


def test_a_later_follower_reads_events_that_were_not_kept_from_the_store():
    own = OwnEvents(ManualRuntime())
    own.after(0, 10)
    own.add_projected([fresh_append()], 1, 1)
    own.add_projected([fresh_append(count=2)], 2, 3)
    own.add([fresh_append()], 4)
    # 2 and 3 are nowhere but in the store: nothing may be returned from 1 on.
    assert own.after(0, 10) == []
    assert [event.position for event in own.after(3, 10)] == [4]
