"""A gateway over one model in two versions on three replicas: sessions stick to theirs while shares change. `pip install openai`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openai import OpenAI

FILE = Path(__file__).with_suffix(".toml")
CAMSHAFT = [sys.executable, "-m", "camshaft.cli.main"]


@contextmanager
def gateway() -> Iterator[tuple[str, str]]:
    """`camshaft up` on free ports, until the block ends. Yields its base URL and the folder of its state."""
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
                        yield next(word for word in line.split() if word.endswith("/v1")), state
                        return
                raise SystemExit(f"the gateway did not start:\n{shown}")
            finally:
                running.terminate()
                running.communicate()


def versions(client: OpenAI) -> list[str]:
    """Which version answers each of 20 sessions."""
    found = []
    for i in range(20):
        question = [{"role": "user", "content": "Say hi."}]
        answer = client.chat.completions.with_raw_response.create(
            model="small", messages=question, max_tokens=4, extra_headers={"x-session-id": f"session-{i}"}
        )
        found.append(answer.headers["x-camshaft-version"])
    return found


with gateway() as (url, state):
    client = OpenAI(base_url=url, api_key="none", timeout=120)
    before = versions(client)
    subprocess.run([*CAMSHAFT, "ctl", "--state-dir", state, "weights", "small", "v1=50", "v2=50"], check=True)
    after = versions(client)
    print(f"before {dict(Counter(before))}, after {dict(Counter(after))}")
    print("who had v2 kept it:", all(b == "v2" for a, b in zip(before, after, strict=True) if a == "v2"))
