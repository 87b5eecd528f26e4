"""What a heartbeat may hold."""

import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.message import Heartbeat

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\x7f\x80\x9f\xa0"))


@pytest.mark.slow
@given(st.lists(TEXT.filter(bool), min_size=1, max_size=3))
def test_labels_hold_any_characters_but_control_characters(labels: list[str]) -> None:
    body = msgspec.json.encode({"labels": labels, "kv": {}})
    controls = [label for label in labels if any(unicodedata.category(c) == "Cc" for c in label)]

    if controls:
        with pytest.raises(msgspec.ValidationError) as raised:
            msgspec.json.decode(body, type=Heartbeat)
        assert f"label {controls[0]!a} does" in str(raised.value)
    else:
        assert msgspec.json.decode(body, type=Heartbeat).labels == list(dict.fromkeys(labels))
