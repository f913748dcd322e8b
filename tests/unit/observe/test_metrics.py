"""The exported numbers: names, units, sums, and no state that two instances share."""

from __future__ import annotations

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from camshaft.observe.instruments import MAX_SERIES, Histogram, counter
from camshaft.observe.metrics import STAGES, EngineMetrics, Lifetime, Metrics, StepParts, Steps


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_a_step_is_shown_under_the_names_that_dashboards_know() -> None:
    metrics = Metrics()
    engine = metrics.engine("m")
    engine.steps(
        Steps(3, 2, 0.5, 0.3, 0.1, n_tokens=(70,), n_prompt=64, ttft_s=(0.2,), gaps_s=(0.01, 0.03), parts=StepParts(1.0, 0.5, 8.0, 2.0))
    )
    engine.steps(Steps(4, 0, 0.25, 0.4, 0.2, n_tokens=(4, 3), gaps_s=(0.01,)))
    got = samples(metrics)
    model = (("model_name", "m"),)
    assert got["camshaft_num_requests_running", model] == 4
    assert got["camshaft_num_requests_waiting", model] == 0
    assert got["camshaft_kv_cache_usage_perc", model] == 0.25
    assert got["camshaft_kv_cache_cached_perc", model] == 0.4
    assert got["camshaft_kv_cache_waste_perc", model] == 0.2
    assert got["camshaft_prompt_tokens_total", model] == 64
    assert got["camshaft_generation_tokens_total", model] == 4
    assert got["camshaft_time_to_first_token_seconds_count", model] == 1
    assert got["camshaft_inter_token_latency_seconds_sum", model] == pytest.approx(0.05)
    assert got["camshaft_iteration_tokens_total_count", model] == 3
    assert got["camshaft_step_seconds_total", (*model, ("part", "compute"))] == 8.0


def test_a_request_leaves_its_reason_its_times_and_its_prefix_hits() -> None:
    metrics = Metrics()
    engine = metrics.engine("m")
    engine.admitted(0.5, n_prompt=100, n_cached=96)
    engine.finished(Lifetime("stop", 2.0, 0.4, 1.1, n_prompt=100, n_output=20))
    engine.finished(Lifetime("deadline_exceeded", 9.0, 0.0, 0.0, n_prompt=1, n_output=0))
    engine.preempted()
    engine.refused("overloaded")
    engine.evicted("session", 3)
    got = samples(metrics)
    model = ("model_name", "m")
    assert got["camshaft_prefix_cache_queries_total", (model,)] == 100
    assert got["camshaft_prefix_cache_hits_total", (model,)] == 96
    assert got["camshaft_request_success_total", (("finished_reason", "stop"), model)] == 1
    assert got["camshaft_request_success_total", (("finished_reason", "length"), model)] == 0
    assert got["camshaft_request_failure_total", (("code", "deadline_exceeded"), model)] == 1
    assert got["camshaft_num_preemptions_total", (model,)] == 1
    assert got["camshaft_admission_rejections_total", (model, ("reason", "overloaded"))] == 1
    assert got["camshaft_kv_cache_evictions_total", (("class", "session"), model)] == 3
    assert got["camshaft_request_stage_seconds_sum", (model, ("stage", "queue"))] == 0.5


def test_every_stage_has_an_address_from_the_start() -> None:
    metrics = Metrics()
    metrics.engine("m").stage("send", 0.001)
    got = samples(metrics)
    counts = {stage: got["camshaft_request_stage_seconds_count", (("model_name", "m"), ("stage", stage))] for stage in STAGES}
    assert counts == {stage: float(stage == "send") for stage in STAGES}


def test_two_models_share_a_family_and_two_instances_share_nothing() -> None:
    metrics = Metrics()
    metrics.engine("a").preempted()
    metrics.engine("b").preempted(2)
    other = EngineMetrics("a")
    got = samples(metrics)
    assert got["camshaft_num_preemptions_total", (("model_name", "a"),)] == 1
    assert got["camshaft_num_preemptions_total", (("model_name", "b"),)] == 2
    assert samples(other.metrics)["camshaft_num_preemptions_total", (("model_name", "a"),)] == 0
    assert metrics.render().count(b"# TYPE camshaft_num_preemptions_total") == 1


def test_a_models_name_may_be_anything() -> None:
    metrics = Metrics()
    name = 'a "b\\c\nd'
    metrics.engine(name).preempted()
    assert samples(metrics)["camshaft_num_preemptions_total", (("model_name", name),)] == 1


def test_bucket_bounds_are_inclusive_and_cumulative_counts_end_at_the_count() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(1.0)
    histogram.observe_all((1.5, 2.0, 99.0))
    assert histogram.snapshot() == ([1, 2, 1], 103.5)


def test_threads_lose_no_count() -> None:
    value = counter("c_total", "d").child()
    histogram = Histogram((1.0,))

    def work() -> None:
        for _ in range(5000):
            value.add()
            histogram.observe(0.5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value.value == 20_000
    assert histogram.snapshot()[0] == [20_000, 0]


def test_label_values_cannot_grow_without_bound() -> None:
    family = counter("c_total", "d", ("x",))
    for i in range(MAX_SERIES):
        family.child(str(i))
    with pytest.raises(ValueError, match="more than"):
        family.child("one more")
    with pytest.raises(ValueError, match="labels"):
        family.child()
