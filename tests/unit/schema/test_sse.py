"""Server-sent events as the standard says, whatever the cut."""

from __future__ import annotations

import base64
import json

import pytest

from camshaft.schema.sse import SseParser
from shared_data import shared_data_or_skip


def parsed(*chunks: bytes) -> list[tuple[str, str]]:
    parser = SseParser()
    return [(e.event, e.data) for chunk in chunks for e in parser.feed(chunk)]


def test_every_vector_of_the_conformance_file_parses_in_any_cut() -> None:
    data = shared_data_or_skip()
    vectors = json.loads((data / "conformance/sse_vectors.json").read_text())
    assert vectors
    for vector in vectors:
        chunks = [base64.b64decode(c) for c in vector["chunks_b64"]]
        want = [(e["event"], e["data"], e["id"]) for e in vector["whatwg_events"]]
        whole = b"".join(chunks)
        for cut in (chunks, [whole], [whole[i : i + 1] for i in range(len(whole))]):
            parser = SseParser()
            got = [tuple(e) for chunk in cut for e in parser.feed(chunk)]
            assert got == want, vector["name"]


def test_lines_end_in_lf_cr_or_crlf_even_when_cut_in_between() -> None:
    assert parsed(b"data: a\n\ndata: b\r\rdata: c\r\n\r\n") == [("message", "a"), ("message", "b"), ("message", "c")]
    assert parsed(b"data: a\r", b"\n\r", b"\ndata: b\r", b"\r") == [("message", "a"), ("message", "b")]


def test_data_lines_join_and_comments_and_open_events_are_dropped() -> None:
    assert parsed(b": hello\nevent: x\ndata: 1\ndata:2\n\ndata: never ended") == [("x", "1\n2")]


def test_names_ids_and_unknown_fields() -> None:
    parser = SseParser()
    stream = b"\xef\xbb\xbfid: 7\nevent: ping\nretry: 5\nnonsense\ndata\ndata: x\n\nevent: alone\n\nid: \x00\ndata:  y\n\n"
    assert [tuple(e) for e in parser.feed(stream)] == [("ping", "\nx", "7"), ("message", " y", "7")]


def test_raw_events_are_the_same_in_any_cut() -> None:
    stream = 'data: {"a":"\u00e9"}\r\n\r\n: beat\n\nevent: error\ndata: {}\n\n'.encode()
    want = [("", '{"a":"\u00e9"}'.encode(), None), ("error", b"{}", None)]
    for step in (1, 2, 3, 7, len(stream)):
        parser = SseParser()
        assert [e for i in range(0, len(stream), step) for e in parser.feed_raw(stream[i : i + step])] == want


def test_an_event_beyond_the_bound_is_an_error() -> None:
    for stream in (b"data: " + b"x" * 200, b"data: x\n" * 50):
        with pytest.raises(ValueError, match="never ends"):
            SseParser(max_event_bytes=90).feed_raw(stream)
