"""Several processes' numbers on one page."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from camshaft.observe.gateway import GatewayMetrics, Trip
from camshaft.observe.merge import merged
from camshaft.observe.metrics import EngineMetrics

TRIP = Trip("m", "v1", "m/v1-1", "", "r", "chat", 0.0, 0.1, 0.2, 1.2, 10, 4, 6, "stop")


def samples(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in text_string_to_metric_families(page.decode()) for s in f.samples}


def test_series_of_two_replicas_stay_apart_and_families_stay_whole() -> None:
    pages = []
    for i in range(2):
        engine = EngineMetrics("m")
        engine.preempted(i + 1)
        pages.append(({"replica": f"r{i}"}, engine.metrics.render()))
    page = merged(pages)
    found = samples(page)
    assert [found[("camshaft_num_preemptions_total", (("model_name", "m"), ("replica", f"r{i}")))] for i in range(2)] == [1.0, 2.0]
    types = [line.split()[2] for line in page.decode().splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert len(found) == sum(len(samples(p)) for _, p in pages)


def test_a_broken_page_costs_only_itself_and_labels_are_kept() -> None:
    page = merged(
        [({"replica": "a"}, b'x{replica="theirs",k="a,b\\"c"} 1\nnonsense\n\xff\xfe{ 3\n'), ({"replica": "b"}, b"x 2 1700000000\n")]
    )
    assert page == b'x{exported_replica="a",replica="theirs",k="a,b\\"c"} 1\nx{replica="b"} 2 1700000000\n'
    assert merged([]) == b""


def test_a_trip_is_counted_by_version_and_ending() -> None:
    metrics = GatewayMetrics(lambda: ("# TYPE camshaft_x gauge", "camshaft_x 1"))
    metrics.ended(TRIP)
    metrics.ended(TRIP._replace(ending="a code of somebody else", ttft_s=0.0))
    metrics.moved("m", "v1", moved=True)
    found = samples(metrics.render())
    version = (("model_name", "m"), ("version", "v1"))
    for ending in ("stop", "other"):
        assert found[("camshaft_gateway_requests_total", (("ending", ending), *version))] == 1.0
    assert found[("camshaft_gateway_tokens_total", (("kind", "cached"), *version))] == 8.0
    assert found[("camshaft_gateway_streams_moved_total", (("model_name", "m"), ("moved", "yes"), ("version", "v1")))] == 1.0
    assert found[("camshaft_gateway_time_per_output_token_seconds_sum", version)] == 0.2
    assert found[("camshaft_gateway_tenant_tokens_total", (("tenant", ""),))] == 24.0
    assert found[("camshaft_x", ())] == 1.0


def test_a_wait_that_nobody_knows_is_not_counted() -> None:
    metrics = GatewayMetrics()
    metrics.ended(TRIP._replace(ending="replica_lost", begun=False))
    assert not any(name.startswith("camshaft_gateway_queue_seconds") for name, _ in samples(metrics.render()))


def test_tenants_beyond_a_bound_share_a_series() -> None:
    metrics = GatewayMetrics()
    for i in range(300):
        metrics.ended(TRIP._replace(tenant=f"t{i}"))
    tenants = {
        dict(labels)["tenant"]: v
        for (name, labels), v in samples(metrics.render()).items()
        if name == "camshaft_gateway_tenant_tokens_total"
    }
    assert len(tenants) == 201
    assert tenants["other"] == 100 * 12.0
