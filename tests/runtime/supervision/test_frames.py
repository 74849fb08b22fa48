"""Frames: what was sent arrives, however it is cut; anything else ends the connection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphc.runtime.supervision.frames import BadFrame, FrameDecoder, packed, seconds, text, whole

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False, allow_infinity=False),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3),
    max_leaves=6,
)  # fmt: skip
FRAMES = st.dictionaries(st.text(max_size=6), VALUES, max_size=4)


@given(st.lists(FRAMES, max_size=4), st.data())
def test_frames_arrive_however_the_stream_is_cut(frames: list[dict[str, Any]], data: Any) -> None:
    stream, found, decoder = b"".join(map(packed, frames)), [], FrameDecoder()
    while stream:
        n = data.draw(st.integers(1, len(stream)))
        found += decoder.feed(stream[:n])
        stream = stream[n:]
    assert found == frames and decoder.rest == b""


@given(st.binary(max_size=200))
def test_garbage_is_a_bad_frame_or_nothing(garbage: bytes) -> None:
    decoder = FrameDecoder(100)
    try:
        for frame in decoder.feed(garbage):
            assert isinstance(frame, dict)
    except BadFrame:
        return
    assert len(decoder.rest) <= 104


def body(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    "data",
    [b"\0\0\0\0", b"\xff\xff\xff\xff", body(b"[" * 60_000), body(b"[]"), body(b"7"), body(b"{"),
     body(b'{"a": NaN}'), body(b'{"a": 1e400}'[:-5] + b"Infinity}"), body(b"\xff\xfe"),
     body(b'{"a": ' + b"9" * 5000 + b"}")],
)  # fmt: skip
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        list(FrameDecoder().feed(data))


def test_fields_are_of_their_kind() -> None:
    frame = json.loads('{"n": 3, "t": "a\\u001b[2J\\ud800", "s": 0.5, "no": true, "minus": -1}')
    assert whole(frame, "n") == 3 and text(frame, "t") == "a·[2J·" and seconds(frame, "s") == 0.5
    for read, name in (
        (whole, "s"), (whole, "no"), (whole, "minus"), (whole, "gone"), (text, "n"),
        (seconds, "t"), (seconds, "no"), (seconds, "minus"),
    ):  # fmt: skip
        with pytest.raises(BadFrame):
            read(frame, name)
    with pytest.raises(BadFrame):
        whole(frame, "n", 2)
