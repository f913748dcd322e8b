"""A conversation that streams, over AsyncEngine: the same object that the server serves."""

from __future__ import annotations

import asyncio

from camshaft import AsyncEngine, SamplingParams
from camshaft.errors import from_info
from camshaft.types import ChatPrompt, Delta, Failed, Finished, Request, Started

QUESTIONS = ["What is the capital of France?", "And what is it famous for? Answer in one sentence."]


async def ask(engine: AsyncEngine, messages: list[dict[str, str]], number: int) -> str:
    """The answer, printed as it comes."""
    request = Request(
        id=f"turn-{number}",
        prompt=ChatPrompt(tuple(messages)),
        sampling=SamplingParams(temperature=0.0, max_tokens=96),
        session="example",  # tells the KV cache that these turns belong together
    )
    text = ""
    async for event in engine.stream(request):
        if isinstance(event, Started):
            print(f"[{event.n_prompt} prompt tokens, {event.n_cached} of them cached] ", end="")
        elif isinstance(event, Delta):
            text += event.text
            print(event.text, end="", flush=True)
        elif isinstance(event, Finished):
            print(f"  ({event.reason})")
        elif isinstance(event, Failed):
            raise from_info(event.error)
    return text


async def main() -> None:
    engine = AsyncEngine.from_model()
    try:
        messages: list[dict[str, str]] = []
        for number, question in enumerate(QUESTIONS):
            print(f"> {question}")
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": await ask(engine, messages, number)})
    finally:
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
