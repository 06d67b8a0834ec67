"""What the process of one run is told, and what it writes down: two JSON files between it and `pyprof try`."""

from __future__ import annotations

from pathlib import Path

import msgspec

LOSSES = 5  # first steps whose loss is kept
MODULE, OPTIMIZER, MARK = "module calls", "optimizer.step()", "pyprof.step()"  # what ends a step, the last the surest


class Settings(msgspec.Struct):
    """One run of the script."""

    script: str
    args: list[str]
    module: bool  # the script is a module's name, as for python -m
    changes: list[str]
    warmup: int
    steps: int
    rest_s: float  # how long the script may go on after its steps have been timed
    record: str  # the file that the run writes
    workers: int
    seed: int = 0


class Facts(msgspec.Struct):
    """What the script uses, as far as changes depend on it."""

    gpu: str = ""
    capability: list[int] = []
    models: list[str] = []  # classes of the outermost modules with parameters
    dtypes: list[str] = []  # of their parameters
    convolutions: int = 0  # 2-d and 3-d, in them
    compiled: bool = False
    autocast: bool = False
    attention: bool = False  # scaled_dot_product_attention was called
    tf32: bool = False
    cudnn_benchmark: bool = False
    unfused: int = 0  # optimizers that have a fused form and do not use it
    zero_fills: int = 0  # calls of zero_grad(set_to_none=False)
    loaders: int = 0
    loaders_without_workers: int = 0
    loaders_unpinned: int = 0


class RunRecord(msgspec.Struct):
    """What one run measured."""

    steps_by: str  # one of MODULE, OPTIMIZER, MARK
    step_ns: list[int]  # of the steps after the warm-up
    passed_over: int  # steps of the warm-up
    finished: bool  # all steps were timed before the script ended
    losses: list[float | None]  # of the first steps: the sum of the scalars on which backward() was called; None: not
    # a finite number, which JSON does not have
    peak_bytes: int  # of the GPU's memory as PyTorch allocates it; without a GPU, of the process
    facts: Facts
    done: list[str]  # what the changes did, a sentence each


def write(path: str, value: Settings | RunRecord) -> None:
    Path(path).write_bytes(msgspec.json.encode(value))


def read_settings(path: str) -> Settings:
    return msgspec.json.decode(Path(path).read_bytes(), type=Settings)


def read_record(path: Path) -> RunRecord | None:
    """The run's record; None if the run ended before it wrote one."""
    return msgspec.json.decode(path.read_bytes(), type=RunRecord) if path.exists() else None
