"""Text to ids and back, chat templates, and what models write between the lines: tool calls and reasoning."""

from camshaft.tokenizer.chat import ChatTemplate
from camshaft.tokenizer.dialogue import Dialogue
from camshaft.tokenizer.stops import StopMatcher
from camshaft.tokenizer.stream import Detokenizer
from camshaft.tokenizer.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "Detokenizer", "Dialogue", "StopMatcher", "Tokenizer"]
