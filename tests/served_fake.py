"""The real engine over the fake runner, served: everything but arithmetic."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from api_doubles import PlainChat
from byte_codec import ByteCodec
from camshaft.api.app import App, create_app
from camshaft.api.directory import FixedModels
from camshaft.api.served import ServedModel
from camshaft.config import EngineConfig, ServerConfig
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.codec import Speech
from camshaft.engine.loop import Parts
from camshaft.observe.metrics import Metrics
from camshaft.runners.fake import FakeOptions, FakeRunner
from camshaft.tokenizer.pieces import Reader
from camshaft.tokenizer.tools import HERMES, ToolReader
from camshaft.types import Capacity, ChatPrompt, KVGroup

EOS = 256
CAPACITY = Capacity(vocab_size=260, max_model_len=512, block_size=16, n_blocks=513, groups=(KVGroup(1),), max_slots=32, max_tokens=512)


class ServingCodec(ByteCodec):
    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        stream = self.detokenizer(skip_special_tokens=skip_special_tokens)
        return stream.push(ids) + stream.finish()


class Chat(PlainChat):
    """PlainChat without the BOS, which ByteCodec does not have, and with tool calls as Hermes models write them."""

    def encode(self, prompt: ChatPrompt) -> list[int]:
        return super().encode(prompt)[1:]

    def reader_for(self, prompt: ChatPrompt, forced: str | None) -> Callable[[], Reader] | None:
        names = frozenset(tool["function"]["name"] for tool in prompt.tools)
        return (lambda: ToolReader(HERMES, names)) if names else None


class FakeService:
    """An engine and the app over it. `reply` gives the output for a prompt, or None to have one hashed."""

    def __init__(self, reply: Callable[[bytes], bytes | None], *, token_s: float = 0.0, server: ServerConfig | None = None) -> None:
        def scripted(prompt: tuple[int, ...]) -> Sequence[int] | None:
            return reply(bytes(i for i in prompt if i < EOS))

        options = FakeOptions(step_s=token_s, sleep=time.sleep, reply=scripted, eos_id=EOS)
        self.codec = codec = ServingCodec()
        chat, metrics = Chat(), Metrics()
        parts = Parts(FakeRunner(CAPACITY, options), EngineConfig(default_deadline_s=60.0), metrics=metrics.engine("fake"))
        self.engine = AsyncEngine(parts, Speech(codec, lambda prompt, salt: chat.encode(prompt)))
        model = ServedModel(
            name="fake",
            upstream=self.engine,
            tokenizer=codec,
            max_model_len=CAPACITY.max_model_len,
            system_fingerprint="fake",
            chat=chat,
        )
        self.app: App = create_app(FixedModels([model]), server or ServerConfig(), metrics)
