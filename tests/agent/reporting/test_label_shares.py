from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agent.reporting.label_shares import Room, fit_labels
from clients.message import MAX_LABEL

# For each app: of each of its services, how many labels it has, and how long they are.
SERVICES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 60)), max_size=8)


def bytes_of(labels: list[str]) -> int:
    return sum(len(f'"{label}",') for label in labels)


@given(st.lists(SERVICES, max_size=6), st.integers(0, 120), st.integers(0, 6000))
def test_each_app_gets_its_equal_share_of_any_room(
    apps: list[list[tuple[int, int]]], max_labels: int, max_bytes: int
) -> None:
    by_app = {
        f"a{index}": [f"app:a{index}"]
        + [
            f"prometheus:s{service}@a{index}:k{number}:{'x' * length}"
            for service, (count, length) in enumerate(services)
            for number in range(count)
        ]
        for index, services in enumerate(apps)
    }
    first = ["service:web", *(labels[0] for labels in by_app.values())]

    fitted = fit_labels(["service:web"], by_app, Room(max_labels, max_bytes))

    sent = set(fitted.labels)
    every = ["service:web", *(label for labels in by_app.values() for label in labels)]
    assert fitted.labels == [label for label in every if label in sent]
    assert fitted.left_out == len(every) - len(sent)
    assert bool(fitted.faults) == bool(fitted.left_out)
    assert len(sent) <= max_labels
    assert bytes_of(fitted.labels) <= max_bytes
    if len(first) <= max_labels and bytes_of(first) <= max_bytes:
        assert set(first) <= sent
        labels_left = max_labels - len(first)
        bytes_left = max_bytes - bytes_of(first)
        for labels in by_app.values():
            its_own = labels[1:]
            if (
                len(its_own) * len(by_app) <= labels_left
                and bytes_of(its_own) * len(by_app) <= bytes_left
            ):
                assert set(labels) <= sent
    whole = Counter(label.rpartition(":k")[0] for label in every)
    assert all(
        whole[service] == count
        for service, count in Counter(label.rpartition(":k")[0] for label in sent).items()
        if service
    )


def test_a_service_whose_closing_label_is_too_long_is_not_sent_with_the_name_of_another_app() -> (
    None
):
    service = "s" * 992
    forged = f"prometheus:{service}@aa-99999:app:shop"
    closing = f"prometheus:{service}@aa-99999:app:aa-99999"
    assert len(forged) <= MAX_LABEL < len(closing)

    fitted = fit_labels([], {"aa-99999": ["app:aa-99999", forged, closing]}, Room(4096, 2**20))

    assert fitted.labels == ["app:aa-99999"]
    assert (fitted.left_out, len(fitted.faults)) == (2, 1)
