from gesta.domain.fair_queue import give_turns, score_of, turn_of

FLOW = "test.note"


def _given(wanted, present=0, ends=None):
    lines = {(FLOW, tenant, priority): count for (tenant, priority), count in wanted.items()}
    known = {(FLOW, tenant, priority): end for (tenant, priority), end in (ends or {}).items()}
    return {
        (tenant, priority): turn
        for (_, tenant, priority), turn in give_turns(lines, {FLOW: present}, known).items()
    }


def test_a_line_begins_at_the_present():
    assert _given({("a", 5): 3, ("b", 5): 1}, present=7) == {("a", 5): 7, ("b", 5): 7}


def test_a_line_continues_where_it_ended():
    assert _given({("a", 5): 1, ("b", 5): 1}, present=7, ends={("a", 5): 107}) == {
        ("a", 5): 107,
        ("b", 5): 7,
    }


def test_a_line_that_ended_in_the_past_begins_at_the_present():
    assert _given({("a", 5): 1}, present=7, ends={("a", 5): 3}) == {("a", 5): 7}


def test_a_less_urgent_line_begins_at_the_last_turn_of_the_more_urgent_ones():
    assert _given({("a", 6): 1}, ends={("a", 5): 100, ("a", 7): 500, ("b", 1): 900}) == {
        ("a", 6): 99
    }


def test_the_less_urgent_of_a_batch_begin_behind_the_more_urgent_of_it():
    assert _given({("a", 9): 2, ("a", 1): 10}) == {("a", 1): 0, ("a", 9): 9}


def test_the_flows_do_not_know_each_other():
    wanted = {("flow.one", "a", 5): 1, ("flow.two", "a", 5): 1}
    assert give_turns(wanted, {"flow.two": 4}, {("flow.one", "a", 5): 9}) == {
        ("flow.one", "a", 5): 9,
        ("flow.two", "a", 5): 4,
    }


def test_inside_a_turn_the_priority_decides():
    scores = [score_of(turn, priority) for turn in range(3) for priority in range(1, 11)]
    assert scores == sorted(set(scores))
    assert [turn_of(score) for score in scores] == [turn for turn in range(3) for _ in range(10)]
