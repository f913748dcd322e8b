"""What every call that asked a model for work does alike."""

from __future__ import annotations

from collections.abc import Sequence

from camshaft.api.call import Call
from camshaft.api.served import ServedModel
from camshaft.schema.fields import Usage
from camshaft.types import Request

# The engine ends a request at its deadline. The edge waits a little longer, so that the engine's own word arrives first, and a
# client that takes no bytes is let go all the same.
GRACE_S = 30.0


def patience_s(model: ServedModel, request: Request) -> float:
    """Seconds after which a call is given up, whoever holds it."""
    asked = request.deadline_s
    return (model.longest_s if asked is None else min(asked, model.longest_s)) + GRACE_S


def noted(call: Call, usage: Usage, reasons: Sequence[str]) -> None:
    """Adds the outcome to the call's log line."""
    call.notes["prompt"] = usage.prompt_tokens
    call.notes["cached"] = usage.prompt_tokens_details.cached_tokens
    call.notes["output"] = usage.completion_tokens
    call.notes["finish"] = ",".join(sorted(set(reasons)))
