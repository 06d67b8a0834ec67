"""What is shown of a source file's path: enough to find the file, and nothing of the machine or its user.

Also which files are a library's, so that a call's place is a line of the program. A profiler names a file from the
folder on that Python searched, so site-packages itself is often lost, and the package's name has to tell.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_HOMES = ("home", "Users")
# Packages that call PyTorch or the program's code, as the first folder of their files. Others count as the program.
PACKAGES = frozenset(
    """
    IPython PIL _pytest accelerate aiter albumentations apex bitsandbytes botorch click compressed_tensors cv2
    deep_ep deep_gemm deepspeed detectron2 dgl diffusers einops fairscale fairseq fastai fastapi flash_attn
    flashinfer gpytorch gymnasium hydra ignite ipykernel kornia liger_kernel lightning lightning_fabric
    lightning_utilities megatron mmcv mmdet mmengine monai numpy onnxruntime opacus open_clip optimum pandas peft
    pluggy pyro pytest pytorch_lightning pytorch_metric_learning ray safetensors scipy segmentation_models_pytorch
    sentence_transformers sgl_kernel sglang sklearn speechbrain stable_baselines3 starlette tensordict tensorrt_llm
    timm torch torch_cluster torch_geometric torch_scatter torch_sparse torch_tensorrt torch_xla torchao torchaudio
    torchdata torchmetrics torchrec torchrl torchtext torchtitan torchtune torchvision tornado tqdm traitlets
    transformer_engine transformers triton triton_kernels trl typer ultralytics unsloth uvicorn vllm wandb xformers
    zmq
    """.split()
)
_CHECKOUTS = frozenset(("src", "python", "pytorch"))  # folders that hold a package in a repository, beside its own name
# torch, pyprof, and standard library code between a script and its functions
_FOLDERS = "torch pyprof importlib concurrent multiprocessing asyncio logging collections encodings json re"
_BETWEEN = ("<frozen ", *(f"{folder}/" for folder in _FOLDERS.split()))
_BETWEEN_FILES = frozenset(
    """
    abc.py bdb.py cProfile.py contextlib.py copy.py dataclasses.py enum.py functools.py inspect.py os.py pickle.py
    posixpath.py queue.py random.py runpy.py selectors.py socket.py subprocess.py tempfile.py threading.py traceback.py
    types.py typing.py warnings.py weakref.py torch_guard.py
    """.split()
)
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/")
_ABSOLUTE = re.compile(r"(?<![\w.])(?:[A-Za-z]:[\\/]|/)[^\s\"'<>|:;,()]+[\\/][^\s\"'<>|:;,()]+")


def short_path(path: str) -> str:
    """The part after site-packages or the standard library's folder, or else the last two parts of an absolute path.

    Of a package in a checkout of its repository (``/workspace/vllm/vllm/v1/engine/core.py``), the part from the package
    on. A user's home folder is not shown, also where the file is directly in it.

    >>> short_path("/home/me/work/nets/net.py"), short_path("nets/deep/er/net.py"), short_path("/home/me/net.py")
    ('nets/net.py', 'nets/deep/er/net.py', 'net.py')
    """
    path = path.replace("\\", "/")
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in path:
            return path.rpartition(folder)[2]
    absolute = path.startswith("/") or path[1:3] == ":/"
    if not absolute:
        return path
    if re.search(r"/lib/python3\.\d+/", path):  # the standard library
        return path.rpartition("/lib/python3.")[2].partition("/")[2]
    parts = path.split("/")
    for place in range(len(parts) - 2, 0, -1):
        if parts[place] in PACKAGES and parts[place - 1] in {parts[place], *_CHECKOUTS}:
            return "/".join(parts[place:])
    in_home = parts[-3:-2] in ([home] for home in _HOMES) or parts[:-1] == ["", "root"]
    return parts[-1] if in_home else "/".join(parts[-2:])


def short_line(line: str) -> str:
    """The same of a path with a line's number: ``/home/me/nets/net.py:12``."""
    path, colon, number = line.rpartition(":")
    return f"{short_path(path)}:{number}" if colon and number.isdigit() else short_path(line)


def is_between(path: str) -> bool:
    """Whether a short path is that of torch, pyprof or the standard library's wrappers, which a stack leaves out."""
    return path.startswith(_BETWEEN) or path in _BETWEEN_FILES


def is_library(path: str) -> bool:
    """Whether a file is that of an installed package or of Python.

    >>> is_library("transformers/trainer.py"), is_library("nets/net.py"), is_library("/x/lib/python3.12/heapq.py")
    (True, False, True)
    """
    path = path.replace("\\", "/")
    package, slash, _ = path.partition("/")
    return is_between(path) or bool(slash and package in PACKAGES) or bool(_INSTALLED.search(path))


class Place(NamedTuple):
    """Where in a program a call was made."""

    line: str  # the innermost line outside of installed packages, such as "train.py:12"; empty if no line is
    library: str  # the library's line below that: "transformers/trainer.py:2050"; empty if no package is between

    def __str__(self) -> str:
        return " in ".join(filter(None, self))

    @property
    def innermost(self) -> str:
        return self.library or self.line


NOWHERE = Place("", "")


def place_of(lines: Sequence[str]) -> Place:
    """The place of a call stack, outermost line first. Of the library's lines the innermost outside of torch counts.

    >>> str(place_of(["train.py:9", "transformers/trainer.py:2050"])), str(place_of(["vllm/v1/utils.py:3"]))
    ('train.py:9 in transformers/trainer.py:2050', 'vllm/v1/utils.py:3')
    """
    below: list[str] = []
    for line in reversed(lines):
        if not is_library(line.rpartition(":")[0] or line):
            return Place(line, _library_line(below))
        below.append(line)
    return Place("", _library_line(below))


def _library_line(below: Sequence[str]) -> str:
    """Of a library's lines, innermost first, the one that is shown."""
    return next((line for line in below if not is_between(line.rpartition(":")[0])), below[0] if below else "")


def without_folders(text: str) -> str:
    """A message of a profiler's with its absolute paths short.

    >>> without_folders("symbols found in /home/me/env/lib/libcudnn.so are not complete")
    'symbols found in lib/libcudnn.so are not complete'
    """
    return _ABSOLUTE.sub(lambda match: short_path(match[0]), text)
