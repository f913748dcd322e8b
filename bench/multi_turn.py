"""Conversations of many turns against running gateways, one after another: prefix hits, time to the first token, and who answered.

    python bench/multi_turn.py --at prefix_cost=http://127.0.0.1:8000 --at round_robin=http://127.0.0.1:8001

A routing policy is a gateway's setting, so each policy is an address; so is a server without a gateway. The loop is closed: so many
conversations at once, and each says its next turn a moment after the last answer. All begin with the same system prompt, the rest of a
prompt is the conversation's own; the words differ from address to address, so that none finds what another left behind. Hits are the
servers' own: cached prompt tokens of those that earlier turns of the same conversation, or the system prompt, could have left there.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import urllib.request
from collections import Counter
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import harness

from camshaft.bench.sse_client import Reply, Target, post
from camshaft.errors import ConfigError

CHAT = "/v1/chat/completions"
LIMIT_S = 600.0  # one answer
WORDS = ("time", "way", "day", "thing", "world", "life", "hand", "part", "child", "eye", "place", "work", "week", "case", "point", "fact")


class Plan(NamedTuple):
    n_conversations: int
    n_turns: int
    n_system: int  # words
    n_user: int  # words, of a turn
    n_answer: int  # tokens
    think_s: float
    model: str


class Turn(NamedTuple):
    number: int  # 0 for the first
    ttft_s: float
    n_prompt: int
    n_cached: int
    n_known: int  # tokens of the previous turn's prompt
    replica: str


def target_of(url: str, key: str) -> Target:
    """Raises ConfigError for anything but http://HOST:PORT."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigError(f"an address is http://HOST:PORT, not {url!r}")
    return Target(parts.hostname, parts.port or 80, key)


def model_at(target: Target) -> str:
    """The first that the server names."""
    head = {"authorization": f"Bearer {target.key}"} if target.key else {}
    with urllib.request.urlopen(
        urllib.request.Request(f"http://{target.host}:{target.port}/v1/models", headers=head), timeout=10
    ) as answer:
        return str(json.load(answer)["data"][0]["id"])


async def converse(target: Target, plan: Plan, seed: str) -> list[Turn]:
    dice = random.Random(seed)
    common = random.Random(seed.partition("/")[0])
    messages: list[dict[str, str]] = [{"role": "system", "content": words(common, plan.n_system)}]
    turns: list[Turn] = []
    n_known = 0
    for number in range(plan.n_turns):
        await asyncio.sleep(plan.think_s * dice.uniform(0.5, 1.5))
        messages.append({"role": "user", "content": words(dice, plan.n_user)})
        reply = await ask(target, plan, messages)
        deltas = [(event.at, text_of(event.data)) for event in reply.events if event.data != "[DONE]"]
        messages.append({"role": "assistant", "content": "".join(text for _, text in deltas)})
        used = harness.usage(reply)
        n_prompt, n_cached = int(used["prompt_tokens"]), int((used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        first_at = next((at for at, text in deltas if text), reply.done_at)
        turns.append(Turn(number, first_at - reply.sent_at, n_prompt, n_cached, n_known, reply.headers.get("x-camshaft-replica", "")))
        n_known = n_prompt
    return turns


async def ask(target: Target, plan: Plan, messages: list[dict[str, str]]) -> Reply:
    """Raises RuntimeError for anything but a complete answer."""
    body = {
        "model": plan.model,
        "messages": messages,
        "max_tokens": plan.n_answer,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    reply = await post(target, CHAT, json.dumps(body).encode(), deadline_s=LIMIT_S)
    if reply.status != 200 or not reply.events or reply.events[-1].data != "[DONE]" or any('"error":' in e.data for e in reply.events[-2:]):
        raise RuntimeError(f"a request failed: {reply.status} {(reply.body or repr(reply.events[-2:]).encode())[:500]!r}")
    return reply


def text_of(data: str) -> str:
    choices = json.loads(data).get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


def words(dice: random.Random, n: int) -> str:
    return " ".join(dice.choices(WORDS, k=n))


async def measure(target: Target, plan: Plan, name: str, seed: int) -> list[Turn]:
    talks = await asyncio.gather(*[converse(target, plan, f"{name} {seed}/{i}") for i in range(plan.n_conversations)])
    return [turn for talk in talks for turn in talk]


def row(turns: list[Turn]) -> dict[str, Any]:
    ttft_s = [turn.ttft_s for turn in turns]
    later = [turn for turn in turns if turn.number]
    replicas = Counter(turn.replica or "-" for turn in turns)
    return {
        "turns": len(turns),
        "prompt tokens cached": round(sum(t.n_cached for t in turns) / max(1, sum(t.n_prompt for t in turns)), 3),
        "of earlier turns' prompts": round(sum(min(t.n_cached, t.n_known) for t in later) / max(1, sum(t.n_known for t in later)), 3),
        "TTFT mean, ms": round(1000 * sum(ttft_s) / len(ttft_s), 1),
        "p50": round(1000 * harness.quantile(ttft_s, 0.5), 1),
        "p90": round(1000 * harness.quantile(ttft_s, 0.9), 1),
        "by replica": " ".join(f"{name}:{n}" for name, n in sorted(replicas.items())),
    }


def main() -> int:
    parser = harness.parser(__doc__, "multi_turn")
    parser.add_argument(
        "--at", action="append", required=True, metavar="NAME=URL", help="a gateway by the name of its policy; may be repeated"
    )
    parser.add_argument("--key", default="", help="API key")
    parser.add_argument("--conversations", type=int, default=16, help="at once (default: 16)")
    parser.add_argument("--turns", type=int, default=6, help="of each (default: 6)")
    parser.add_argument("--system", type=int, default=100, help="words that all conversations begin with (default: 100)")
    parser.add_argument("--user", type=int, default=60, help="words of a turn (default: 60)")
    parser.add_argument("--answer", type=int, default=32, help="tokens of an answer at most (default: 32)")
    parser.add_argument("--think", type=float, default=0.5, help="mean seconds before a turn (default: 0.5)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    plan = Plan(args.conversations, args.turns, args.system, args.user, args.answer, args.think, args.model)
    for place in args.at:
        name, _, url = place.partition("=")
        target = target_of(url, args.key)
        its = plan if plan.model else plan._replace(model=model_at(target))
        limit_s = LIMIT_S * args.turns
        rows[name] = row(harness.run(measure(target, its, name, args.seed), limit_s))
        sys.stderr.write(f"{name}: {rows[name]}\n")
    heads = list(next(iter(rows.values())))
    text = harness.table(("policy", *heads), [(name, *cells.values()) for name, cells in rows.items()])
    return harness.finish(args.out, text, {"plan": plan._asdict(), "rows": rows})


if __name__ == "__main__":
    sys.exit(main())
