"""Nesting and innermost ranges equal their quadratic definition."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.attribute.nesting import innermost, nest
from pyprof.parse.attribute.range_tree import RangeTree

spans = st.tuples(st.integers(0, 2), st.integers(-5, 30), st.integers(0, 12)).map(lambda t: (t[0], t[1], t[1] + t[2]))
points = st.tuples(st.integers(-1, 3), st.integers(-7, 45))


def chains(ranges: list[tuple[int, int, int]], at: list[tuple[int, int]]) -> list[list[int]]:
    """What ``nest`` and ``innermost`` say is open at each point, outermost first."""
    columns = np.array(ranges, np.int64).reshape(-1, 3).T
    nesting = nest(columns[0], columns[1], columns[2])
    where = np.array(at, np.int64).reshape(-1, 2).T
    found = []
    for piece in innermost(nesting, where[0], where[1]).tolist():
        chain = []
        while piece >= 0:
            chain.append(int(nesting.source[piece]))
            piece = int(nesting.parent[piece])
        found.append(chain[::-1])
    return found


def defined(ranges: list[tuple[int, int, int]], at: list[tuple[int, int]]) -> list[list[int]]:
    """The definition: every range of the thread with start <= time < end, by start, longest first, as given."""
    return [
        [
            i
            for i, (thread, start, end) in sorted(
                enumerate(ranges), key=lambda item: (item[1][1], -max(item[1][2], item[1][1] + 1), item[0])
            )
            if thread == where and start <= time < max(end, start + 1)
        ]
        for where, time in at
    ]


@given(st.lists(spans, max_size=14), st.lists(points, min_size=1, max_size=12))
def test_open_ranges_equal_the_quadratic_definition(ranges, at):
    assert chains(ranges, at) == defined(ranges, at)


@given(st.lists(spans, max_size=10), st.randoms())
def test_order_of_rows_does_not_matter(ranges, random):
    # Equal ranges are told apart by their order alone; one without a duration lasts 1 ns.
    ranges = list({(thread, start, max(end, start + 1)): None for thread, start, end in ranges})
    at = [(thread, time) for thread in range(3) for time in range(-6, 44, 3)]
    shuffled = list(range(len(ranges)))
    random.shuffle(shuffled)
    mixed = chains([ranges[i] for i in shuffled], at)
    assert [[shuffled[i] for i in chain] for chain in mixed] == chains(ranges, at)


def test_ranges_of_two_domains_that_overlap():
    # push A at 0, push B at 5, pop A at 10, pop B at 15, with C in B alone
    ranges = [(0, 0, 10), (0, 5, 15), (0, 11, 13)]
    assert chains(ranges, [(0, 4), (0, 7), (0, 10), (0, 12), (0, 15)]) == [[0], [0, 1], [1], [1, 2], []]


def test_no_ranges():
    assert chains([], [(0, 1)]) == [[]]


def test_the_range_that_the_profiler_names_counts_only_where_none_contains_the_launch():
    """Launches at 5 and 15 are in the first and second range; 25 is in none. The profiler names the second for each."""
    tree = SimpleNamespace(
        nesting=nest(np.zeros(2, np.int64), np.array([0, 10]), np.array([10, 20])), place=np.arange(2)
    )
    capture = SimpleNamespace(
        launch_thread=np.zeros(3, np.int64),
        launch_time=np.array([5, 15, 25]),
        launch_range=np.array([1, 1, 1]),
        is_host=np.zeros(3, bool),
        origin_thread=None,
        origin_time=None,
    )
    assert RangeTree.innermost_of_rows(tree, capture)[0].tolist() == [0, 1, 1]
