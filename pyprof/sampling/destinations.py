"""Where the numbers of samples go: TensorBoard, Weights & Biases, Prometheus, or a function."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from pyprof.errors import PyprofError, require
from pyprof.files import open_output
from pyprof.sampling.sample import CURVES, Sample

Send = Callable[[Sample], None]
KNOWN = '"tensorboard:FOLDER", "wandb", "wandb:PROJECT", "prometheus:FILE.prom"'


class Destinations:
    """All destinations of ``to=``. What it opened itself is closed when the block ends."""

    def __init__(self, to: Any) -> None:
        self._closing = ExitStack()
        self._all = [_destination(each, self._closing) for each in (to if isinstance(to, (list, tuple)) else [to])]

    def __enter__(self) -> Destinations:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def send(self, sample: Sample) -> None:
        """Send to each; if one fails, the others get it all the same. Raises PyprofError for those that failed."""
        failed = [why for send in self._all if (why := _sent(send, sample))]
        if failed:
            raise PyprofError(f"to=: {'; '.join(failed)}")


def _sent(send: Send, sample: Sample) -> str:
    """Why the destination failed; empty if it did not. It may be a function of the program's."""
    try:
        send(sample)
    except Exception as error:  # the program's function may raise anything; the caller reports it
        if isinstance(error, MemoryError):
            raise
        return f"{type(error).__name__}: {error}"
    return ""


def _destination(to: Any, closing: ExitStack) -> Send:
    """What sends a sample there. Raises PyprofError for what is no destination, or needs a missing package."""
    if isinstance(to, (str, os.PathLike)):
        kind, _, where = os.fspath(to).partition(":")
        if kind == "tensorboard" and where:
            return _new_writer(where, closing)
        if kind == "wandb":
            return _new_run(where, closing)
        if kind == "prometheus" and where:
            return _text_file(Path(where))
    elif hasattr(to, "add_scalar"):  # torch.utils.tensorboard.SummaryWriter, tensorboardX's
        return lambda sample: to_tensorboard(to, sample)
    elif hasattr(to, "log") and hasattr(to, "summary"):  # wandb.init()'s run
        return lambda sample: to_wandb(to, sample)
    elif hasattr(to, "register") and hasattr(to, "collect"):  # prometheus_client.CollectorRegistry
        return _gauges(to)
    elif callable(to):
        send: Send = to
        return send
    raise PyprofError(
        f"profile(): to={to!r} is no place for samples; there are: {KNOWN}, a SummaryWriter, a run of W&B, a "
        "CollectorRegistry of prometheus_client, a function of one argument, and a list of these"
    )


def _new_writer(folder: str, closing: ExitStack) -> Send:
    require("tensorboard", "to='tensorboard:FOLDER' needs it: pip install tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    closing.callback(writer.close)
    return lambda sample: to_tensorboard(writer, sample)


def to_tensorboard(writer: Any, sample: Sample) -> None:
    """The curves under ``pyprof/``, and the longest ops as a table in the tab of texts."""
    for name, value in sample.scalars().items():
        writer.add_scalar(f"pyprof/{name}", value, sample.iteration, sample.time_s)
    rows = [f"| {_cell(op.op)} | {op.ms:.3f} | {op.percent:.1f} |" for op in sample.ops]
    writer.add_text("pyprof/ops", "\n".join(["| op | ms | % |", "|---|---|---|", *rows]), sample.iteration)
    writer.flush()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _new_run(project: str, closing: ExitStack) -> Send:
    """The run that the program has begun with wandb.init(), or else a new one."""
    require("wandb", "to='wandb' needs it: pip install wandb")
    import wandb

    run = wandb.run
    if run is None:
        run = wandb.init(project=project or None)
        closing.callback(run.finish)
    return lambda sample: to_wandb(run, sample)


def to_wandb(run: Any, sample: Sample) -> None:
    """The curves under ``pyprof/`` against ``pyprof/iteration``, and the longest ops as a table.

    The run's own step is left alone: the program counts it as it likes.
    """
    import wandb

    run.define_metric("pyprof/*", step_metric="pyprof/iteration")
    ops = wandb.Table(columns=["op", "ms", "%"], data=[list(op) for op in sample.ops])
    curves = {f"pyprof/{name}": value for name, value in sample.scalars().items()}
    run.log({"pyprof/iteration": sample.iteration, **curves, "pyprof/ops": ops})


def _text_file(file: Path) -> Send:
    """A file for the textfile collector of Prometheus' node_exporter; it is replaced as a whole with each sample."""
    if not file.name.endswith(".prom") or not file.absolute().parent.is_dir():
        raise PyprofError(
            f"profile(): to='prometheus:{file}': expected the name of a file .prom in a folder that exists"
        )

    def send(sample: Sample) -> None:
        with open_output(file, force=True) as out:
            out.write(prometheus_text(sample).encode())

    return send


def prometheus_text(sample: Sample) -> str:
    """The sample in Prometheus' text format. Curves that are unknown now are left out."""
    rank = "" if sample.rank is None else f'rank="{sample.rank}"'
    lines = []
    for name, value in {
        **sample.scalars(),
        "iteration": sample.iteration,
        "sample_time_seconds": sample.time_s,
    }.items():
        lines += _gauge(name, [(rank, value)])
    by_op = [(",".join(filter(None, (rank, f'op="{_label(op.op)}"'))), op.percent) for op in sample.ops]
    return "".join(f"{line}\n" for line in [*lines, *_gauge("op_percent", by_op)])


OTHER_HELP = {
    "iteration": "The sampled iteration",
    "sample_time_seconds": "When it ended, Unix time",
    "op_percent": "Share of the longest ops in the time of all, in percent",
}


def _gauge(name: str, values: list[tuple[str, float]]) -> list[str]:
    help_text = CURVES.get(name) or OTHER_HELP[name]
    cells = [f"pyprof_{name}{f'{{{labels}}}' if labels else ''} {value!r}" for labels, value in values]
    return [f"# HELP pyprof_{name} {help_text}", f"# TYPE pyprof_{name} gauge", *cells]


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _gauges(registry: Any) -> Send:
    """Gauges in a registry of prometheus_client, which the program serves itself."""
    require("prometheus_client", "a CollectorRegistry comes from it: pip install prometheus-client")
    from prometheus_client import Gauge

    gauges = {name: Gauge(f"pyprof_{name}", text, registry=registry) for name, text in CURVES.items()}
    iteration = Gauge("pyprof_iteration", OTHER_HELP["iteration"], registry=registry)
    by_op = Gauge("pyprof_op_percent", OTHER_HELP["op_percent"], ["op"], registry=registry)

    def send(sample: Sample) -> None:
        values = sample.scalars()
        for name, gauge in gauges.items():
            gauge.set(values.get(name, float("nan")))
        iteration.set(sample.iteration)
        with suppress(AttributeError):  # clear() came with prometheus_client 0.10
            by_op.clear()
        for op in sample.ops:
            by_op.labels(op.op).set(op.percent)

    return send
