"""Devices by name, by what a capture says, and from a peaks file."""

import json
import math

import pytest

from pyprof.errors import InputError
from pyprof.prof.kernels.precision import UNITS
from pyprof.prof.limits.architectures import RATES, SM_LIMITS
from pyprof.prof.limits.devices import find_device, parts, plain_name
from pyprof.prof.limits.peaks_file import load_peaks, with_peaks

# Names as nsys, nvprof, torch and Kineto spell them in captures, or as drivers do: part, a unit's dense TFLOP/s, GB/s
NAMES = [
    ("Tesla V100-SXM2-16GB", "V100-SXM2", "tc_fp16", 125, 900),
    ("Tesla V100-SXM2-32GB", "V100-SXM2", "tc_fp16", 125, 900),
    ("Tesla V100-PCIE-32GB", "V100-PCIe", "tc_fp16", 112, 900),
    ("Tesla V100S-PCIE-32GB", "V100S-PCIe", "tc_fp16", 130, 1134),
    ("Tesla T4", "T4", "tc_fp16", 65, 320),
    ("NVIDIA A100-PCIE-40GB", "A100-40GB-PCIe", "tc_bf16", 312, 1555),
    ("A100-SXM4-40GB", "A100-40GB-SXM4", "tc_bf16", 312, 1555),
    ("NVIDIA A100-PG509-200", "A100-40GB-SXM4", "tc_bf16", 312, 1555),
    ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe", "tc_bf16", 312, 1935),
    ("NVIDIA A100-SXM4-80GB", "A100-80GB-SXM4", "tc_bf16", 312, 2039),
    ("NVIDIA A800-SXM4-80GB", "A100-80GB-SXM4", "tc_bf16", 312, 2039),
    ("NVIDIA A10", "A10", "tc_bf16", 125, 600),
    ("NVIDIA A30", "A30", "tc_bf16", 165, 933),
    ("NVIDIA A40", "A40", "tc_bf16", 149.7, 696),
    ("NVIDIA L4", "L4", "tc_bf16", 121, 300),  # not 242, not 3350 GB/s
    ("NVIDIA L40", "L40", "tc_bf16", 181.05, 864),
    ("NVIDIA L40S", "L40S", "tc_bf16", 362.05, 864),
    ("NVIDIA GeForce RTX 3090", "RTX 3090", "tc_bf16", 71, 936),
    ("NVIDIA GeForce RTX 4090", "RTX 4090", "tc_bf16", 165.2, 1008),
    ("NVIDIA GeForce RTX 5090", "RTX 5090", "tc_bf16", 209.5, 1792),
    ("NVIDIA H100 PCIe", "H100-PCIe", "tc_bf16", 756, 2000),
    ("NVIDIA H100 80GB HBM3", "H100-SXM5", "tc_bf16", 989.4, 3350),
    ("NVIDIA H100 NVL", "H100-NVL", "tc_bf16", 835.5, 3938),
    ("NVIDIA H800", "H800-SXM5", "tc_bf16", 989.4, 3350),
    ("NVIDIA H200", "H200-SXM", "tc_bf16", 989.4, 4800),
    ("NVIDIA H200 NVL", "H200-NVL", "tc_bf16", 835.5, 4800),
    ("NVIDIA H20", "H20", "tc_bf16", 148, 4000),
    ("NVIDIA GH200 480GB", "GH200-96GB", "tc_bf16", 989.4, 4000),
    ("NVIDIA GH200 144G HBM3e", "GH200-144GB", "tc_bf16", 989.4, 4900),
    ("NVIDIA B200", "B200", "tc_bf16", 2250, 7700),
    ("NVIDIA GB200", "GB200", "tc_bf16", 2500, 8000),
    ("NVIDIA B300 SXM6 AC", "B300", "tc_bf16", 2250, 7700),
    ("AMD Instinct MI250X", "MI250X", "tc_bf16", 191.5, 1638.4),  # one of the package's two dies
    ("AMD Instinct MI300X", "MI300X", "tc_bf16", 1307.4, 5300),
    ("AMD Instinct MI300X VF", "MI300X", "tc_bf16", 1307.4, 5300),
    ("AMD Instinct MI325X", "MI325X", "tc_bf16", 1307.4, 6000),
    ("AMD Instinct MI355X", "MI355X", "tc_bf16", 2516.6, 8000),
]


@pytest.mark.parametrize(("name", "part", "unit", "tflops", "gbps"), NAMES)
def test_a_name_finds_its_part(name, part, unit, tflops, gbps):
    device = find_device(name)
    assert device is not None
    assert (device.name, device.part) == (name, part)
    assert device.peak(unit) == pytest.approx(tflops * 1e12)
    assert device.bandwidth == pytest.approx(gbps * 1e9)
    assert device.source


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA A10G",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "AMD Radeon Graphics",
        "Intel(R) Iris(R) Xe Graphics",
    ],
)
def test_a_near_name_is_another_part(name):
    assert find_device(name) is None


def test_every_row_has_a_source_and_no_name_fits_two_rows():
    for _, device in parts():
        assert device.source, device.name
        assert device.flop_per_s.keys() <= set(UNITS)
        assert all(value > 0 for value in device.flop_per_s.values())
    for name, *_ in NAMES:
        assert sum(pattern.fullmatch(plain_name(name)) is not None for pattern, _ in parts()) == 1, name


# part, SMs, MHz at which its data sheet counts the tensor cores
CLOCKS = [
    ("V100-SXM2", 80, 1530),
    ("T4", 40, 1590),
    ("A100-80GB-SXM4", 108, 1410),
    ("A10", 72, 1695),
    ("A40", 84, 1740),
    ("L4", 58, 2040),
    ("L40S", 142, 2520),
    ("H100-SXM5", 132, 1830),
    ("H100-PCIe", 114, 1620),
    ("B200", 148, 1860),
]


@pytest.mark.parametrize(("name", "sms", "mhz"), CLOCKS)
def test_rates_times_clock_give_the_data_sheets_figures(name, sms, mhz):
    device = next(device for _, device in parts() if device.name == name)
    assert device.sms == sms
    for unit, rate in RATES[device.arch].items():
        if unit in ("tc_fp16", "tc_bf16", "tc_tf32", "tc_int8", "tc_fp8"):
            assert rate * sms * mhz * 1e6 == pytest.approx(device.peak(unit), rel=0.02), unit


LAPTOP = {
    "smCount": 76,
    "clockRate": 1680000000,
    "memoryBandwidth": 576064000000,
    "computeMajor": 8,
    "computeMinor": 9,
    "l2CacheSize": 67108864,
    "threadsPerWarp": 32,
}


def test_an_unlisted_gpu_by_compute_capability_sms_and_clock():
    device = find_device("NVIDIA RTX 5000 Ada Generation Laptop GPU", LAPTOP)
    assert (device.arch, device.sms, device.l2_bytes) == ("sm_89", 76, 67108864)
    assert device.peak("tc_bf16") == 1024 * 76 * 1680e6  # 130.7 TFLOP/s
    assert device.peak("fp32") == 256 * 76 * 1680e6
    assert device.bandwidth == 576064000000
    assert device.limits == SM_LIMITS["sm_89"]
    assert "as the capture records them" in device.source


def test_geforce_accumulates_in_fp32_at_half_the_rate():
    info = {"smCount": 60, "clockRate": 2745000000, "computeMajor": 8, "computeMinor": 9}
    device = find_device("NVIDIA GeForce RTX 4070 Ti", info)
    assert device.peak("tc_bf16") == 512 * 60 * 2745e6
    assert device.peak("tc_int8") == 2048 * 60 * 2745e6


def test_titan_rtx_does_not():
    info = {"smCount": 72, "clockRate": 1770000000, "computeMajor": 7, "computeMinor": 5}
    device = find_device("NVIDIA TITAN RTX", info)
    assert device.peak("tc_fp16") == pytest.approx(130.5e12, rel=1e-3)  # its data sheet
    assert math.isnan(device.bandwidth)
    assert not device.known


def test_without_a_clock_only_the_limits_are_known():
    device = find_device("NVIDIA GeForce RTX 2080 Ti", {"smCount": 68, "computeMajor": 7, "computeMinor": 5})
    assert device.flop_per_s == {}
    assert device.limits.warps == 32
    assert math.isnan(device.peak("fp32"))


def test_amds_compute_capability_is_not_nvidias():
    info = {"smCount": 104, "computeMajor": 9, "computeMinor": 0, "threadsPerWarp": 64}  # an MI250, not an H100
    device = find_device("AMD Radeon Graphics", info)
    assert (device.arch, device.sms, device.limits) == ("", 104, None)


def test_the_captures_cache_and_sms_win():
    device = find_device("NVIDIA H200", '{"smCount":132,"l2CacheSize":62914560,"memoryBandwidth":4814304000000}')
    assert device.l2_bytes == 62914560
    assert device.bandwidth == 4.8e12  # the data sheet's, as for every other H200


def test_a_slice_of_a_gpu_has_its_share():
    device = find_device("NVIDIA A100-SXM4-40GB MIG 3g.20gb", {"smCount": 42, "computeMajor": 8, "computeMinor": 0})
    assert device.sms == 42
    assert device.peak("tc_bf16") == pytest.approx(312e12 * 42 / 108)
    assert device.bandwidth == pytest.approx(1555e9 * 42 / 108)
    assert device.source.startswith("42 of 108 SMs of A100-40GB-SXM4")


STRANGE = [
    "",
    "[]",
    "nonsense",
    "null",
    '{"smCount":-1}',
    '{"smCount":"132"}',
    '{"smCount":true}',
    '{"smCount":1e999}',
    '{"computeMajor":9,"computeMinor":"0"}',
    f'{{"smCount":{10**400}}}',
]


@pytest.mark.parametrize("info", STRANGE)
def test_strange_facts_are_none(info):
    assert find_device("an unknown GPU", info) is None


# Peaks files


def peaks_file(tmp_path, **changes):
    data = {"format": "pyprof peaks", "device": "NVIDIA H200", "flop_per_s": {"tc_bf16": 8.11e14}}
    file = tmp_path / "peaks.json"
    file.write_text(json.dumps({**data, "byte_per_s": 4.25e12, **changes}))
    return file


def test_a_peaks_file_replaces_what_it_has(tmp_path):
    peaks = load_peaks(peaks_file(tmp_path))
    device = with_peaks(find_device("NVIDIA H200"), peaks)
    assert device.peak("tc_bf16") == 8.11e14
    assert device.peak("tc_fp8") == pytest.approx(1978.9e12)
    assert device.bandwidth == 4.25e12
    assert "measured on NVIDIA H200" in device.source
    assert "H200 datasheet" in device.source


def test_a_peaks_file_for_a_gpu_that_is_not_known(tmp_path):
    device = with_peaks(None, load_peaks(peaks_file(tmp_path, arch="sm_90")), "a GPU")
    assert (device.name, device.peak("tc_bf16"), device.limits) == ("a GPU", 8.11e14, SM_LIMITS["sm_90"])


WRONG = [
    ({"format": "other"}, 'expected an object with "format": "pyprof peaks"'),
    ({"flop_per_s": {"bf16_tensor": 1e12}}, "flop_per_s: no unit 'bf16_tensor' (the units are fp64, fp32"),
    ({"flop_per_s": {"tc_bf16": "fast"}}, "flop_per_s: tc_bf16: expected FLOP/s, a positive number, found fast"),
    ({"flop_per_s": {"tc_bf16": -1}}, "expected FLOP/s, a positive number, found -1"),
    ({"flop_per_s": {"tc_bf16": True}}, "expected FLOP/s, a positive number, found True"),
    ({"flop_per_s": [1]}, "flop_per_s: expected an object of unit: FLOP/s, found [1]"),
    ({"byte_per_s": 0}, "byte_per_s: expected bytes/s, a positive number, found 0"),
    ({"device": 7}, "device: expected a text, found 7"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_a_wrong_peaks_file_says_what_is_wrong(tmp_path, changes, message):
    file = peaks_file(tmp_path, **changes)
    with pytest.raises(InputError) as raised:
        load_peaks(file)
    assert str(raised.value).startswith(f"{file}: ")
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["", "[1, 2", "nonsense", "\x00", "[" * 100000])
def test_what_is_no_json(tmp_path, text):
    file = tmp_path / "peaks.json"
    file.write_text(text)
    with pytest.raises(InputError, match="expected JSON as pyprof peaks writes it"):
        load_peaks(file)


def test_empty_and_missing_peaks(tmp_path):
    file = tmp_path / "peaks.json"
    file.write_text('{"format": "pyprof peaks"}')
    with pytest.raises(InputError, match="expected flop_per_s or byte_per_s, found neither"):
        load_peaks(file)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_peaks(tmp_path / "missing.json")
