"""Devices by name, by what a capture says, and from a peaks file."""

import json
import math
import re

import pytest

from pyprof.errors import InputError
from pyprof.prof.kernels.precision import UNITS
from pyprof.prof.limits.architectures import RATES, SM_LIMITS
from pyprof.prof.limits.devices import find_device, fits, parts, plain_name
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
        "NVIDIA GeForce RTX 4090 Mobile",
        "NVIDIA GeForce RTX 4090 D v2",
        "NVIDIA RTX 4000",
        "NVIDIA RTX 6000",
        "NVIDIA A100-SXM-65GB",
        "NVIDIA H101",
        "NVIDIA L400",
        "AMD Instinct MI100",
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
        assert sum(re.fullmatch(pattern, plain_name(name)) is not None for pattern, _ in parts()) == 1, name


def test_no_pattern_is_passed_over_that_fits():
    for name, *_ in NAMES:
        plain = plain_name(name)
        fitting = [pattern for pattern, _ in parts() if re.fullmatch(pattern, plain)]
        assert [pattern for pattern, _ in parts() if fits(pattern, plain)] == fitting, name
    assert fits("sxm5?( 80gb)?", "sxm")
    assert fits("a[18]00 pcie|a800 40gb active", "a100 pcie")
    assert not fits("h100( sxm5?)?|h100 pcie", "h200 pcie")


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
    device = find_device("NVIDIA GeForce RTX 4070 Engineering Sample", info)
    assert device.peak("tc_bf16") == 512 * 60 * 2745e6
    assert device.peak("tc_int8") == 2048 * 60 * 2745e6


def test_titan_rtx_does_not():
    device = find_device("NVIDIA TITAN RTX", {"smCount": 72, "computeMajor": 7, "computeMinor": 5})
    assert device.peak("tc_fp16") == pytest.approx(130.5e12, rel=1e-3)  # its data sheet


def test_without_a_clock_only_the_limits_are_known():
    device = find_device("NVIDIA GeForce RTX 4999", {"smCount": 68, "computeMajor": 7, "computeMinor": 5})
    assert device.flop_per_s == {}
    assert device.limits.warps == 32
    assert math.isnan(device.peak("fp32"))


# Names as drivers spell them -> part, SMs, fp32 TFLOP/s and GB/s as its data sheet prints them
DATA_SHEETS = [
    ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti", 68, 13.4, 616),
    ("Quadro RTX 6000", "Quadro RTX 6000", 72, 16.3, 672),
    ("Quadro RTX 8000", "Quadro RTX 8000", 72, 16.3, 672),
    ("NVIDIA T1000 8GB", "T1000", 14, 2.5, 160),
    ("NVIDIA GeForce RTX 3060 Ti", "RTX 3060 Ti", 38, 16.2, None),  # GDDR6 or GDDR6X
    ("NVIDIA GeForce RTX 3070", "RTX 3070", 46, 20.3, 448),
    ("NVIDIA GeForce RTX 3080 Ti", "RTX 3080 Ti", 80, 34.1, 912),
    ("NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti", 84, 40.0, 1008),
    ("NVIDIA RTX A2000 12GB", "RTX A2000", 26, 8.0, 288),
    ("NVIDIA RTX A4000", "RTX A4000", 48, 19.2, 448),
    ("NVIDIA RTX A5000", "RTX A5000", 64, 27.8, 768),
    ("NVIDIA RTX A6000", "RTX A6000", 84, 38.7, 768),
    ("NVIDIA A2", "A2", 10, 4.5, 200),
    ("NVIDIA A10G", "A10G", 80, 35.0, 600),
    ("NVIDIA GeForce RTX 4060", "RTX 4060", 24, 15.1, 272),
    ("NVIDIA GeForce RTX 4080", "RTX 4080", 76, 48.7, 716.8),
    ("NVIDIA RTX 4000 Ada Generation", "RTX 4000 Ada", 48, 26.7, 360),
    ("NVIDIA RTX 4000 SFF Ada Generation", "RTX 4000 SFF Ada", 48, 19.2, 280),
    ("NVIDIA RTX 5880 Ada Generation", "RTX 5880 Ada", 110, 69.3, 960),
    ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 142, 91.1, 960),
    ("NVIDIA GeForce RTX 5080", "RTX 5080", 84, 56.3, 960),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell Max-Q", 188, 110, 1792),
    ("NVIDIA H800 PCIe", "H800-PCIe", 114, 51, 2000),
    ("AMD Instinct MI210", "MI210", 104, 22.6, 1638.4),
    ("AMD Instinct MI300A", "MI300A", 228, 122.6, 5300),
]


@pytest.mark.parametrize(("name", "part", "sms", "tflops", "gbps"), DATA_SHEETS)
def test_a_parts_sms_and_boost_clock_give_its_data_sheets_fp32(name, part, sms, tflops, gbps):
    device = find_device(name)
    assert (device.part, device.sms) == (part, sms)
    assert device.peak("fp32") == pytest.approx(tflops * 1e12, rel=0.01)
    assert device.byte_per_s == (None if gbps is None else pytest.approx(gbps * 1e9))


# "AI TOPS" as NVIDIA prints them, with sparsity, so twice the dense rate: int8 up to Ada, fp4 from Blackwell on
AI_TOPS = [
    ("RTX 4060", "tc_int8", 242),
    ("RTX 4060 Ti", "tc_int8", 353),
    ("RTX 4070", "tc_int8", 466),
    ("RTX 4070 SUPER", "tc_int8", 568),
    ("RTX 4070 Ti", "tc_int8", 641),
    ("RTX 4070 Ti SUPER", "tc_int8", 706),
    ("RTX 4080", "tc_int8", 780),
    ("RTX 4080 SUPER", "tc_int8", 836),
    ("RTX 5050", "tc_fp4", 421),
    ("RTX 5060", "tc_fp4", 614),
    ("RTX 5060 Ti", "tc_fp4", 759),
    ("RTX 5070", "tc_fp4", 988),
    ("RTX 5070 Ti", "tc_fp4", 1406),
    ("RTX 5080", "tc_fp4", 1801),
    ("RTX 5090", "tc_fp4", 3352),
    ("RTX PRO 6000 Blackwell Max-Q", "tc_fp4", 3511),
]


@pytest.mark.parametrize(("part", "unit", "tops"), AI_TOPS)
def test_tensor_cores_give_half_of_the_printed_ai_tops(part, unit, tops):
    device = next(device for _, device in parts() if device.name == part)
    assert device.peak(unit) == pytest.approx(tops * 1e12 / 2, rel=0.005)


def test_geforce_16_has_no_tensor_cores():
    device = find_device("NVIDIA GeForce GTX 1660 Ti")
    assert not any(unit.startswith("tc_") for unit in device.flop_per_s)
    assert device.peak("fp16") == pytest.approx(10.9e12, rel=0.01)  # twice the 5.4 TFLOP/s of fp32: white paper


def memory(gib: float) -> int:
    return int(gib * 2**30)


# Variants that share a name: the capture's SMs and memory tell them apart
VARIANTS = [
    ("NVIDIA GeForce RTX 3080", 68, 9.8, "RTX 3080 10GB", 760),
    ("NVIDIA GeForce RTX 3080", 70, 11.8, "RTX 3080 12GB", 912),
    ("NVIDIA GeForce RTX 3060", 28, 11.8, "RTX 3060 12GB", 360),
    ("NVIDIA GeForce RTX 3060", 28, 7.8, "RTX 3060 8GB", 240),
    ("NVIDIA GeForce RTX 3050", 18, 5.8, "RTX 3050 6GB", 168),
    ("NVIDIA GeForce RTX 2060", 34, 11.8, "RTX 2060 12GB", 336),
]


@pytest.mark.parametrize(("name", "sms", "gib", "part", "gbps"), VARIANTS)
def test_variants_of_one_name_are_told_apart_by_figures(name, sms, gib, part, gbps):
    device = find_device(name, {"smCount": sms, "totalMemory": memory(gib)})
    assert (device.part, device.byte_per_s) == (part, gbps * 1e9)


def test_of_variants_that_nothing_tells_apart_only_common_figures_are_known():
    device = find_device("NVIDIA GeForce RTX 3060")
    assert device.part == "RTX 3060 12GB or RTX 3060 8GB"
    assert device.peak("fp32") == pytest.approx(12.7e12, rel=0.01)
    assert device.byte_per_s is None and not device.known
    assert math.isnan(find_device("NVIDIA GeForce RTX 3080").peak("fp32"))


@pytest.mark.parametrize("name", ["AMD Instinct MI250X/MI250", "AMD Instinct MI250X / MI250"])
@pytest.mark.parametrize(("sms", "part", "tflops"), [(104, "MI250", 181), (110, "MI250X", 191.5)])
def test_rocms_name_of_both_mi250(name, sms, part, tflops):
    device = find_device(name, {"smCount": sms, "threadsPerWarp": 64, "computeMajor": 9, "computeMinor": 0})
    assert (device.part, device.peak("tc_bf16")) == (part, tflops * 1e12)


LAPTOPS = [
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 76, 16, 512),  # GeForce: half rate of fp32 accumulation
    ("NVIDIA RTX 4000 Ada Generation Laptop GPU", 58, 12, 1024),
]


@pytest.mark.parametrize(("name", "sms", "gib", "rate"), LAPTOPS)
def test_a_laptop_part_has_the_peaks_of_the_clock_that_was_recorded(name, sms, gib, rate):
    facts = {"smCount": sms, "totalMemory": memory(gib * 0.98), "computeMajor": 8, "computeMinor": 9}
    assert find_device(name).flop_per_s == find_device(name, facts).flop_per_s == {}
    device = find_device(name, {**facts, "clockRate": 2_000_000_000, "memoryBandwidth": 576_000_000_000})
    assert device.peak("tc_bf16") == rate * sms * 2e9
    assert device.byte_per_s == 576e9
    assert "as the capture records them" in device.source


CONTRADICTIONS = [
    ("Quadro RTX 4000", {"smCount": 48}),  # the card has 36, the laptop's part 40
    ("NVIDIA H20", {"smCount": 78, "totalMemory": memory(139.8)}),  # the later one, with HBM3e
    ("NVIDIA A100-SXM4-40GB", {"smCount": 108, "totalMemory": memory(79.2)}),
    ("NVIDIA T4", {"smCount": 40, "computeMajor": 8, "computeMinor": 9}),
]


@pytest.mark.parametrize(("name", "facts"), CONTRADICTIONS)
def test_figures_that_contradict_the_name_are_another_part(name, facts):
    device = find_device(name, facts)
    assert device.part == "" and device.flop_per_s == {}


# What captures record of devices that they do not name
NAMELESS = [
    ("AMD Radeon Graphics", 104, 64, (9, 0), 64, "MI210 or MI250", 181),
    ("AMD Radeon Graphics", 110, 64, (9, 0), 64, "MI250X", 191.5),
    ("AMD Radeon Graphics", 304, 192, (9, 4), 64, "MI300X", 1307.4),
    ("", 304, 256, (9, 4), 64, "MI325X", 1307.4),
    ("", 228, 128, (9, 4), 64, "MI300A", 980.6),
    ("", 256, 288, (9, 5), 64, "MI350X or MI355X", math.nan),
    ("NVIDIA Graphics Device", 78, 95.6, (9, 0), 32, "H20", 148),
    ("", 132, 79.2, (9, 0), 32, "H100-SXM5 or H800-SXM5", 989.4),
    ("", 68, 10.8, (7, 5), 32, "RTX 2080 Ti", math.nan),  # no bf16
]


@pytest.mark.parametrize(("name", "sms", "gib", "capability", "warp", "part", "bf16"), NAMELESS)
def test_a_device_without_a_name_is_found_by_its_figures(name, sms, gib, capability, warp, part, bf16):
    facts = {"smCount": sms, "totalMemory": memory(gib), "threadsPerWarp": warp}
    device = find_device(name, {**facts, "computeMajor": capability[0], "computeMinor": capability[1]})
    assert device.part == part
    assert device.peak("tc_bf16") == pytest.approx(bf16 * 1e12, nan_ok=True)


def test_figures_find_nothing_for_a_name_that_is_not_listed_or_when_one_is_missing():
    facts = {"smCount": 304, "totalMemory": memory(192), "threadsPerWarp": 64, "computeMajor": 9, "computeMinor": 4}
    assert find_device("AMD Instinct MI399", facts).part == ""
    for missing in ("smCount", "totalMemory", "computeMajor"):
        device = find_device("", {key: value for key, value in facts.items() if key != missing})
        assert device is None or device.part == ""
    assert find_device("AMD Radeon Graphics", {**facts, "smCount": 302}).part == ""


def test_every_generation_of_the_table_is_there():
    archs = {device.arch for _, device in parts()}
    assert archs >= {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"}
    assert archs >= {"gfx90a", "gfx942", "gfx950"}


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
