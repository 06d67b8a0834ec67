"""What captures say of their GPUs, in one spelling."""

import json
import sqlite3

import pytest

from pyprof.parse.databases.database import database
from pyprof.parse.formats.gpu_info import database_infos, info_text, kineto_info
from pyprof.parse.formats.nvprof import DEVICE_UNITS, DEVICES
from pyprof.parse.kineto.reader import read as read_kineto
from pyprof.parse.nsys.reader import read as read_nsys
from pyprof.parse.nsys.tables import GPUS
from pyprof.parse.tables.correlate import correlate
from tests.parse.kineto import kineto_file
from tests.parse.nsys import nsys_file


def test_only_positive_integers_are_facts():
    facts = [("smCount", 132), ("clockRate", 0), ("computeMajor", 9), ("computeMinor", 0), ("name", "x"), ("a", None)]
    assert info_text(facts) == '{"smCount":132,"computeMajor":9,"computeMinor":0}'
    assert info_text([("computeMinor", 0), ("smCount", True), ("clockRate", -1), ("totalMemory", 1.5)]) == ""


H200 = {
    "id": 0,
    "name": "NVIDIA H200",
    "totalGlobalMem": 150109880320,
    "computeMajor": 9,
    "computeMinor": 0,
    "warpSize": 32,
    "numSms": 132,
    "sharedMemPerMultiprocessor": 233472,
}
FACTS = {"smCount": 132, "computeMajor": 9, "computeMinor": 0, "totalMemory": 150109880320, "threadsPerWarp": 32}


def test_kinetos_device_properties():
    assert json.loads(kineto_info(H200)) == FACTS
    assert kineto_info({"name": "a GPU", "numSms": "132"}) == ""


def test_a_kineto_traces_rows_have_their_gpus_facts(tmp_path):
    other = {**H200, "id": 1, "numSms": 114}
    path = kineto_file.write(
        tmp_path / "net.json",
        kineto_file.kernel(100, 5, 1, device=0),
        kineto_file.kernel(200, 5, 2, device=1),
        kineto_file.kernel(300, 5, 3, device=2),
        deviceProperties=[H200, other, "nonsense"],
    )
    infos = correlate(read_kineto(path)).coded("gpuInfo").texts()
    assert [json.loads(text)["smCount"] if text else None for text in infos] == [132, 114, None]


def nsys_database(tmp_path):
    file = nsys_file.write(
        tmp_path / "net.sqlite",
        **{
            nsys_file.KERNEL: [nsys_file.kernel(100, 1, pid=7), nsys_file.kernel(110, 1, pid=8)],
            nsys_file.API: [nsys_file.call(90, 1, pid=7), nsys_file.call(91, 1, pid=8)],
            "TARGET_INFO_GPU": [(0, 1, "B", 9), (1, 0, "A", 9)],
            "TARGET_INFO_CUDA_DEVICE": [(8, 0, 0)],
        },
    )
    with sqlite3.connect(file) as connection:
        for column in ("smCount", "clockRate", "uuid", "busLocation"):
            connection.execute(f"ALTER TABLE TARGET_INFO_GPU ADD COLUMN {column}")
        connection.execute("UPDATE TARGET_INFO_GPU SET smCount = 100 + id, clockRate = 1980000000, uuid = 'secret'")
        connection.execute("UPDATE TARGET_INFO_GPU SET clockRate = NULL WHERE id = 1")
    connection.close()
    return file


def test_an_nsys_exports_rows_have_their_gpus_facts_and_no_more(tmp_path):
    file = nsys_database(tmp_path)
    with database(file) as db:
        assert database_infos(db, GPUS) == {
            0: '{"smCount":100,"clockRate":1980000000,"computeMajor":9}',
            1: '{"smCount":101,"computeMajor":9}',
        }
    infos = correlate(read_nsys(file)).coded("gpuInfo").texts()
    assert [json.loads(text)["smCount"] for text in infos] == [101, 100]  # by CUDA's number, not by id
    assert "secret" not in "".join(infos)


def test_an_export_that_names_its_gpus_and_no_more(tmp_path):
    file = tmp_path / "net.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE TARGET_INFO_GPU (id, name)")
        connection.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3')")
    connection.close()
    with database(file) as db:
        assert database_infos(db, GPUS) == {}


@pytest.mark.parametrize("columns", ["id, numMultiprocessors, coreClockRate, globalMemoryBandwidth", "id"])
def test_nvprofs_units(tmp_path, columns):
    file = tmp_path / "net.sql"
    with sqlite3.connect(file) as connection:
        connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_DEVICE ({columns})")
        values = ", ".join(str(v) for v in (0, 80, 1530000, 898048000)[: columns.count(",") + 1])
        connection.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_DEVICE VALUES ({values})")
    connection.close()
    with database(file) as db:
        found = database_infos(db, DEVICES, DEVICE_UNITS)
    wanted = '{"smCount":80,"clockRate":1530000000,"memoryBandwidth":898048000000}'
    assert found == ({0: wanted} if "," in columns else {})
