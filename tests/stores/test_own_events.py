"""What a process remembers of its own appends is whole or not used: whoever follows never misses an
event because of it.
"""

from __future__ import annotations

from gesta.runtime.clock import ManualRuntime
from gesta.stores.own_events import OwnEvents
from gesta.testing.contracts.samples import fresh_append


def test_what_was_projected_is_kept_for_whoever_is_as_far():
    own = OwnEvents(ManualRuntime())
    assert own.after(0, 10) == []
    own.add_projected([fresh_append(count=2)], 1)
    assert [event.position for event in own.after(0, 10)] == [1, 2]
    assert own.after(2, 10) == []
    own.add_projected([fresh_append()], 3)
    assert [event.position for event in own.after(2, 10)] == [3]


def test_whoever_comes_later_is_sent_to_the_store_for_what_was_not_kept():
    own = OwnEvents(ManualRuntime())
    own.after(0, 10)
    own.add_projected([fresh_append()], 1)
    own.add_projected([fresh_append(count=2)], 2)
    own.add([fresh_append()], 4)
    # 2 and 3 are nowhere but in the store: nothing may be handed out from 1 on.
    assert own.after(0, 10) == []
    assert [event.position for event in own.after(3, 10)] == [4]
