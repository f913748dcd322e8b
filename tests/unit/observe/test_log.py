"""Log lines: one call, one line, whatever is in it."""

from __future__ import annotations

import io
import json
import logging

from camshaft.observe.log import JsonFormatter, Pairs, configure, line


def test_pairs_are_readable_and_none_is_left_out() -> None:
    assert line({"a": 1, "b": None, "c": "two words", "d": 0.25, "e": ""}) == 'a=1 c="two words" d=0.25 e=""'


def test_no_value_can_start_a_line_or_forge_a_pair() -> None:
    for bad in ("a\nb", "a\r\nb", "a\u2028b", 'a" x=1', "a\x1b[31m", "a\u0085b"):
        text = line({"k": bad})
        assert text.isascii()
        assert text.isprintable()
        assert text.startswith('k="')
        assert text.endswith('"')
    assert len(line({"k": "x" * 10_000})) < 300


def test_configure_sends_our_log_alone_and_once() -> None:
    root = logging.getLogger("camshaft")
    before = (root.handlers[:], root.level, root.propagate)
    out = io.StringIO()
    try:
        configure("warning", out)
        configure("warning", out)
        logging.getLogger("camshaft.x").warning("seen")
        logging.getLogger("camshaft.x").info("not seen")
        logging.getLogger("other").warning("not ours")
    finally:
        root.handlers[:], root.propagate = before[0], before[2]
        root.setLevel(before[1])
    assert out.getvalue().count("\n") == 1
    assert "WARNING camshaft.x seen" in out.getvalue()


def test_json_lines_hold_the_pairs_as_they_are() -> None:
    formatter = JsonFormatter()
    record = logging.LogRecord("camshaft.access", logging.INFO, "", 0, "%s", (Pairs({"n": 3, "path": "/a\nb", "error": None}),), None)
    said = json.loads(formatter.format(record))
    assert said | {"at": 0} == {"at": 0, "level": "info", "logger": "camshaft.access", "n": 3, "path": "/a\nb"}
    assert "\n" not in formatter.format(record)
    assert str(Pairs({"n": 3})) == "n=3"
    record = logging.LogRecord("camshaft", logging.WARNING, "", 0, "%d kept", (2,), None)
    assert json.loads(formatter.format(record))["message"] == "2 kept"
