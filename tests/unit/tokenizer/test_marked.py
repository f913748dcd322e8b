"""Marked strings: the same characters as plain ones, with each character's origin kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from camshaft.tokenizer.marked import Marked, control, joined, mask_of, percent, plain

TEXT = st.text(alphabet="aB ß\n<|>éİ", max_size=12)


def mixed(user: str, own: str) -> Marked:
    return control(own) + Marked(user) + control(own)


@given(TEXT, TEXT, TEXT)
def test_every_operation_gives_the_characters_that_a_plain_string_gives(user: str, own: str, arg: str) -> None:
    marked, text = mixed(user, own), own + user + own
    pairs = [
        (marked.strip(), text.strip()),
        (marked.lstrip(arg), text.lstrip(arg)),
        (marked.rstrip(arg), text.rstrip(arg)),
        (marked.removeprefix(arg), text.removeprefix(arg)),
        (marked.removesuffix(arg), text.removesuffix(arg)),
        (marked.replace("a", arg), text.replace("a", arg)),
        (marked.replace("", arg), text.replace("", arg)),
        (marked.upper(), text.upper()),
        (marked.lower(), text.lower()),
        (marked.title(), text.title()),
        (marked.capitalize(), text.capitalize()),
        (marked.swapcase(), text.swapcase()),
        (marked.casefold(), text.casefold()),
        (marked.zfill(9), text.zfill(9)),
        (marked.center(9), text.center(9)),
        (marked[1:4], text[1:4]),
        (marked[::-1], text[::-1]),
        (marked * 2, text * 2),
        (arg + marked, arg + text),
        (marked + arg, text + arg),
        (control(arg).join([marked, user]), arg.join([text, user])),
    ]
    for got, expected in pairs:
        assert plain(got) == expected
        assert len(mask_of(got)) == len(got)
    for got_list, expected_list in [
        (marked.split(), text.split()),
        (marked.split(None, 1), text.split(None, 1)),
        (marked.rsplit(None, 1), text.rsplit(None, 1)),
        (marked.split("a", 1), text.split("a", 1)),
        (marked.rsplit("a", 1), text.rsplit("a", 1)),
        (marked.splitlines(), text.splitlines()),
        (marked.splitlines(keepends=True), text.splitlines(keepends=True)),
        (list(marked.partition("a")), list(text.partition("a"))),
        (list(marked.rpartition("a")), list(text.rpartition("a"))),
        (list(marked), list(text)),
    ]:
        assert [plain(x) for x in got_list] == expected_list
        assert all(isinstance(x, Marked) and len(x.mask) == len(x) for x in got_list)


@given(TEXT)
def test_a_users_characters_stay_the_users_through_cuts_and_joins(user: str) -> None:
    marked = Marked(user)
    for piece in [
        *marked.split(),
        *marked.split("a"),
        marked.strip(),
        marked[2:],
        *marked,
        marked.upper(),
        *marked.splitlines(),
        *marked.partition("a"),
    ]:
        assert mask_of(piece) == b"\1" * len(piece)


def test_the_origin_of_each_character_is_exact_where_strings_are_put_together() -> None:
    assert mask_of(control("<") + Marked("ab") + ">") == b"\0\1\1\0"
    assert mask_of("<" + Marked("ab")) == b"\0\1\1"
    assert mask_of(percent("<%s|%s>", (Marked("ab"), 7))) == b"\0\1\1\0\0\0"
    assert mask_of(control("{0}-{0}").format(Marked("a"))) == b"\1\0\1"
    assert mask_of(control("x-x").replace("-", Marked("u"))) == b"\0\1\0"
    assert mask_of(joined("-", [Marked("u"), "t"])) == b"\1\0\0"


def test_str_keeps_marks_because_templates_call_it_on_all_they_print() -> None:
    assert isinstance(str(Marked("x")), Marked)
    assert type(plain(Marked("x"))) is str


def test_what_cannot_be_traced_counts_as_the_users() -> None:
    assert set(mask_of(Marked("ß").upper())) == {1}
    assert set(mask_of(percent("%5s|", (Marked("a"),)))) == {1}


def test_no_method_of_str_gives_an_unmarked_string() -> None:
    calls = {
        "join": (["a"],),
        "replace": ("a", "b"),
        "format": (),
        "format_map": ({},),
        "translate": ({},),
        "partition": ("a",),
        "rpartition": ("a",),
        "removeprefix": ("a",),
        "removesuffix": ("a",),
        "center": (3,),
        "ljust": (3,),
        "rjust": (3,),
        "zfill": (3,),
        "__add__": ("a",),
        "__mul__": (2,),
        "__rmul__": (2,),
        "__getitem__": (0,),
        "__mod__": ((),),
        "__rmod__": ("%s",),
    }
    skipped = {
        "maketrans",
        "encode",
        "__str__",
        "__repr__",
        "__format__",
        "__new__",
        "__doc__",
        "__class__",
        "__getnewargs__",
        "__reduce__",
        "__reduce_ex__",
    }
    for name in sorted(set(dir(str)) - skipped):
        method = getattr(Marked("abca"), name)
        if not callable(method) or (name.startswith("__") and name not in calls):
            continue
        try:
            result = method(*calls.get(name, ()))
        except TypeError:
            result = method("a")
        for one in result if isinstance(result, (list, tuple)) else [result]:
            assert not isinstance(one, str) or isinstance(one, Marked), name
