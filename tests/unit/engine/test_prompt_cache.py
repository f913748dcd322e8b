"""The prompt cache from outside: what it takes, what it shows, and that sliding windows do not spoil it."""

from __future__ import annotations

import pytest

from camshaft.types import Capacity, Finished, KVGroup, SamplingParams
from engine_rig import Rig, sink_of

SHORT = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


def gauge(rig: Rig, name: str) -> float:
    lines = rig.loop.report.metrics.metrics.render().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"camshaft_{name}{{"))


@pytest.mark.parametrize("caching", [True, False])
def test_the_prompt_cache_is_bounded_by_the_pool_and_shown_in_the_metrics(caching: bool) -> None:
    rig = Rig(Capacity(260, 200, 4, 30, (KVGroup(1),), 3, 16), prefix_caching=caching)
    pool, tree = rig.loop.kv.pool, rig.loop.kv.tree
    for i in range(40):
        rig.submit([i, i + 1] * 10, sampling=SHORT)
        rig.run()
        assert not rig.loop.turn()
        n_nodes = sum(1 for node in tree.nodes() if node.parent is not None)
        assert n_nodes <= pool.n_cached <= pool.n_usable
        assert gauge(rig, "kv_cache_cached_perc") == pytest.approx(pool.n_cached / pool.n_usable)
    assert (pool.n_cached > 20) == caching
    assert gauge(rig, "kv_cache_usage_perc") == 0


@pytest.mark.parametrize("groups", [(KVGroup(1, 12),), (KVGroup(1), KVGroup(1, 12))])
def test_a_prompt_that_is_repeated_or_goes_on_is_found_again_though_windows_have_passed_it(groups: tuple[KVGroup, ...]) -> None:
    rig = Rig(Capacity(260, 200, 4, 200, groups, 3, 16))
    prompt = [i % 250 for i in range(80)]
    jobs = []
    for ids in (prompt, prompt, [*prompt, 7, 8, 9]):
        jobs.append(rig.submit(ids, sampling=SHORT))
        rig.run()
    cached = [end.usage.n_cached for job in jobs if isinstance(end := sink_of(job).terminal, Finished)]
    assert cached == [0, 79, 80]
