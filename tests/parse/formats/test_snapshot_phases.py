"""Phases of a snapshot whose stacks have Python's frames alone, and what its blocks then hold."""

import pytest

from pyprof.files import open_input
from pyprof.parse.formats.plain_pickle import load_plain
from pyprof.parse.read import read_profile
from pyprof.prof.memory.categories import blocks_of
from pyprof.prof.memory.memory_numbers import memory_numbers
from pyprof.prof.memory.timeline import timelines
from tests.parse.formats.test_memory_snapshot import T, cpp, event, snapshot, table

TORCH = "C:\\venv\\Lib\\site-packages\\torch\\"


def py(name, file="C:\\work\\train.py", line=12):
    return {"name": name, "filename": file, "line": line}


MAIN = [py("forward"), py("_call_impl", TORCH + "nn\\modules\\module.py"), py("<module>", line=40)]
FUNCTION = [py("backward"), py("apply", TORCH + "autograd\\function.py")]
CHECKPOINT = [
    py("forward"),
    py("recompute_fn", TORCH + "utils\\checkpoint.py"),
    py("unpack_hook", TORCH + "utils\\checkpoint.py"),
]
STEP = [py("_single_tensor_adam", TORCH + "optim\\adam.py"), py("step", TORCH + "optim\\adam.py"), py("<module>")]


def alloc(address, nbytes, us, frames=()):
    return event("alloc", address, nbytes, T + us, frames)


def free(address, nbytes, us, frames=()):
    return event("free_requested", address, nbytes, T + us, frames)


TRAINING = [
    alloc(0x1000, 700, 0, MAIN),  # freed by autograd's thread: an activation
    alloc(0x2000, 50, 1, MAIN),
    free(0x2000, 50, 2, MAIN),  # within the forward pass: a temporary
    alloc(0x3000, 200, 3, MAIN),
    alloc(0x4000, 30, 4),  # by autograd's thread
    free(0x1000, 700, 5),
    alloc(0x5000, 11, 6, FUNCTION),
    free(0x5000, 11, 7, FUNCTION),
    free(0x3000, 200, 8),
    alloc(0x6000, 9, 9, STEP),
]


def test_events_without_frames_are_those_of_the_backward_thread(tmp_path):
    got = table(tmp_path, snapshot(TRAINING))
    assert got.coded("phase").texts() == ["forward"] * 4 + ["backward"] * 5 + ["optimizer"]
    assert got.coded("dir").texts() == ["fprop"] * 4 + ["bprop"] * 5 + [""]


def test_what_the_backward_thread_frees_are_activations(tmp_path):
    memory = table(tmp_path, snapshot(TRAINING))
    (line,) = timelines(memory)
    blocks = blocks_of(memory, line)
    found = dict(zip(blocks.nbytes.tolist(), blocks.category.texts(), strict=True))
    assert found == {
        700: "activations", 50: "temporaries", 200: "activations", 30: "gradients", 11: "temporaries",
        9: "optimizer state",
    }  # fmt: skip


def test_recomputation_in_the_backward_thread_is_fprop(tmp_path):
    got = table(tmp_path, snapshot([*TRAINING[:5], alloc(0x7000, 5, 5, CHECKPOINT)]))
    assert (got.coded("phase").texts()[5], got.coded("dir").texts()[5]) == ("backward", "fprop")


@pytest.mark.parametrize(
    "trace",
    [
        [alloc(0x1000, 700, 0), free(0x1000, 700, 5)],  # a history without stacks
        [alloc(0x1000, 700, 0, MAIN), free(0x1000, 700, 5)],  # context="alloc": frees have none
        [alloc(0x1000, 700, 0, [cpp("at::_ops::mm::call()"), *MAIN]), alloc(0x2000, 7, 1)],  # with frames of C++
        [alloc(0x1000, 700, 0, [py("handler")]), alloc(0x2000, 7, 1)],  # a C++ program that calls Python
    ],
)
def test_without_stacks_of_a_thread_nothing_is_backward(tmp_path, trace):
    assert "backward" not in table(tmp_path, snapshot(trace)).coded("phase").texts()


def test_a_public_snapshot_of_a_transformer_holds_activations(data):
    """At the peak, by the file's own records: all that the forward pass allocated and had not freed when it ended."""
    file = data / "round3" / "memory_snapshot_training.pickle.gz"
    with open_input(file) as source:
        (trace,) = filter(None, load_plain(source.read(), file, "a snapshot")["device_traces"])
    alive, held, in_use, most = {}, [], 0, 0
    for place, each in enumerate(trace):
        if each["action"] == "alloc":
            alive[each["addr"]] = each
            in_use += each["size"]
        elif each["action"] == "free_requested":
            alive.pop(each["addr"], {})["freed"] = place
            in_use -= each["size"]
        if in_use > most:
            most, held, at = in_use, list(alive.values()), place
    backward = next(i for i, each in enumerate(trace) if i > at and not each["frames"])
    (device,) = memory_numbers(read_profile(file).memory)
    sizes = {share.name: share.nbytes for share in device.content.categories}
    assert sizes["activations"] == sum(each["size"] for each in held if each.get("freed", backward) >= backward)
    assert sizes["temporaries"] == sum(each["size"] for each in held if each.get("freed", backward) < backward)
    assert round(sizes["activations"] / 1e9, 2) == 12.22
