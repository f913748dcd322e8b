"""Fixed strings in a text, against a regular expression as the slow twin."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from camshaft.tokenizer.spellings import Spellings

WORD = st.text(alphabet="ab<]^-", min_size=1, max_size=4)


@given(st.sets(WORD, max_size=6), st.text(alphabet="ab<]^-c", max_size=30))
def test_the_longest_spelling_wins_at_each_place(words: set[str], text: str) -> None:
    longest_first = sorted(words, key=lambda w: (-len(w), w))
    expected = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text) if words else [text]
    assert Spellings(words).split(text) == expected
