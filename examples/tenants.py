"""A gateway over two models with tenants: keys, what each may ask for, classes, limits and what refusals say. `pip install openai`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openai import APIStatusError, OpenAI

FILE = Path(__file__).with_suffix(".toml")
CAMSHAFT = [sys.executable, "-m", "camshaft.cli.main"]


@contextmanager
def gateway() -> Iterator[str]:
    """`camshaft up` on free ports, until the block ends. Yields its base URL."""
    with tempfile.TemporaryDirectory() as state:
        text = FILE.read_text().replace("[gateway]", f'[gateway]\nstate_dir = "{state}"').replace("admin_port = 8001", "admin_port = 0")
        path = Path(state) / FILE.name
        path.write_text(text)
        with subprocess.Popen([*CAMSHAFT, "up", str(path), "--port", "0"], stderr=subprocess.PIPE, text=True) as running:
            try:
                assert running.stderr is not None
                shown = ""
                for line in running.stderr:
                    shown += line
                    if line.startswith("ready after"):
                        yield next(word for word in line.split() if word.endswith("/v1"))
                        return
                raise SystemExit(f"the gateway did not start:\n{shown}")
            finally:
                running.terminate()
                running.communicate()


def ask(url: str, key: str, model: str, max_tokens: int = 8) -> str:
    client = OpenAI(base_url=url, api_key=key, timeout=120, max_retries=0)
    try:
        answer = client.chat.completions.with_raw_response.create(
            model=model, messages=[{"role": "user", "content": "Name a colour."}], max_tokens=max_tokens
        )
    except APIStatusError as error:
        return f"{error.status_code} {error.code}"
    left = answer.headers.get("x-ratelimit-remaining-tokens", "any number of")
    return f"answered by {answer.headers['x-camshaft-replica']}, {left} tokens left this minute"


with gateway() as url:
    print("the models of nightly:", [model.id for model in OpenAI(base_url=url, api_key="sk-nightly", timeout=60).models.list()])
    print("chat, small:", ask(url, "sk-chat", "small"))
    print("nightly, small:", ask(url, "sk-nightly", "small"))
    print("nightly, base:", ask(url, "sk-nightly", "base"))
    print("somebody else:", ask(url, "sk-nobody", "small"))
