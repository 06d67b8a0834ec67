"""Changes as settings of the framework whose loop the recorded stacks show, in place of code in the framework's files.

A form with ``...`` among a call's arguments, TrainingArguments(..., bf16=True), is also looked for in the program: the
only such call of its files gets the arguments.

Run on a CPU, two steps with each setting: transformers 5.24, lightning 2.6.6, accelerate 1.15, torchao 0.18 with torch
2.13; tf32 and torch.compile's CUDA graphs need a GPU. vLLM and SGLang: their lists of arguments
(docs.vllm.ai/en/latest/configuration/engine_args, docs/advanced_features/server_arguments.md of sgl-project/sglang).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof.prof.changes.general_code import INFERENCE, TRAINING, GeneralForm
from pyprof.source_path import NOWHERE, Place, is_library
from pyprof.table.schema import list_texts

if TYPE_CHECKING:
    from pyprof.prof.changes.effect.run import Run
    from pyprof.table.columns import Coded, Ints

MOST_FILES = 32  # of the program, in which a framework's call is looked for


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework by the files in a stack that show its use."""

    name: str
    files: tuple[str, ...]  # how their names begin
    owns_loop: bool = True  # whether kernels of its stacks are no other framework's
    uses: tuple[str, ...] = ()  # frameworks that it calls, whose settings it makes


FRAMEWORKS = (
    Framework("vllm", ("vllm/",)),
    Framework("sglang", ("sglang/srt/",)),
    Framework("trainer", ("transformers/trainer", "trl/trainer/"), uses=("accelerate",)),
    Framework("lightning", ("lightning/pytorch/", "pytorch_lightning/")),
    Framework("accelerate", ("accelerate/accelerator.py", "accelerate/optimizer.py", "accelerate/data_loader.py")),
    Framework("pipeline", ("transformers/pipelines/",), owns_loop=False, uses=("model",)),
    Framework("generate", ("transformers/generation/",), owns_loop=False),
    Framework("model", ("transformers/models/", "transformers/integrations/"), owns_loop=False),
)


def _setting(framework: str, rule: str, words: str, before: str, after: str, loop: str = "") -> GeneralForm:
    return GeneralForm(rule, words, before, after, loop, framework)


def _argument(
    framework: str, rule: str, words: str, call: str, argument: str, loop: str = "", note: str = ""
) -> GeneralForm:
    """An argument of a call such as "args = TrainingArguments"; ``note``: a comment."""
    after = f"{call}(..., {argument})" + (f"  # {note}" if note else "")
    return _setting(framework, rule, words, f"{call}(...)", after, loop)


_ARGS, _FIT, _ACCELERATOR = "args = TrainingArguments", "trainer = Trainer", "accelerator = Accelerator"
_LLM, _ENGINE, _MODEL = "llm = LLM", "engine = sglang.Engine", "model = AutoModel.from_pretrained"
_BF16, _FP16 = "dtype=torch.bfloat16", "dtype=torch.float16"
_GRAPH, _ALONE = "In place of its graph", "Call model = torch.compile"  # of ``compile``
_WITH, _BEFORE = "Compile the model, or", "Do so before torch.compile"  # of ``fp8``
_FLOAT8 = "from torchao.float8 import convert_to_float8_training\n\nconvert_to_float8_training(model"
_NET = "  # once; net: the network in the LightningModule\ntrainer.fit(model)"
_INDUCTOR_GRAPHS = 'dynamo_plugin=TorchDynamoPlugin(backend="inductor", mode="reduce-overhead")'
_FP8 = 'mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs()]'
_PIPELINE, _UTILS = "pipe = pipeline", "of accelerate.utils"
_ITEMS = ("lightning/fabric/utilities/apply_func.py", "lightning_fabric/utilities/apply_func.py")
SETTINGS = (
    _argument("trainer", "tf32", "", _ARGS, "tf32=True"),
    _argument("trainer", "amp", _BF16, _ARGS, "bf16=True"),
    _argument("trainer", "amp", _FP16, _ARGS, "fp16=True"),
    _argument("trainer", "optimizer", "torch.optim.Adam", _ARGS, 'optim="adamw_torch_fused"', TRAINING),
    _argument("trainer", "compile", _GRAPH, _ARGS, 'torch_compile=True, torch_compile_mode="reduce-overhead"'),
    _argument("trainer", "compile", _ALONE, _ARGS, "torch_compile=True"),
    _argument("trainer", "cuda_graph", "", _ARGS, 'torch_compile=True, torch_compile_mode="reduce-overhead"'),
    _argument("trainer", "data_loader", "", _ARGS, "dataloader_num_workers=8, dataloader_persistent_workers=True"),
    _argument("trainer", "pageable_copy", "", _ARGS,
              'dataloader_pin_memory=True, accelerator_config={"non_blocking": True}'),
    _argument("trainer", "kept_activations", "", _ARGS, "gradient_checkpointing=False", TRAINING),
    _argument("trainer", "allocator", "", _ARGS, "torch_empty_cache_steps=None"),
    GeneralForm("item", "", f"{_ARGS}(...)", f"{_ARGS}(..., logging_nan_inf_filter=False, logging_steps=100)", "",
                "trainer", ("transformers/trainer",)),
    _setting("trainer", "fp8", _WITH, "trainer = Trainer(model=model, args=args)",
             f"{_FLOAT8})  # once; and TrainingArguments(torch_compile=True)\n"
             "trainer = Trainer(model=model, args=args)", TRAINING),
    _setting("trainer", "fp8", _BEFORE, "trainer = Trainer(model=model, args=args)",
             f"{_FLOAT8})  # once\ntrainer = Trainer(model=model, args=args)", TRAINING),
    _argument("lightning", "amp", _BF16, _FIT, 'precision="bf16-mixed"'),
    _argument("lightning", "amp", _FP16, _FIT, 'precision="16-mixed"'),
    _argument("lightning", "weight_casts", "", _FIT, 'precision="bf16-true"', INFERENCE),
    _setting("lightning", "compile", _GRAPH, "trainer.fit(model)", f'model.net.compile(mode="reduce-overhead"){_NET}'),
    _setting("lightning", "compile", _ALONE, "trainer.fit(model)", f"model.net.compile(){_NET}"),
    _setting("lightning", "cuda_graph", "", "trainer.fit(model)", f'model.net.compile(mode="reduce-overhead"){_NET}'),
    _setting("lightning", "fp8", _WITH, "trainer.fit(model)",
             f"{_FLOAT8}.net)\nmodel.net.compile(){_NET}", TRAINING),
    _setting("lightning", "fp8", _BEFORE, "trainer.fit(model)", f"{_FLOAT8}.net){_NET}", TRAINING),
    _argument("lightning", "pageable_copy", "", "loader = DataLoader", "pin_memory=True"),
    GeneralForm("item", "", 'self.log("loss", loss, prog_bar=True)',
                'self.log("loss", loss)  # the progress bar would read it in each step', "", "lightning", _ITEMS),
    _argument("accelerate", "amp", _BF16, _ACCELERATOR, 'mixed_precision="bf16"'),
    _argument("accelerate", "amp", _FP16, _ACCELERATOR, 'mixed_precision="fp16"'),
    _argument("accelerate", "compile", _GRAPH, _ACCELERATOR, _INDUCTOR_GRAPHS, note=_UTILS),
    _argument("accelerate", "compile", _ALONE, _ACCELERATOR, 'dynamo_backend="inductor"'),
    _argument("accelerate", "cuda_graph", "", _ACCELERATOR, _INDUCTOR_GRAPHS, note=_UTILS),
    _argument("accelerate", "fp8", _WITH, _ACCELERATOR, f'{_FP8}, dynamo_backend="inductor"', TRAINING, _UTILS),
    _argument("accelerate", "fp8", _BEFORE, _ACCELERATOR, _FP8, TRAINING, _UTILS),
    _argument("generate", "static_cache", "", "out = model.generate", 'cache_implementation="static"'),
    _argument("pipeline", "attention", "", _PIPELINE, 'model_kwargs={"attn_implementation": "sdpa"}'),
    _argument("pipeline", "weight_casts", "", _PIPELINE, "dtype=torch.bfloat16", INFERENCE),
    _setting("pipeline", "compile", _ALONE, "pipe = pipeline(...)",
             "pipe = pipeline(...)\npipe.model = torch.compile(pipe.model)  # once"),
    _argument("model", "attention", "", _MODEL, 'attn_implementation="sdpa"'),
    _setting("model", "alignment", "Pad the vocabulary", f"{_MODEL}(...)",
             f"{_MODEL}(...)\nmodel.resize_token_embeddings(pad_to_multiple_of=8)"),
    _argument("model", "weight_casts", "", _MODEL, "dtype=torch.bfloat16", INFERENCE),
    _argument("vllm", "amp", _BF16, _LLM, 'dtype="bfloat16"', note="vllm serve --dtype bfloat16"),
    _argument("vllm", "amp", _FP16, _LLM, 'dtype="float16"', note="vllm serve --dtype float16"),
    _argument("vllm", "weight_casts", "", _LLM, 'dtype="bfloat16"', note="vllm serve --dtype bfloat16"),
    _argument("vllm", "fp8", "", _LLM, 'quantization="fp8"', note="vllm serve --quantization fp8"),
    _argument("vllm", "compile", "", _LLM, "enforce_eager=False", note="vllm serve without --enforce-eager"),
    _argument("vllm", "cuda_graph", "", _LLM, "enforce_eager=False", note="vllm serve without --enforce-eager"),
    _argument("sglang", "amp", _BF16, _ENGINE, 'dtype="bfloat16"', note="sglang.launch_server --dtype bfloat16"),
    _argument("sglang", "amp", _FP16, _ENGINE, 'dtype="float16"', note="sglang.launch_server --dtype float16"),
    _argument("sglang", "weight_casts", "", _ENGINE, 'dtype="bfloat16"', note="sglang.launch_server --dtype bfloat16"),
    _argument("sglang", "fp8", "", _ENGINE, 'quantization="fp8"', note="sglang.launch_server --quantization fp8"),
    _argument("sglang", "compile", "", _ENGINE, "enable_torch_compile=True",
              note="sglang.launch_server --enable-torch-compile"),
    _argument("sglang", "cuda_graph", "", _ENGINE, "disable_cuda_graph=False, cuda_graph_max_bs=batch",
              note="sglang.launch_server without --disable-cuda-graph, with --cuda-graph-max-bs"),
)  # fmt: skip


class Program(NamedTuple):
    """What a capture says of the program that a change is for."""

    loop: str = TRAINING  # or INFERENCE; empty: unknown
    frameworks: tuple[str, ...] = ()  # those whose settings apply, the first one's first
    place: Place = NOWHERE  # of the change
    files: tuple[str, ...] = ()  # the program's own, the innermost of the change's place first


def program_of(run: Run, rows: Ints, row: int) -> Program:
    """The program around the rows of a change, of which ``row`` gains most; -1: none does."""
    loop = TRAINING if run.trains else "" if bool(run.in_graph.any()) else INFERENCE
    column = run.table.coded("trace")
    code = int(column.codes[row]) if row >= 0 else -1
    codes = [*([code] if code >= 0 else []), *np.unique(column.codes[column.codes >= 0]).tolist()]
    files = dict.fromkeys(file for each in codes for file in reversed(_files(column.values[each])))
    own = tuple(file for file in files if not is_library(file))[:MOST_FILES]
    return Program(loop, frameworks_of(run, rows), run.place(row) if row >= 0 else NOWHERE, own)


def frameworks_of(run: Run, rows: Ints) -> tuple[str, ...]:
    """The frameworks in the stacks of these rows, the first one's settings first.

    A stack need not hold all of them: where no framework owns the rows' loop, those of the other rows count, too.
    """
    column = run.table.coded("trace")
    own, whole = _named(column.take(rows)), _named(column)
    found = own if any(each.owns_loop for each in own) else list(dict.fromkeys([*own, *whole]))
    used = {name for each in found for name in each.uses}
    return tuple(each.name for each in found if each.name not in used)


def _named(stacks: Coded) -> list[Framework]:
    codes = np.unique(stacks.codes[stacks.codes >= 0]).tolist()
    files = {file for code in codes for file in _files(stacks.values[code])}
    return [each for each in FRAMEWORKS if any(file.startswith(each.files) for file in files)]


def _files(stack: str) -> list[str]:
    return [line.rpartition(":")[0] for line in list_texts(stack)]


def setting(rule: str, change: str, program: Program) -> GeneralForm | None:
    """The form of a change, in words, of the program's framework; None: none is known."""
    forms = (form for name in program.frameworks for form in SETTINGS if form.framework == name)
    called = program.place.library
    return next((each for each in forms if each.fits(rule, change, program.loop, called)), None)
