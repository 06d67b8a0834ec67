"""Which line of a call stack is the program's, and which a library's."""

import pytest

from pyprof.source_path import Place, is_library, place_of, short_path

PLACES = [  # stack, outermost line first; the program's innermost line; the library's line below it
    ([], "", ""),
    (["train.py:9"], "train.py:9", ""),
    (["train.py:9", "nets/net.py:4"], "nets/net.py:4", ""),
    (["train.py:9", "transformers/trainer.py:2", "peft/peft_model.py:3"], "train.py:9", "peft/peft_model.py:3"),
    # a library that calls the program's model: the program's line is the innermost, and nothing is below it
    (["train.py:9", "transformers/trainer.py:20", "net.py:4"], "net.py:4", ""),
    (["vllm/v1/engine/core.py:1", "vllm/v1/utils.py:2"], "", "vllm/v1/utils.py:2"),
    # of a library's lines, those of torch and of Python count only where there are no others
    (["train.py:9", "timm/models/vit.py:5", "torch/nn/modules/linear.py:1"], "train.py:9", "timm/models/vit.py:5"),
    (["train.py:9", "torch/nn/modules/linear.py:1"], "train.py:9", "torch/nn/modules/linear.py:1"),
    (["/opt/conda/envs/a/lib/python3.11/site-packages/own/net.py:7"], "",
     "/opt/conda/envs/a/lib/python3.11/site-packages/own/net.py:7"),
    (["job.py:1", "/usr/lib/python3.12/heapq.py:2", "<frozen runpy>:3"], "job.py:1", "/usr/lib/python3.12/heapq.py:2"),
]  # fmt: skip


@pytest.mark.parametrize(("stack", "line", "library"), PLACES)
def test_the_place_of_a_stack(stack, line, library):
    assert place_of(stack) == Place(line, library)


def test_a_place_as_text_names_the_line_and_then_the_library_s():
    assert str(Place("train.py:9", "transformers/trainer.py:20")) == "train.py:9 in transformers/trainer.py:20"
    assert str(Place("train.py:9", "")) == "train.py:9"
    assert str(Place("", "vllm/v1/utils.py:2")) == "vllm/v1/utils.py:2"
    assert str(Place("", "")) == ""


@pytest.mark.parametrize("path", ["train.py", "nets/net.py", "transformers.py", "datasets/coco.py", "src/model.py"])
def test_files_of_the_program_are_no_library_s(path):
    assert not is_library(path)


PACKAGES = [
    ("/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", "sglang/srt/managers/scheduler.py"),
    ("/workspace/vllm/vllm/v1/engine/core.py", "vllm/v1/engine/core.py"),
    ("/root/transformers/src/transformers/trainer.py", "transformers/trainer.py"),
    ("/home/me/transformers/examples/run.py", "examples/run.py"),  # a program in the repository is no package
]


@pytest.mark.parametrize(("path", "short"), PACKAGES)
def test_a_package_in_a_checkout_keeps_its_name(path, short):
    assert short_path(path) == short
