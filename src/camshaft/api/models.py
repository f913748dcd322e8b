"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec
from msgspec import UNSET

from camshaft.api.call import Call
from camshaft.api.edge import Edge
from camshaft.api.served import ServedModel
from camshaft.schema.models import ModelCard, ModelList

BELOW = "/v1/models/"  # what follows is a model's name


async def list_models(edge: Edge, call: Call) -> None:
    await call.reply(200, msgspec.json.encode(ModelList(data=[_card(m) for m in edge.directory.models(call.tenant)])))


async def one_model(edge: Edge, call: Call) -> None:
    # A model's name may hold slashes, which clients send as they are or escaped.
    name = unquote(call.scope["path"].removeprefix(BELOW))
    await call.reply(200, msgspec.json.encode(_card(edge.model(name, call))))


def _card(model: ServedModel) -> ModelCard:
    return ModelCard(id=model.name, created=model.created, max_model_len=model.max_model_len or UNSET)
