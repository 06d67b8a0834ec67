"""What pairs launches with kernels on ROCm, where ids are fewer or less true than on CUDA."""

import pytest

from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.work.annotate import annotate
from tests.parse.kineto.kineto_file import MAIN, begin, op, write, x

MM = "Cijk_Ailk_Bljk_BBS_BH"
SHARED = "several kernels have the correlation id of a call that launched one kernel"


def launch(ts, name="hipExtModuleLaunchKernel", tid=MAIN, **ids):
    return x("cuda_runtime", name, ts, 4, tid, **ids)


def ran(ts, dur, name=MM, **ids):
    return x("kernel", name, ts, dur, tid=0, pid=2, device=2, stream=0, **ids)


def external(number):
    return {"External_id": number}


def ops_and_rows(path):
    table = correlate(read(path))
    return table, table.coded("aten").texts()


def test_launches_and_kernels_pair_by_external_ids_alone(tmp_path):
    path = write(
        tmp_path / "net.json", begin(1000),
        op("aten::mm", 1010, 20, External_id=1025), op("aten::relu", 1040, 20, External_id=1026),
        launch(1012, "hipGetDevicePropertiesR0600", **external(57)), launch(1015, **external(58)),
        launch(1045, "hipLaunchKernel", **external(60)), launch(1070, "hipDeviceSynchronize", **external(61)),
        ran(1100, 10, **external(58)), ran(1120, 5, "relu", **external(60)),
    )  # fmt: skip
    capture = read(path)
    table = correlate(capture)
    assert table.coded("aten").texts() == ["aten::mm", "aten::relu"]
    assert table.ints("apiStart").tolist() == [15_000, 45_000]  # ns since the capture began at 1000 us
    assert table.ints("corr").tolist() == [58, 60]
    assert capture.losses == []


def test_ids_of_kernels_that_coincide_with_numbers_of_ops_name_no_op(tmp_path):
    # The ids of launches have reached the ops' numbers: 1026 is both the first launch and the second op.
    path = write(
        tmp_path / "net.json", begin(1000),
        op("aten::mm", 1010, 20, External_id=1025), op("aten::relu", 1040, 20, External_id=1026),
        launch(1015, **external(1026)), launch(1045, **external(1027)),
        ran(1100, 10, **external(1026)), ran(1120, 5, "relu", **external(1027)), ran(1130, 5, "relu", **external(1025)),
    )  # fmt: skip
    table, aten = ops_and_rows(path)
    assert aten == ["aten::mm", "aten::relu", ""]
    assert table.coded("reason").texts()[2] == "launched before the capture"  # 1025 is below the calls' ids


def test_external_ids_that_several_calls_have_are_numbers_of_ops(tmp_path):
    path = write(
        tmp_path / "net.json", begin(1000), op("aten::mm", 1010, 20, External_id=7),
        launch(1012, "hipMemcpyAsync", **external(7)), launch(1015, **external(7)), ran(1100, 10, **external(7)),
    )  # fmt: skip
    table, aten = ops_and_rows(path)
    assert aten == ["aten::mm"]  # the row's own id names the op, though no call is the row's
    assert table.ints("apiStart").tolist() == [-(2**63)]


def test_kernels_with_one_calls_id_get_no_op(tmp_path):
    path = write(
        tmp_path / "net.json", begin(1000), op("aten::mm", 1010, 20, External_id=7),
        launch(1015, "hipLaunchKernel", correlation=5, External_id=7),
        launch(1060, "hipLaunchKernel", correlation=6), launch(1070, "hipDeviceSynchronize", correlation=7),
        ran(1100, 10, correlation=5, External_id=7), ran(1120, 5, "other", correlation=5, External_id=7),
    )  # fmt: skip
    capture = read(path)
    table = correlate(capture)
    assert table.coded("aten").texts() == ["", ""]
    assert table.coded("reason").texts() == [SHARED] * 2
    assert capture.losses == []  # the second launch's kernel is one of these


@pytest.mark.parametrize("key", ["kernel", "Kernel"])
def test_of_kernels_with_one_calls_id_the_one_that_the_call_names_is_its_own(tmp_path, key):
    path = write(
        tmp_path / "net.json", begin(1000), op("aten::mm", 1010, 20, External_id=7),
        launch(1015, "hipExtModuleLaunchKernel", correlation=5, External_id=7, **{key: MM}),
        ran(1100, 10, correlation=5, External_id=7), ran(1120, 5, "other", correlation=5, External_id=7),
    )  # fmt: skip
    table, aten = ops_and_rows(path)
    assert aten == ["aten::mm", ""]
    assert table.coded("reason").texts()[1] == SHARED


@pytest.mark.parametrize("name", ["hipGraphLaunch", "hipMemcpyWithStream", "hipExtLaunchMultiKernelMultiDevice"])
def test_calls_that_run_several_kernels_give_them_their_op(tmp_path, name):
    path = write(
        tmp_path / "net.json", begin(1000), op("aten::copy_", 1010, 20, External_id=7),
        launch(1015, name, correlation=5), ran(1100, 10, correlation=5), ran(1120, 5, "other", correlation=5),
    )  # fmt: skip
    assert set(ops_and_rows(path)[1]) == {"aten::copy_"}


def test_a_public_recording_of_products_pairs_by_external_ids(data):
    """Ten products of (1025, 8192) and (8192, 1025): 2 * 1025 * 8192 * 1025 = 17,213,440,000 flop each."""
    table, aten = ops_and_rows(data / "round3" / "mi300x_gemm_external_ids.json.gz")
    assert aten == ["aten::mm"] * 10
    assert annotate(table).flops.tolist() == [17_213_440_000] * 10
