"""ForeignConfig: how to speak to a server of another make. Access: who we are there. Dialect: what it takes beyond what all of them do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from camshaft.config import opt
from camshaft.errors import ConfigError


@dataclass(frozen=True)
class Dialect:
    """Names under which a server takes what OpenAI's API does not have; a field that is not here is refused. `regex` and `lark` as well."""

    fields: Mapping[str, str]
    grammars: frozenset[str] = frozenset(("json_object", "json_schema"))
    most: str = "max_tokens"  # how chat calls say it
    kept: frozenset[str] = frozenset()  # fields of messages beyond OpenAI's
    schema_within: bool = False  # a JSON schema goes into {"type": "json_object", "schema": ...}, which both servers of llama.cpp take
    id_header: str = "x-client-request-id"  # llama-cpp-python refuses an x-request-id that is no UUID
    defaults: bool = False  # the server may have defaults of its own for temperature and top_p, so that ours are always said


_VLLM = (
    "top_k",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "cache_salt",
)
DIALECTS: dict[str, Dialect] = {
    "compatible": Dialect({}),
    "openai": Dialect({}, most="max_completion_tokens"),
    "vllm": Dialect(
        {name: name for name in _VLLM},
        grammars=frozenset(("json_object", "json_schema", "regex", "lark")),
        id_header="x-request-id",
        kept=frozenset(("reasoning_content",)),
        defaults=True,
    ),
    "llama.cpp": Dialect(
        {
            "top_k": "top_k",
            "min_p": "min_p",
            "repetition_penalty": "repeat_penalty",
            "ignore_eos": "ignore_eos",
            "chat_template_kwargs": "chat_template_kwargs",
        },
        kept=frozenset(("reasoning_content",)),
        schema_within=True,
        defaults=True,
    ),
}


@dataclass(frozen=True)
class ForeignConfig:
    """A server of another make."""

    dialect: str = opt(
        "compatible",
        "what the server takes: compatible (OpenAI's fields only), openai (the same, newer names), vllm (and SGLang, Camshaft), llama.cpp",
        choices=DIALECTS,
    )
    ca_file: str = opt("", "certificates to trust instead of the system's")
    connect_s: float = opt(5.0, "longest wait for a connection", lo=0.01, hi=600)
    first_token_s: float = opt(120.0, "longest wait for the first byte of an answer", lo=0.01, hi=86_400)
    idle_s: float = opt(30.0, "longest silence within an answer", lo=0.01, hi=86_400)
    max_num_seqs: int = opt(32, "requests that it is given at once", lo=1, hi=100_000)
    max_model_len: int = opt(0, "tokens that it takes, prompt and answer together; 0 where that is not known", lo=0, hi=100_000_000)
    health_path: str = opt("/health", "path that answers 200 while it works; /v1/models where it has none")
    health_every_s: float = opt(5.0, "seconds from one look at its health to the next", lo=0.05, hi=3600)
    health_wait_s: float = opt(10.0, "longest wait for the answer to such a look", lo=0.01, hi=600)
    health_misses: int = opt(3, "looks in a row that may fail before it counts as lost", lo=1, hi=100)


class Access(NamedTuple):
    """The model's name over there ("" takes the first that the server lists), and the environment variable that holds our key."""

    model: str = ""
    key_env: str = ""

    @property
    def blame(self) -> str:
        """Where our key comes from, for who has to mend it; never a client."""
        if not self.key_env:
            return "no key is sent: key_env names no environment variable"
        return f"the key is that of the environment variable {self.key_env[:100]}, as it was when the gateway started"

    def key(self, env: Mapping[str, str] = os.environ) -> str:
        """Raises ConfigError where the variable is not set, or holds what no header can."""
        if not self.key_env:
            return ""
        key = env.get(self.key_env, "").strip()
        if not key or not (key.isascii() and key.isprintable()):
            raise ConfigError(f"the environment variable {self.key_env[:100]} holds no key")
        return key
