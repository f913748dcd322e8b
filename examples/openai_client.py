"""The server, and OpenAI's own client against it: chat, a stream with usage, and log-probabilities. Needs `pip install openai`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from openai import OpenAI

MODEL = "smollm2-135m"


@contextmanager
def served() -> Iterator[str]:
    """`camshaft serve` on a free loopback port, until the block ends. Yields its base URL."""
    command = [sys.executable, "-m", "camshaft.cli.main", "serve", MODEL, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            shown = ""
            for line in server.stderr:
                shown += line
                if "/v1" in line and "ready" in line:
                    yield next(word for word in line.split() if word.endswith("/v1"))
                    return
            raise SystemExit(f"the server did not start:\n{shown}")
        finally:
            server.terminate()


def main() -> None:
    with served() as url:
        client = OpenAI(base_url=url, api_key="none", timeout=60)
        question = [{"role": "user", "content": "What is the capital of France?"}]

        answer = client.chat.completions.create(model=MODEL, messages=question, temperature=0, logprobs=True, top_logprobs=2)
        print(answer.choices[0].message.content)
        first = answer.choices[0].logprobs.content[0]
        print(f"first token {first.token!r}, log-probability {first.logprob:.3f}; numerics {answer.system_fingerprint}")

        stream = client.chat.completions.create(
            model=MODEL, messages=question, temperature=0, stream=True, stream_options={"include_usage": True}
        )
        for chunk in stream:
            if chunk.choices:
                print(chunk.choices[0].delta.content or "", end="", flush=True)
            elif chunk.usage:
                print(f"  ({chunk.usage.completion_tokens} tokens, {chunk.usage.prompt_tokens_details.cached_tokens} prompt tokens cached)")


if __name__ == "__main__":
    main()
