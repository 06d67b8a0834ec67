"""What summary, advice and plan say of captures of other people's programs, against the files themselves."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyprof.prof import cli
from pyprof.prof.diff.cli import main as diff
from pyprof.prof.planning.cli import main as plan

TORCH_LAYERS = "param__et_replay__tests__inputs__linear_kineto"  # 20 linear layers and a cross-entropy; no shapes
POWER = "power_iteration__baseline"  # CuPy: 432 products by gemv2T_kernel_val<int, int, double, ...>
SAXPY = "saxpy-mpi-cuda_nsys_perlmutter0"  # one kernel of CUDA C
DEEPSEEK = "deepseek_h800_train"  # 77.3% of GPU time in kernels without an op: dispatch(F), combine(B), ...
MIOPEN = "tracelens_mi210_gpu_only"  # 62 products; 109 kernels SubTensorOpWith... fill and cast


@pytest.fixture
def say(data: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., str]:
    """What a command says of the capture with this in its name, in one line."""

    def words(part: str, *options: str) -> str:
        (file,) = (path for path in data.glob("*/*") if part in path.name)
        command = plan if options == ("plan",) else cli.main
        assert command([str(file), *(options if command is cli.main else ())]) in (0, 1)
        out, err = capsysbinary.readouterr()
        return " ".join((out + err).decode().split())

    return words


def test_the_softmax_of_a_models_output_is_no_attention(say: Callable[..., str]) -> None:
    """The kernels after the 40 softmaxes are a loss's and the backward pass's: the model has no attention."""
    assert "attention" not in say(TORCH_LAYERS, "--summary").replace("GEMM, convolution and attention", "")


def test_products_without_an_op_compute_in_the_type_that_their_name_has(say: Callable[..., str]) -> None:
    words = say(POWER, "--summary")
    assert "none of it on tensor cores: fp64 100%." in words
    assert "The peak of this GPU's tensor cores" not in words  # fp16 is no choice for a program in fp64


def test_ranges_of_the_program_are_one_reason(say: Callable[..., str]) -> None:
    """3,770 of 3,778 operations lie in 133 ranges "Compute <n>"."""
    assert (
        "100% of GPU time has no op: only user ranges around the launch (99.8%, 3,770 operations): Compute 30, "
        "Compute 40, Compute 100 and 130 more; no range around the launch (0.2%, 8 operations)."
    ) in say(POWER, "--summary")


@pytest.mark.parametrize("part", [POWER, SAXPY, "perlmutter-cloverleaf-cuda", "Mordred-Deprecated"])
def test_other_programs_get_no_advice_about_pytorch(part: str, say: Callable[..., str]) -> None:
    why = "the capture has no op and no kernel of PyTorch, and the rules are about PyTorch programs"
    assert f"Nothing can be said of changes: {why}." in say(part, "--advise")
    assert f"What to change: nothing can be said: {why}" in say(part, "--summary")
    assert f"expected a PyTorch program, found none: {why}" in say(part, "plan")


def test_cpu_ops_that_only_launch_get_no_advice_for_cpus(say: Callable[..., str]) -> None:
    """The trace has the launches of a GPU program, without the GPU: "it needs a C++ compiler" would be false."""
    assert "Nothing can be said of changes: these CPU ops only launched GPU work" in say("zoology_cpu", "--advise")


def test_one_dimensional_convolutions_have_no_channels_last(say: Callable[..., str]) -> None:
    """All four convolutions are nn.Conv1d: aten::conv1d around shapes of 512 × 64 × 1 × 8256."""
    assert "hannels last" not in say("particle_transformer_cpu", "--advise")


def test_autotuning_does_not_come_from_empty_cache(say: Callable[..., str]) -> None:
    """cuDNN's autotuning gives its workspaces back; nothing in the file says that each step does."""
    assert "empty_cache" not in say("dlprof_w_relu", "--advise")


def test_passes_are_not_compared_where_most_kernels_have_no_op(say: Callable[..., str]) -> None:
    assert "The backward pass takes" not in say(DEEPSEEK, "--summary")


def test_fills_and_casts_are_no_matrix_math(say: Callable[..., str]) -> None:
    """62 kernels igemm_* and Cijk_*: 1.621 + 0.0899 ms."""
    assert "takes 1.710 ms (32.0% of GPU time), 100% of it on matrix cores: bf16" in say(MIOPEN, "--summary")


def test_a_step_without_the_profiler_is_the_step_that_was_captured(say: Callable[..., str]) -> None:
    """The server's step is 10.45 ms of GPU work, behind a copy that waited 463 ms for the step before."""
    words = say("sglang_decode", "--advise")
    took, without = re.findall(r"takes (?:about )?([\d.]+) ms", words)
    assert float(took) == 10.5 and 9 < float(without) < 10.45


def test_two_fills_are_not_a_step_of_34_ms(say: Callable[..., str]) -> None:
    """Two kernels of 5 µs in a step of 33.72 ms: what is before them stays, and nothing is said to change it."""
    words = say("sglang_capture", "--advise")
    took, without = (float(ms) for ms in re.findall(r"takes (?:about )?([\d.]+) ms", words)[:2])
    assert took == 33.7 and without <= took
    assert "No change was found that saves 1% of the step." in words


@pytest.mark.parametrize("part", [TORCH_LAYERS, "Fuser__report2"])
def test_a_step_takes_no_longer_without_the_profiler(part: str, say: Callable[..., str]) -> None:
    took, without = re.findall(r"takes (?:about )?([\d.,]+) ms", say(part, "--advise"))[:2]
    assert float(without.replace(",", "")) <= float(took.replace(",", ""))


def test_nothing_is_shown_as_zero_that_is_not(say: Callable[..., str]) -> None:
    """16 bytes at 5.3 TB/s are 3 ps."""
    words = say("sglang_capture", "--summary")
    assert "would need <0.0001 ms instead of 0.0110 ms" in words and "0.0000 ms" not in words


def test_loading_is_no_part_of_the_step_without_the_profiler(say: Callable[..., str]) -> None:
    """4,460 ms of copies load the model before the first kernel; the rest takes 3,929 ms with the profiler."""
    words = say("result_2_7B.sqlite", "--advise")
    took, without = (float(ms.replace(",", "")) for ms in re.findall(r"takes (?:about )?([\d.,]+) ms", words)[:2])
    assert took == 3929 and without <= took


def test_a_plan_without_shapes_says_what_it_lacks(say: Callable[..., str]) -> None:
    """TF32 is found by the names of the kernels; most other rules need the shapes."""
    words = say("result_2_7B.sqlite", "plan")
    assert "[tf32]" in words and "Most rules need the shapes of aten ops, which the capture does not have." in words


def test_an_operand_on_the_cpu_is_no_batch_to_pin(say: Callable[..., str]) -> None:
    """Four aten::index with indices on the CPU: the program makes no copy that it could pin."""
    assert "index (4, 4.821 ms); keep these operands on the GPU." in say("param_dlrm_adagrad", "--summary")


def test_a_gpu_without_a_name_is_still_a_gpu(say: Callable[..., str]) -> None:
    assert " GPU: peaks and bandwidth from AMD MI300X data sheet." in say("vllm_decode", "--summary")


def test_captures_without_steps_are_not_called_faster_or_slower(data: Path, capsysbinary: Any) -> None:
    """The second capture holds 2.5 times the operations of the first: more steps of the same speed."""
    files = [str(data / "nsys" / f"zx3xyy+assignment2-systems__result_2_7B{end}.sqlite.gz") for end in ("", "_clean")]
    assert diff(files) == 0
    words = " ".join(capsysbinary.readouterr().out.decode().split())
    assert words.startswith("B takes 4,506 ms longer: 3,929 -> 8,435 ms (+114.7%; noise unknown: one capture each).")
    assert "ms per capture" in words and "per step" not in words
