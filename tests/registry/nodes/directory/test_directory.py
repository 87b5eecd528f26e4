"""The directory: which nodes are fresh and which are stale, by when they were heard of."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from registry.nodes.directory.directory import Directory, Entry
from registry.store.protocol import Row

HOSTS = [f"h{number}" for number in range(5)]
STEPS = st.tuples(st.sampled_from(["put", "heard", "stale", "remove"]), st.sampled_from(HOSTS))


@given(st.lists(STEPS, max_size=60))
def test_nodes_stay_in_the_order_in_which_they_were_heard_of(steps: list[tuple[str, str]]) -> None:
    directory, times = Directory(), count()
    fresh: list[str] = []
    stale: list[str] = []
    for step, hostname in steps:
        entry = directory.get(hostname)
        if step == "stale":  # the one that was not heard of for longest
            if fresh:
                directory.mark_stale(next(iter(directory.fresh())))
                stale.append(fresh.pop(0))
            continue
        was_stale = hostname in stale
        if step == "put":
            row = Row(hostname, b'{"labels":[],"kv":{}}', 1, "-")
            directory.put(Entry(row, heard=0.0), heard=next(times))
        elif step == "remove":
            assert directory.remove(hostname) is entry
        elif entry is not None:
            assert directory.heard(entry, last_update=1, heard=next(times)) == was_stale
        known = step == "put" or (step == "heard" and entry is not None)
        fresh = [name for name in fresh if name != hostname] + [hostname] * known
        stale = [name for name in stale if name != hostname]

        assert [entry.hostname for entry in directory.fresh()] == fresh
        assert [entry.hostname for entry in directory.stale()] == stale
        assert (len(directory.fresh()), len(directory.stale())) == (len(fresh), len(stale))
