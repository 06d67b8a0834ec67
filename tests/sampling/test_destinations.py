"""Where samples go: the files of TensorBoard, Weights & Biases and Prometheus, read back by their own readers."""

import math

import pytest

from pyprof.sampling.destinations import Destinations, prometheus_text
from pyprof.sampling.sample import CURVES, OpTime, Sample

SAMPLE = Sample(
    iteration=3000,
    time_s=1_790_000_000.5,
    rank=1,
    step_ms=12.5,
    recorded_ms=20.0,
    sampling_ms=30.0,
    reading_ms=100.0,
    trace_bytes=1000,
    worker="GPU",
    busy_ms=10.0,
    attributed_percent=99.5,
    gpu_idle_percent=20.0,
    tensor_core_percent=60.0,
    tensor_core_unknown_percent=0.0,
    mfu_percent=None,  # unknown: no curve, and never 0
    ops=(OpTime("linear", 6.0, 60.0), OpTime('odd "op"|\nname', 4.0, 40.0)),
    incomplete=None,
)
KNOWN = {
    "step_ms": 12.5,
    "gpu_idle_percent": 20.0,
    "tensor_core_percent": 60.0,
    "tensor_core_unknown_percent": 0.0,
    "busy_ms": 10.0,
    "attributed_percent": 99.5,
    "sampling_ms": 30.0,
}


def test_curves_are_the_known_numbers():
    assert SAMPLE.scalars() == KNOWN
    assert set(KNOWN) | {"mfu_percent"} == set(CURVES)


def test_prometheus_file(tmp_path):
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    file = tmp_path / "pyprof.prom"
    with Destinations(f"prometheus:{file}") as to:
        to.send(SAMPLE._replace(iteration=1))
        to.send(SAMPLE)  # replaces the file
    families = {family.name: family for family in parser.text_string_to_metric_families(file.read_text())}
    values = {name: family.samples[0].value for name, family in families.items() if name != "pyprof_op_percent"}
    times = {"pyprof_iteration": 3000, "pyprof_sample_time_seconds": 1_790_000_000.5}
    assert values == {**{f"pyprof_{name}": value for name, value in KNOWN.items()}, **times}
    ops = {(s.labels["op"], s.labels["rank"]): s.value for s in families["pyprof_op_percent"].samples}
    assert ops == {("linear", "1"): 60.0, ('odd "op"|\nname', "1"): 40.0}
    assert all(family.documentation and family.type == "gauge" for family in families.values())
    assert [path.name for path in tmp_path.iterdir()] == ["pyprof.prom"]


def test_prometheus_text_without_a_rank():
    lines = prometheus_text(SAMPLE._replace(rank=None)).splitlines()
    assert "pyprof_step_ms 12.5" in lines and 'pyprof_op_percent{op="linear"} 60.0' in lines


def test_a_registry_of_prometheus_client():
    client = pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    registry = client.CollectorRegistry()
    with Destinations(registry) as to:
        to.send(SAMPLE)
        assert registry.get_sample_value("pyprof_step_ms") == 12.5
        assert registry.get_sample_value("pyprof_op_percent", {"op": "linear"}) == 60.0
        assert math.isnan(registry.get_sample_value("pyprof_mfu_percent"))
        to.send(SAMPLE._replace(ops=(OpTime("relu", 1.0, 100.0),)))
    assert registry.get_sample_value("pyprof_op_percent", {"op": "linear"}) is None  # of the sample before
    assert registry.get_sample_value("pyprof_op_percent", {"op": "relu"}) == 100.0


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Destinations(f"tensorboard:{tmp_path}") as to:
        to.send(SAMPLE)
    found = EventAccumulator(str(tmp_path)).Reload()
    tags = found.Tags()
    assert set(tags["scalars"]) == {f"pyprof/{name}" for name in KNOWN}
    for name, value in KNOWN.items():
        (event,) = found.Scalars(f"pyprof/{name}")
        assert (event.step, event.value) == (3000, pytest.approx(value, rel=1e-6))
    (table,) = found.Tensors("pyprof/ops/text_summary")
    assert table.step == 3000
    assert b"| linear | 6.000 | 60.0 |" in table.tensor_proto.string_val[0]


def test_wandb_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    with Destinations("wandb:project") as to:
        to.send(SAMPLE)
        run = wandb.run
        assert run.settings.mode == "offline" and run.project == "project"
        summary = {key: run.summary.get(f"pyprof/{key}") for key in (*KNOWN, "iteration")}
    assert summary == {**KNOWN, "iteration": 3000}
    assert wandb.run is None  # it was begun here, and is finished
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert file.stat().st_size > 0
