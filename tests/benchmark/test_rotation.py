"""Copies of a call's inputs: their number from the cache's size, by hand, and that they are like their originals."""

import pytest

torch = pytest.importorskip("torch")

from pyprof.benchmark.rotation import copied, copies_needed, is_cold, storage_bytes  # noqa: E402
from pyprof.rerun.random_tensors import random_tensor, span, strides_of  # noqa: E402

pytestmark = pytest.mark.torch
MIB = 1 << 20
H200_CACHE = 60 * MIB  # as torch reports it

COPIES = [  # bytes of inputs and results, cache, free memory, copies
    (2 * MIB, H200_CACHE, 100 << 30, 90),  # 3 * 60 / 2
    (7 * MIB, H200_CACHE, 100 << 30, 26),  # 180 / 7 = 25.7
    (180 * MIB, H200_CACHE, 100 << 30, 1),
    (1 << 30, H200_CACHE, 100 << 30, 1),
    (1024, H200_CACHE, 100 << 30, 2048),  # 184,320 would be needed: the most
    (2 * MIB, H200_CACHE, 40 * MIB, 10),  # half of the free memory
    (2 * MIB, H200_CACHE, 1 * MIB, 1),
    (0, H200_CACHE, 100 << 30, 1),
]


@pytest.mark.parametrize(("nbytes", "cache", "free", "copies"), COPIES)
def test_the_number_of_copies(nbytes, cache, free, copies):
    assert copies_needed(nbytes, cache, free) == copies


def test_what_a_forward_pass_keeps_for_its_backward_takes_memory_too():
    assert copies_needed(2 * MIB, H200_CACHE, 400 * MIB, 8.0 * MIB) == 20  # 200 / (2 + 8)
    assert copies_needed(2 * MIB, H200_CACHE, 400 * MIB, float("nan")) == 90  # unknown, as if there were none


def test_cold_means_three_times_the_cache():
    assert is_cold(90, 2 * MIB, H200_CACHE)
    assert not is_cold(89, 2 * MIB, H200_CACHE)
    assert not is_cold(2048, 1024, H200_CACHE)


def test_the_elements_between_the_first_and_the_last():
    assert span((4, 1024, 12, 64), (786432, 64, 65536, 1)) == 1 + 3 * 786432 + 1023 * 64 + 11 * 65536 + 63 == 3145728
    assert span((4, 1, 1), (0, 0, 0)) == 1


def test_bytes_of_inputs_count_shared_memory_once():
    x = torch.zeros(10, 10)
    assert storage_bytes((x, x.t(), [torch.zeros(3)])) == 400 + 12
    assert storage_bytes(torch.zeros(1, 1).expand(5, 5)) == 4
    assert storage_bytes({"net": torch.nn.Linear(3, 2)}) == (6 + 2) * 4


FORMS = [
    ((4, 6), (6, 1), 0),
    ((6, 4), (1, 6), 0),
    ((4, 6), (0, 1), 0),
    ((2, 3, 4, 4), (48, 1, 12, 3), 0),
    ((4, 6), (8, 1), 5),  # begins 20 bytes behind an aligned address
    ((0, 3), (3, 1), 0),
    ((), (), 0),
]


@pytest.mark.parametrize(("shape", "strides", "offset"), FORMS)
def test_a_copy_is_like_its_original(shape, strides, offset):
    memory = torch.randn(offset + span(shape, strides))
    original = torch.as_strided(memory, shape, strides, offset)
    copy = copied(original)
    assert (copy.shape, copy.stride(), copy.dtype) == (original.shape, original.stride(), original.dtype)
    assert torch.equal(copy, original)
    if copy.numel():
        assert copy.data_ptr() != original.data_ptr()


def test_a_copy_keeps_what_its_address_is_a_multiple_of():
    memory = torch.randn(64 + 64)
    begin = (-memory.data_ptr() % 256) // 4  # elements up to a multiple of 256 bytes
    for skipped in (0, 1, 3):
        original = memory[begin + skipped : begin + skipped + 8]
        # torch's own memory on a CPU begins at multiples of 64 bytes
        assert copied(original).data_ptr() % 64 == original.data_ptr() % 64 == 4 * skipped


EYE = torch.eye(4)  # float32
ROWS = [EYE, EYE[:2]]
WITHOUT_STRIDES = [  # bytes: of the values, and of the indices or offsets in int64
    (EYE.to_sparse, 4 * 4 + 8 * 2 * 4),  # a row and a column each
    (EYE.to_sparse_csr, 4 * 4 + 8 * 4 + 8 * 5),  # columns; where the rows begin, and the end
    (EYE.to_sparse_csc, 4 * 4 + 8 * 4 + 8 * 5),
    (lambda: torch.nested.nested_tensor(ROWS), 4 * 4 * 6),
    (lambda: torch.nested.nested_tensor(ROWS, layout=torch.jagged), 4 * 4 * 6 + 8 * 3),
]


@pytest.mark.filterwarnings("ignore:.*(Sparse|Nested|nested tensors)")
@pytest.mark.parametrize(("make", "nbytes"), WITHOUT_STRIDES)
def test_sparse_and_nested_tensors_are_counted_and_copied(make, nbytes):
    tensor = make()
    assert storage_bytes([tensor, tensor]) == nbytes
    found = copied(tensor)
    assert (type(found), found.layout, found.is_nested) == (type(tensor), tensor.layout, tensor.is_nested)
    values = [each.values() if each.is_nested else each.to_dense() for each in (found, tensor)]
    assert torch.equal(*values) and values[0].data_ptr() != values[1].data_ptr()


def test_copies_of_nested_arguments():
    weight = torch.nn.Parameter(torch.randn(3))
    net = torch.nn.Linear(2, 2)
    again, twice, other, layer, number = copied((weight, [weight], {"x": torch.ones(2)}, net, 7))
    assert again is twice[0] and again is not weight and again.requires_grad and again.is_leaf
    assert torch.equal(other["x"], torch.ones(2)) and number == 7
    assert layer is not net and torch.equal(layer.weight, net.weight) and layer.weight is not net.weight


# rand

LAYOUTS = [
    ((4, 6), "row", (6, 1)),
    ((4, 6), "column", (1, 4)),
    ((2, 4, 6), "column", (24, 1, 4)),
    ((7,), "column", (1,)),
    ((2, 3, 5, 7), "channels_last", (105, 1, 21, 3)),
    ((2, 3, 4, 5, 7), "channels_last", (420, 1, 105, 21, 3)),
    ((4, 6), "channels_last", (6, 1)),  # only of four or five dimensions
]


@pytest.mark.parametrize(("shape", "layout", "strides"), LAYOUTS)
def test_layouts(shape, layout, strides):
    assert strides_of(shape, layout) == strides
    tensor = random_tensor(*shape, dtype=torch.bfloat16, layout=layout, align=256, device=torch.device("cpu"))
    assert (tuple(tensor.shape), tensor.stride(), tensor.dtype) == (shape, strides, torch.bfloat16)
    if layout == "channels_last" and len(shape) == 4:
        assert tensor.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("align", [2, 4, 8, 16, 32])
def test_alignments(align):
    tensor = random_tensor(8, 8, dtype=torch.float16, layout="row", align=align, device=torch.device("cpu"))
    assert tensor.data_ptr() % 64 == align  # so not a multiple of twice as much


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.uint8, torch.bool])
def test_numbers_are_random(dtype):
    tensor = random_tensor(4096, dtype=dtype, layout="row", align=256, device=torch.device("cpu"))
    assert len(tensor.unique()) >= (2 if dtype == torch.bool else 100)
