"""A server of another make keeps the promises of every upstream."""

from __future__ import annotations

import pytest

from camshaft.bench.fake_openai import Play
from camshaft.cluster.foreign import ForeignConfig
from contract.upstream_contract import check_all
from foreign_rig import rig


@pytest.mark.parametrize("play", [Play(), Play(token_s=0.0005)], ids=["at once", "token by token"])
async def test_the_contract_holds_over_a_server_of_another_make(play: Play) -> None:
    async with rig(play, ForeignConfig(dialect="vllm")) as r:
        await check_all(r.backend)
        assert r.life.closed
