"""Strict reading: a request or a BadRequest, never anything else."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.errors import BadRequest
from camshaft.schema.chat import ChatRequest
from camshaft.schema.completions import CompletionRequest
from camshaft.schema.decode import MAX_ARRAYS_AND_OBJECTS, MAX_STRINGS, MAX_VALUES, Unknown, decode
from camshaft.schema.failure import error_body
from camshaft.schema.fields import is_absent, plain
from camshaft.schema.messages import AssistantMessage, UserMessage, template_message, text_of
from camshaft.schema.tokens import DetokenizeRequest, TokenizeRequest
from camshaft.types import ErrorInfo

HI = b'{"messages": [{"role": "user", "content": "hi"}]'
KINDS = [ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest]
FIELDS = sorted({f for kind in KINDS for f in kind.__struct_fields__} | {"role", "content", "type", "name", "function", "json", "schema"})

leaves = st.sampled_from([None, True, 0, -1, 1 << 70, 0.5, "", "a", "auto", "user", "text", "function"])
values = st.recursive(leaves, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), v, max_size=3), max_leaves=8)
requests = st.dictionaries(st.sampled_from([*FIELDS, "bogus"]), values, max_size=5)


@settings(max_examples=80)
@given(request=requests, kind=st.sampled_from(KINDS), unknown=st.sampled_from(["reject", "ignore"]))
def test_any_json_object_is_a_request_or_a_bad_request(request: dict[str, Any], kind: type[Any], unknown: Unknown) -> None:
    with suppress(BadRequest):
        decode(msgspec.json.encode(request), kind, unknown)


@settings(max_examples=50)
@given(st.binary(max_size=64))
def test_bytes_that_are_no_request_are_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        decode(body, ChatRequest)


def test_null_means_absent_for_every_field_that_may_be_left_out() -> None:
    for kind, needed in ((ChatRequest, HI[1:]), (CompletionRequest, b'"prompt": "x"')):
        names = [f.name for f in msgspec.structs.fields(kind) if not f.required]
        nulls = b"".join(b', "%s": null' % name.encode() for name in names)
        assert decode(b"{" + needed + nulls + b"}", kind) == decode(b"{" + needed + b"}", kind)


def test_a_raw_field_keeps_its_bytes_and_knows_when_it_was_left_out() -> None:
    request = decode(HI + b', "metadata": {"a":  1}, "chat_template_kwargs": null}', ChatRequest)
    assert bytes(request.metadata) == b'{"a":  1}'
    assert plain(request.metadata) == {"a": 1}
    assert is_absent(request.chat_template_kwargs)
    assert is_absent(decode(HI + b"}", ChatRequest).metadata)


def test_ignoring_drops_unknown_fields_wherever_the_types_know_fields_and_keeps_free_data_whole() -> None:
    body = HI + b', "bogus": 1, "stream_options": {"include_usage": true, "x": 1}, "metadata": {"anything": [1]}}'
    request = decode(body, ChatRequest, "ignore")
    assert request.stream_options is not None
    assert request.stream_options.include_usage
    assert plain(request.metadata) == {"anything": [1]}


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b'{"messages": [{"role": "user", "content": "x", "nam": "y"}]}', "messages[0].nam", "did you mean 'name'"),
        (HI + b', "temperature": "hot"}', "temperature", "expected a number, got a string"),
        (HI + b', "stop": [1]}', "stop[0]", "expected a string, got an integer"),
        (HI + b', "n": 0}', "n", "expected an integer >= 1"),
        (b"{}", "messages", "messages is missing"),
        (b"[]", None, "must be a JSON object"),
        (b"{", None, "not valid JSON"),
    ],
)
def test_messages_name_the_place_and_speak_json(body: bytes, param: str | None, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode(body, ChatRequest)
    assert caught.value.param == param
    assert words in caught.value.message
    assert "`" not in caught.value.message


def test_a_long_unknown_name_does_not_come_back_whole() -> None:
    with pytest.raises(BadRequest) as caught:
        decode(HI + b', "%s": 1}' % (b"x" * 100_000), ChatRequest)
    assert len(caught.value.message) < 500


def test_template_messages_show_only_what_is_set() -> None:
    assert template_message(UserMessage("hi")) == {"role": "user", "content": "hi"}
    assert template_message(AssistantMessage(None, reasoning_content="hm"))["reasoning_content"] == "hm"
    assert text_of(None) is None


def test_an_error_body_has_openais_four_fields() -> None:
    info = ErrorInfo("overloaded", "full", 429, retry_after_s=2.0)
    assert msgspec.json.decode(error_body(info)) == {
        "error": {"message": "full", "type": "rate_limit_error", "param": None, "code": "overloaded"}
    }


@pytest.mark.parametrize(
    ("field", "what"),
    [
        (b'"prompt": [' + b"[1]," * MAX_ARRAYS_AND_OBJECTS + b"[1]]", "arrays and objects"),
        (b'"prompt": [' + b'"a",' * MAX_STRINGS + b'"a"]', "strings"),
        (b'"prompt": [' + b"1," * MAX_VALUES + b"1, 1]", "values"),
        (b'"logit_bias": {' + b",".join(b'"%d":1' % i for i in range(MAX_STRINGS)) + b"}", "strings"),
        (b'"nonsense": [' + b"{}," * MAX_ARRAYS_AND_OBJECTS + b"{}]", "arrays and objects"),
    ],
    ids=["lists", "texts", "ids", "biases", "unknown"],
)
@pytest.mark.parametrize("unknown", ["reject", "ignore"])
def test_what_would_hold_every_other_client_up_while_it_is_parsed_is_refused(field: bytes, what: str, unknown: Unknown) -> None:
    with pytest.raises(BadRequest, match=rf"the body holds [\d,]+ {what}; at most [\d,]+"):
        decode(b"{" + field + b"}", CompletionRequest, unknown)


@pytest.mark.parametrize("text", ['[],{}""', "\\", '\\"', "a,"])
def test_what_stands_inside_of_a_string_is_not_counted(text: str) -> None:
    prompt = text * MAX_VALUES
    assert decode(msgspec.json.encode({"prompt": prompt}), CompletionRequest).prompt == prompt


def test_a_name_of_megabytes_is_told_in_a_line() -> None:
    with pytest.raises(BadRequest, match=r"^k{100,}") as caught:
        decode(b'{"' + b"k" * 2_000_000 + b'": 1}', ChatRequest)
    assert len(caught.value.message) < 1000


def test_an_empty_body_is_called_empty() -> None:
    with pytest.raises(BadRequest, match="the body is empty"):
        decode(b"", ChatRequest)
