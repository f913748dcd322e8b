"""Structured output: a JSON schema that the answer matches by construction, because no other token can be drawn."""

from __future__ import annotations

import json

from camshaft import LLM, SamplingParams
from camshaft.types import Grammar

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 24},
        "country": {"enum": ["France", "Germany", "Italy", "Spain"]},
        "population_millions": {"type": "number", "minimum": 0, "maximum": 40},
        "has_river": {"type": "boolean"},
    },
    "required": ["city", "country", "population_millions", "has_river"],
    "additionalProperties": False,
}
NOTES = [
    "Paris lies on the Seine, in France. About 2.1 million people live there.",
    "Berlin, through which the Spree flows, is the capital of Germany and has 3.7 million inhabitants.",
]


def main() -> None:
    by_schema = SamplingParams(temperature=0.0, max_tokens=128, grammar=Grammar("json_schema", json.dumps(SCHEMA)))
    chats = [[{"role": "user", "content": f"Describe this city as JSON: {note}"}] for note in NOTES]
    with LLM() as llm:
        for note, answer in zip(NOTES, llm.chat(chats, by_schema), strict=True):
            city = json.loads(answer.text)
            assert set(city) == set(SCHEMA["required"])
            print(f"{note}\n  -> {city}")

        # Any regular expression will do as well. A choice is its simplest use.
        choice = SamplingParams(temperature=0.0, max_tokens=8, grammar=Grammar("regex", " (London|Paris|Rome)"))
        print("the capital of France:", llm.generate("The capital of France is", choice)[0].text)


if __name__ == "__main__":
    main()
