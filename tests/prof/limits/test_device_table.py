"""The table of devices as a whole: each part is found by a driver's name and by its figures, and its figures agree with
each other.
"""

import json
import math
import re

import pytest

from pyprof.prof.limits.architectures import HALVED, RATES
from pyprof.prof.limits.devices import Device, find_device, parts

# A name as a driver spells it = the part
NAMES = """
Tesla V100-PCIE-16GB = V100-PCIe
Tesla V100-SXM2-32GB = V100-SXM2
Tesla V100S-PCIE-32GB = V100S-PCIe
Tesla T4 = T4
NVIDIA GeForce GTX 1630 = GTX 1630
NVIDIA GeForce GTX 1650 = GTX 1650
NVIDIA GeForce GTX 1650 SUPER = GTX 1650 SUPER
NVIDIA GeForce GTX 1660 = GTX 1660
NVIDIA GeForce GTX 1660 SUPER = GTX 1660 SUPER
NVIDIA GeForce GTX 1660 Ti = GTX 1660 Ti
NVIDIA GeForce RTX 2060 = RTX 2060 6GB
NVIDIA GeForce RTX 2060 = RTX 2060 12GB
NVIDIA GeForce RTX 2060 SUPER = RTX 2060 SUPER
NVIDIA GeForce RTX 2070 = RTX 2070
NVIDIA GeForce RTX 2070 SUPER = RTX 2070 SUPER
NVIDIA GeForce RTX 2080 = RTX 2080
NVIDIA GeForce RTX 2080 SUPER = RTX 2080 SUPER
NVIDIA GeForce RTX 2080 Ti = RTX 2080 Ti
NVIDIA TITAN RTX = TITAN RTX
NVIDIA GeForce RTX 2060 with Max-Q Design = RTX 2060 Max-Q
NVIDIA GeForce RTX 2070 with Max-Q Design = RTX 2070 Max-Q
NVIDIA GeForce RTX 2070 SUPER with Max-Q Design = RTX 2070 SUPER Max-Q
NVIDIA GeForce RTX 2080 with Max-Q Design = RTX 2080 Max-Q
NVIDIA GeForce RTX 2080 SUPER with Max-Q Design = RTX 2080 SUPER Max-Q
NVIDIA GeForce GTX 1650 with Max-Q Design = GTX 1650 Max-Q
NVIDIA GeForce GTX 1650 Ti with Max-Q Design = GTX 1650 Ti Max-Q
NVIDIA GeForce GTX 1660 Ti with Max-Q Design = GTX 1660 Ti Max-Q
NVIDIA GeForce GTX 1650 Ti = GTX 1650 Ti Laptop
NVIDIA GeForce MX450 = MX450
NVIDIA GeForce MX550 = MX550
NVIDIA T500 = T500 Laptop
NVIDIA T550 Laptop GPU = T550 Laptop
NVIDIA T600 Laptop GPU = T600 Laptop
NVIDIA T1200 Laptop GPU = T1200 Laptop
Quadro T1000 = Quadro T1000 Laptop
Quadro T2000 with Max-Q Design = Quadro T2000 Laptop
Quadro RTX 3000 = Quadro RTX 3000 Laptop
Quadro RTX 4000 = Quadro RTX 4000 Laptop
Quadro RTX 5000 with Max-Q Design = Quadro RTX 5000 Max-Q
NVIDIA T400 = T400
NVIDIA T600 = T600
NVIDIA T1000 = T1000
Quadro RTX 4000 = Quadro RTX 4000
Quadro RTX 5000 = Quadro RTX 5000
Quadro RTX 6000 = Quadro RTX 6000
Quadro RTX 8000 = Quadro RTX 8000
Tesla T10 = T10
NVIDIA T4G = T4G
NVIDIA CMP 30HX = CMP 30HX
NVIDIA CMP 40HX = CMP 40HX
NVIDIA CMP 50HX = CMP 50HX
NVIDIA A100-PCIE-40GB = A100-40GB-PCIe
NVIDIA A100-SXM4-40GB = A100-40GB-SXM4
NVIDIA A100 80GB PCIe = A100-80GB-PCIe
NVIDIA A100-SXM4-80GB = A100-80GB-SXM4
NVIDIA A100-SXM-64GB = A100-64GB-SXM
NVIDIA A100X = A100X
NVIDIA DRIVE A100 PROD = DRIVE-A100
NVIDIA A30 = A30
NVIDIA A30X = A30X
NVIDIA CMP 170HX = CMP 170HX 8GB
NVIDIA CMP 170HX = CMP 170HX 10GB
NVIDIA A10 = A10
NVIDIA A10M = A10M
NVIDIA CMP 70HX = CMP 70HX
NVIDIA CMP 90HX = CMP 90HX
NVIDIA A40 = A40
NVIDIA GeForce RTX 3090 = RTX 3090
NVIDIA GeForce RTX 3050 = RTX 3050 8GB
NVIDIA GeForce RTX 3050 = RTX 3050 4GB
NVIDIA GeForce RTX 3050 = RTX 3050 6GB
NVIDIA GeForce RTX 3060 = RTX 3060 12GB
NVIDIA GeForce RTX 3060 = RTX 3060 8GB
NVIDIA GeForce RTX 3060 Ti = RTX 3060 Ti
NVIDIA GeForce RTX 3070 = RTX 3070
NVIDIA GeForce RTX 3070 Ti = RTX 3070 Ti
NVIDIA GeForce RTX 3080 = RTX 3080 10GB
NVIDIA GeForce RTX 3080 = RTX 3080 12GB
NVIDIA GeForce RTX 3080 Ti = RTX 3080 Ti
NVIDIA GeForce RTX 3090 Ti = RTX 3090 Ti
NVIDIA GeForce RTX 3050 Laptop GPU = RTX 3050 Laptop 4GB
NVIDIA GeForce RTX 3050 6GB Laptop GPU = RTX 3050 Laptop 6GB
NVIDIA GeForce RTX 3050 A Laptop GPU = RTX 3050 A Laptop
NVIDIA GeForce RTX 3050 Ti Laptop GPU = RTX 3050 Ti Laptop
NVIDIA GeForce RTX 3060 Laptop GPU = RTX 3060 Laptop
NVIDIA GeForce RTX 3070 Laptop GPU = RTX 3070 Laptop
NVIDIA GeForce RTX 3070 Ti Laptop GPU = RTX 3070 Ti Laptop
NVIDIA GeForce RTX 3080 Laptop GPU = RTX 3080 Laptop
NVIDIA GeForce RTX 3080 Ti Laptop GPU = RTX 3080 Ti Laptop
NVIDIA GeForce RTX 2050 = RTX 2050 Laptop
NVIDIA GeForce MX570 = MX570
NVIDIA GeForce MX570 A = MX570 A
NVIDIA RTX A500 Laptop GPU = RTX A500 Laptop
NVIDIA RTX A1000 Laptop GPU = RTX A1000 Laptop 4GB
NVIDIA RTX A1000 6GB Laptop GPU = RTX A1000 Laptop 6GB
NVIDIA RTX A2000 Laptop GPU = RTX A2000 Laptop
NVIDIA RTX A3000 Laptop GPU = RTX A3000 Laptop
NVIDIA RTX A4000 Laptop GPU = RTX A4000 Laptop
NVIDIA RTX A4500 Laptop GPU = RTX A4500 Laptop
NVIDIA RTX A5000 Laptop GPU = RTX A5000 Laptop
NVIDIA RTX A5500 Laptop GPU = RTX A5500 Laptop
NVIDIA RTX A1000 Embedded GPU = RTX A1000 Embedded
NVIDIA RTX A2000 Embedded GPU = RTX A2000 Embedded
NVIDIA RTX A4500 Embedded GPU = RTX A4500 Embedded
NVIDIA RTX A400 = RTX A400
NVIDIA RTX A1000 = RTX A1000
NVIDIA RTX A2000 = RTX A2000
NVIDIA RTX A4000 = RTX A4000
NVIDIA RTX A4500 = RTX A4500
NVIDIA RTX A5000 = RTX A5000
NVIDIA RTX A5500 = RTX A5500
NVIDIA RTX A6000 = RTX A6000
NVIDIA A2 = A2
NVIDIA A16 = A16
NVIDIA A10G = A10G
Orin = Jetson AGX Orin 64GB
Orin = Jetson AGX Orin 32GB
Orin = Jetson Orin NX 16GB
Orin = Jetson Orin NX 8GB
Orin = Jetson Orin Nano 8GB Super
Orin = Jetson Orin Nano 8GB
Orin = Jetson Orin Nano 4GB
NVIDIA L4 = L4
NVIDIA L40S = L40S
NVIDIA L40 = L40
NVIDIA L40G = L40G
NVIDIA L40 CNX = L40 CNX
NVIDIA GeForce RTX 4090 = RTX 4090
NVIDIA GeForce RTX 4060 = RTX 4060
NVIDIA GeForce RTX 4060 Ti = RTX 4060 Ti
NVIDIA GeForce RTX 4070 = RTX 4070
NVIDIA GeForce RTX 4070 SUPER = RTX 4070 SUPER
NVIDIA GeForce RTX 4070 Ti = RTX 4070 Ti
NVIDIA GeForce RTX 4070 Ti SUPER = RTX 4070 Ti SUPER
NVIDIA GeForce RTX 4080 = RTX 4080
NVIDIA GeForce RTX 4080 SUPER = RTX 4080 SUPER
NVIDIA GeForce RTX 4090 D = RTX 4090 D
NVIDIA GeForce RTX 4050 Laptop GPU = RTX 4050 Laptop
NVIDIA GeForce RTX 4060 Laptop GPU = RTX 4060 Laptop
NVIDIA GeForce RTX 4070 Laptop GPU = RTX 4070 Laptop
NVIDIA GeForce RTX 4080 Laptop GPU = RTX 4080 Laptop
NVIDIA GeForce RTX 4090 Laptop GPU = RTX 4090 Laptop
NVIDIA RTX 2000 Ada Generation Laptop GPU = RTX 2000 Ada Generation Laptop
NVIDIA RTX 500 Ada Generation Laptop GPU = RTX 500 Ada Generation Laptop
NVIDIA RTX 1000 Ada Generation Laptop GPU = RTX 1000 Ada Generation Laptop
NVIDIA RTX 3000 Ada Generation Laptop GPU = RTX 3000 Ada Generation Laptop
NVIDIA RTX 3500 Ada Generation Laptop GPU = RTX 3500 Ada Generation Laptop
NVIDIA RTX 4000 Ada Generation Laptop GPU = RTX 4000 Ada Generation Laptop
NVIDIA RTX 5000 Ada Generation Laptop GPU = RTX 5000 Ada Generation Laptop
NVIDIA RTX 5000 Ada Generation Embedded GPU = RTX 5000 Ada Generation Embedded
NVIDIA RTX 3500 Ada Generation Embedded GPU = RTX 3500 Ada Generation Embedded
NVIDIA RTX 2000 Ada Generation Embedded GPU = RTX 2000 Ada Generation Embedded
NVIDIA RTX 2000 Ada Generation = RTX 2000 Ada
NVIDIA RTX 4000 Ada Generation = RTX 4000 Ada
NVIDIA RTX 4000 SFF Ada Generation = RTX 4000 SFF Ada
NVIDIA RTX 4500 Ada Generation = RTX 4500 Ada
NVIDIA RTX 5000 Ada Generation = RTX 5000 Ada
NVIDIA RTX 5880 Ada Generation = RTX 5880 Ada
NVIDIA RTX 6000 Ada Generation = RTX 6000 Ada
NVIDIA L20 = L20
NVIDIA L2 = L2
NVIDIA H100 PCIe = H100-PCIe
NVIDIA H100 CNX = H100-CNX
NVIDIA H100 80GB HBM3 = H100-SXM5
NVIDIA H100 = H100-SXM5-64GB
NVIDIA H100 = H100-SXM5-94GB
NVIDIA H100 96GB HBM3 = H100-SXM5-96GB
NVIDIA H800 = H800-SXM5
NVIDIA H100 NVL = H100-NVL
NVIDIA H200 = H200-SXM
NVIDIA H200 NVL = H200-NVL
NVIDIA H20 = H20
NVIDIA GH200 480GB = GH200-96GB
NVIDIA GH200 144G HBM3e = GH200-144GB
NVIDIA H800 PCIe = H800-PCIe
NVIDIA H20-3e = H20-141GB
NVIDIA B100 = B100
NVIDIA B200 = B200
NVIDIA GB200 = GB200
NVIDIA B300 SXM6 AC = B300
NVIDIA GB300 = GB300
NVIDIA Thor = Jetson Thor T5000
NVIDIA Thor = Jetson Thor T4000
NVIDIA GeForce RTX 5090 = RTX 5090
NVIDIA GeForce RTX 5050 = RTX 5050
NVIDIA GeForce RTX 5060 = RTX 5060
NVIDIA GeForce RTX 5060 Ti = RTX 5060 Ti
NVIDIA GeForce RTX 5070 = RTX 5070
NVIDIA GeForce RTX 5070 Ti = RTX 5070 Ti
NVIDIA GeForce RTX 5080 = RTX 5080
NVIDIA GeForce RTX 5090 D = RTX 5090 D
NVIDIA GeForce RTX 5090 D v2 = RTX 5090 D v2
NVIDIA GeForce RTX 5050 Laptop GPU = RTX 5050 Laptop
NVIDIA GeForce RTX 5060 Laptop GPU = RTX 5060 Laptop
NVIDIA GeForce RTX 5070 Laptop GPU = RTX 5070 Laptop
NVIDIA GeForce RTX 5070 Ti Laptop GPU = RTX 5070 Ti Laptop
NVIDIA GeForce RTX 5080 Laptop GPU = RTX 5080 Laptop
NVIDIA GeForce RTX 5090 Laptop GPU = RTX 5090 Laptop
NVIDIA RTX PRO 500 Blackwell Generation Laptop GPU = RTX PRO 500 Blackwell Laptop
NVIDIA RTX PRO 1000 Blackwell Generation Laptop GPU = RTX PRO 1000 Blackwell Laptop
NVIDIA RTX PRO 2000 Blackwell Generation Laptop GPU = RTX PRO 2000 Blackwell Laptop
NVIDIA RTX PRO 3000 Blackwell Generation Laptop GPU = RTX PRO 3000 Blackwell Laptop
NVIDIA RTX PRO 4000 Blackwell Generation Laptop GPU = RTX PRO 4000 Blackwell Laptop
NVIDIA RTX PRO 5000 Blackwell Generation Laptop GPU = RTX PRO 5000 Blackwell Laptop
NVIDIA RTX PRO 6000 Blackwell Workstation Edition = RTX PRO 6000 Blackwell
NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition = RTX PRO 6000 Blackwell Max-Q
NVIDIA RTX PRO 6000 Blackwell Server Edition = RTX PRO 6000 Blackwell Server
NVIDIA RTX 6000D = RTX 6000D
NVIDIA RTX PRO 5000 Blackwell = RTX PRO 5000 Blackwell
NVIDIA RTX PRO 5000 72GB Blackwell = RTX PRO 5000 Blackwell 72GB
NVIDIA RTX PRO 4500 Blackwell = RTX PRO 4500 Blackwell
NVIDIA RTX PRO 4000 Blackwell = RTX PRO 4000 Blackwell
NVIDIA RTX PRO 2000 Blackwell = RTX PRO 2000 Blackwell
NVIDIA RTX PRO 4000 Blackwell SFF Edition = RTX PRO 4000 SFF Blackwell
NVIDIA GB10 = GB10
AMD Instinct MI250X = MI250X
AMD Instinct MI210 = MI210
AMD Instinct MI250X / MI250 = MI250
AMD Instinct MI300X = MI300X
AMD Instinct MI308X = MI308X
AMD Instinct MI325X = MI325X
AMD Instinct MI300A = MI300A
AMD Instinct MI350X = MI350X
AMD Instinct MI355X = MI355X
AMD Radeon PRO W7900 = Radeon PRO W7900
AMD Radeon RX 7900 XTX = Radeon RX 7900 XTX
AMD Radeon RX 7900 XT = Radeon RX 7900 XT
AMD Radeon RX 9070 XT = Radeon RX 9070 XT
AMD Radeon RX 9070 = Radeon RX 9070
"""

# Compiled from TechPowerUp's GPU database, NVIDIA's data sheets (RTX PRO, Jetson Thor) and AMD's: fp32 TFLOP/s | bits
# of the memory bus | Gb/s per pin | MB of L2. An empty cell is not compared: sources differ.
PRINTED = """
GTX 1630 | 1.83 | 64 | 12 | 1
T400 | 1.09 | 64 | 10 | 1
T600 | 1.71 | 128 | 10 | 1
T1000 | 2.50 | 128 | 10 | 1
T4 | 8.14 | 256 | 10 | 4
T4G | 8.14 | 256 | 10 | 4
T10 | 10.0 | 256 | 12.6 | 6
Quadro RTX 4000 | 7.12 | 256 | 13 | 4
Quadro RTX 5000 | 11.15 | 256 | 14 | 4
Quadro RTX 6000 | 16.31 | 384 | 14 | 6
Quadro RTX 8000 | 16.31 | 384 | 14 | 6
RTX 2060 12GB | 7.18 | 192 | 14 | 3
CMP 30HX | | 192 | 14 | 1.5
CMP 40HX | | 256 | 14 | 4
CMP 50HX | | 320 | 14 | 5
V100S-PCIe | 16.35 | 4096 | 2.214 | 6
A100-40GB-PCIe | 19.49 | 5120 | 2.43 | 40
A100-40GB-SXM4 | 19.49 | 5120 | 2.43 | 40
A100-80GB-PCIe | 19.49 | 5120 | 3.024 |
A100-80GB-SXM4 | 19.49 | 5120 | 3.186 | 40
A100X | 19.91 | 5120 | 3.186 |
DRIVE-A100 | 17.42 | 6144 | 2.43 | 32
A30 | 10.32 | 3072 | 2.43 | 24
A30X | 10.32 | 3072 | 3.186 | 24
CMP 170HX 8GB | | 4096 | 2.916 | 8
CMP 170HX 10GB | | 5120 | 2.43 | 10
A10 | 31.24 | 384 | 12.5 | 6
A10M | 23.44 | 320 | 12.5 | 6
A16 | 4.49 | 128 | 12.5 | 2
A2 | 4.53 | 128 | 12.5 | 2
A40 | 37.42 | 384 | 14.5 | 6
CMP 70HX | | 256 | 19 | 4
CMP 90HX | | 320 | 19 | 5
RTX 3050 4GB | 7.13 | 128 | 12 | 2
RTX 3050 6GB | 6.77 | 96 | 14 | 2
RTX 3060 12GB | 12.74 | 192 | 15 | 3
RTX 3080 12GB | 30.64 | 384 | 19 | 6
RTX 3090 Ti | 40.0 | 384 | 21 | 6
RTX A400 | 2.71 | 64 | 12 | 2
RTX A1000 | 6.74 | 128 | 12 | 2
RTX A4000 | 19.17 | 256 | 14 | 4
RTX A4500 | 23.65 | 320 | 16 | 6
RTX A5000 | 27.77 | 384 | 16 | 6
RTX A6000 | 38.71 | 384 | 16 | 6
Jetson AGX Orin 32GB | 3.33 | 256 | 6.4 |
Jetson Orin NX 16GB | 1.88 | 128 | 6.4 |
Jetson Orin NX 8GB | 1.57 | 128 | 6.4 |
Jetson Orin Nano 8GB Super | 2.09 | 128 | 6.4 | 2
Jetson Orin Nano 8GB | 1.28 | 128 | 4.264 | 2
L4 | 30.29 | 192 | 12.5 | 48
L20 | 59.35 | 384 | 18 | 96
L40 | 90.52 | 384 | 18 | 96
L40G | 89.97 | 384 | 18 | 48
L40 CNX | 89.97 | 384 | 18 | 48
L40S | 91.61 | 384 | 18 |
RTX 4070 SUPER | 35.48 | 192 | 21 | 48
RTX 4070 Ti SUPER | 44.1 | 256 | 21 | 48
RTX 4080 | 48.74 | 256 | 22.4 | 64
RTX 4080 SUPER | 52.22 | 256 | 23 | 64
RTX 4090 | 82.58 | 384 | 21 | 72
RTX 4090 D | 73.54 | 384 | 21 | 72
RTX 2000 Ada | 12.0 | | | 12
RTX 4000 Ada | 26.73 | 160 | 18 | 48
RTX 4000 SFF Ada | 19.17 | 160 | 14 | 48
RTX 4500 Ada | 39.63 | 192 | 18 | 48
RTX 5000 Ada | 65.28 | 256 | 18 | 72
RTX 5880 Ada | 69.27 | | | 72
RTX 6000 Ada | 91.06 | 384 | 20 | 96
H100-PCIe | 51.22 | 5120 | 3.186 | 50
H100-CNX | 53.84 | 5120 | 3.186 |
H100-SXM5 | 66.91 | 5120 | 5.25 | 50
H100-SXM5-64GB | 66.91 | 3072 | 5.25 |
H100-NVL | 60.32 | 6016 | 5.24 | 50
H200-SXM | 66.91 | 6144 | 6.25 |
H200-NVL | 60.32 | 6144 | 6.25 | 50
H800-PCIe | 51.22 | 5120 | 3.186 | 50
B200 | 74.45 | 7680 | 7.992 |
B300 | 76.99 | | |
GB10 | 29.71 | 256 | 8.533 |
Jetson Thor T5000 | 8.06 | 256 | 8.533 |
Jetson Thor T4000 | | 256 | 8.533 |
RTX 5050 | 13.17 | 128 | 20 | 24
RTX 5060 | 19.18 | 128 | 28 | 32
RTX 5060 Ti | 23.7 | 128 | 28 | 32
RTX 5070 | 30.87 | 192 | 28 | 48
RTX 5070 Ti | 43.94 | 256 | 28 | 48
RTX 5080 | 56.28 | 256 | 30 | 64
RTX 5090 | 104.8 | 512 | 28 | 96
RTX 5090 D | 104.8 | 512 | 28 | 96
RTX 5090 D v2 | 104.8 | 384 | 28 | 96
RTX 6000D | 97.04 | 448 | 28 | 128
RTX PRO 2000 Blackwell | 17.03 | 128 | 18 | 32
RTX PRO 4000 SFF Blackwell | 24.06 | 192 | 18 | 48
RTX PRO 4000 Blackwell | 40.31 | 192 | 28 | 48
RTX PRO 4500 Blackwell | 50.53 | 256 | 28 | 64
RTX PRO 5000 Blackwell | 64.5 | 384 | 28 | 96
RTX PRO 5000 Blackwell 72GB | 64.5 | 384 | 28 | 96
RTX PRO 6000 Blackwell | 126.0 | 512 | 28 | 128
RTX PRO 6000 Blackwell Max-Q | 109.7 | 512 | 28 | 128
RTX PRO 6000 Blackwell Server | 120 | | | 128
MI210 | 22.6 | 4096 | 3.2 |
MI250X | 23.95 | 4096 | 3.2 |
MI300X | 163.4 | 8192 | 5.2 |
MI325X | 163.4 | 8192 | 6.0 |
MI355X | 157.3 | 8192 | 8.0 |
"""

PARTS = {device.part: device for _, device in parts()}


def lines(text: str, separator: str) -> list[tuple[str, ...]]:
    return [tuple(cell.strip() for cell in line.split(separator)) for line in text.strip().splitlines()]


def recorded(device: Device, **facts: float) -> str:
    """What a capture would say of a device: as its row, with 4% of the memory kept by the driver."""
    arch = re.fullmatch(r"(sm_|gfx)(\d+)(\d)[0-9a-f]?", device.arch)
    all_facts = {
        "computeMajor": int(arch[2] if arch[1] == "sm_" else device.arch[3:-2]),
        "computeMinor": int(arch[3] if arch[1] == "sm_" else device.arch[-2]),
        "threadsPerWarp": 64 if device.arch.startswith("gfx9") else 32,
        "smCount": device.sms,
        "totalMemory": None if device.memory_gib is None else int(device.memory_gib * 0.96 * 2**30),
        **facts,
    }
    return json.dumps({key: value for key, value in all_facts.items() if value is not None})


def test_every_part_has_a_name_and_no_other_part_takes_it():
    names = lines(NAMES, " = ")
    assert {part for _, part in names} == PARTS.keys()
    for name, part in names:
        by_name, by_both = find_device(name), find_device(name, recorded(PARTS[part]))
        assert part in by_name.part.split(" or "), name
        assert part in by_both.part.split(" or "), name
        assert by_both.arch == PARTS[part].arch, name


# Names that several parts share, with the part that figures tell: SMs, GiB as the driver says, compute capability, MHz
SHARED = [
    ("Orin", 16, 61.4, (8, 7), 1300, "Jetson AGX Orin 64GB"),
    ("Orin", 14, 29.98, (8, 7), 930, "Jetson AGX Orin 32GB"),
    ("Orin", 8, 14.15, (8, 7), 918, "Jetson Orin NX 16GB"),  # 15,189,422,080 bytes: a public deviceQuery of the module
    ("Orin", 8, 7.4, (8, 7), 1020, "Jetson Orin Nano 8GB Super"),
    ("Orin", 8, 6.33, (8, 7), 625, "Jetson Orin Nano 8GB"),
    ("Orin", 8, 7.4, (8, 7), 612, "Jetson Orin NX 8GB or Jetson Orin Nano 8GB Super or Jetson Orin Nano 8GB"),
    ("NVIDIA Thor", 20, 122.8, (11, 0), 1575, "Jetson Thor T5000"),
    ("NVIDIA Thor", 20, 122.8, (10, 1), 1575, "Jetson Thor T5000"),  # as CUDA 12 calls its compute capability
    ("NVIDIA H100", 132, 63.4, (9, 0), 1980, "H100-SXM5-64GB"),
    ("NVIDIA H100", 114, 79.2, (9, 0), 1755, "H100-PCIe"),
    ("NVIDIA B200", 148, 178.35, (10, 0), 1965, "B200"),  # pytorch/ao 4002
    ("NVIDIA PG506-232", 108, 79.2, (8, 0), 1410, "A100-80GB-SXM4"),
    ("Quadro RTX 4000", 40, 7.8, (7, 5), 1560, "Quadro RTX 4000 Laptop"),
    ("Quadro RTX 4000", 36, 7.8, (7, 5), 1545, "Quadro RTX 4000"),
    ("NVIDIA GeForce RTX 3050", 16, 3.8, (8, 6), 1740, "RTX 3050 4GB"),
    ("", 108, 79.2, (8, 0), 1440, "A100X"),  # not an A100, whose clock is 1,410 MHz
    ("", 20, 122.8, (11, 0), 1575, "Jetson Thor T5000"),
    ("", 148, 178.35, (10, 0), 1965, "B100 or B200"),
]


@pytest.mark.parametrize(("name", "sms", "gib", "capability", "mhz", "part"), SHARED)
def test_figures_tell_parts_of_one_name_apart(name, sms, gib, capability, mhz, part):
    facts = {"smCount": sms, "totalMemory": int(gib * 2**30), "clockRate": mhz * 1e6, "threadsPerWarp": 32}
    device = find_device(name, {**facts, "computeMajor": capability[0], "computeMinor": capability[1]})
    assert device.part == part


@pytest.mark.parametrize("part", PARTS)
def test_figures_without_a_name_never_give_another_parts_figures(part):
    row = PARTS[part]
    found = find_device("AMD Radeon Graphics" if row.arch.startswith("gfx") else "", recorded(row))
    if row.sms is None or row.memory_gib is None:
        assert found is None or part not in found.part.split(" or ")
        return
    assert part in found.part.split(" or ")
    assert found.arch in (row.arch, "")
    assert found.byte_per_s in (row.byte_per_s, None)
    assert found.l2_bytes in (row.l2_bytes, None)
    assert all(row.peak(unit) == peak for unit, peak in found.flop_per_s.items())


def test_a_mining_card_has_no_peaks_whatever_its_clock():
    device = find_device("NVIDIA CMP 170HX", recorded(PARTS["CMP 170HX 8GB"], clockRate=1.41e9))
    assert (device.part, device.flop_per_s, device.byte_per_s) == ("CMP 170HX 8GB", {}, 1493e9)


@pytest.mark.parametrize("line", lines(PRINTED, "|"), ids=lambda line: line[0])
def test_figures_are_those_that_others_print(line):
    part, fp32, bus, gbps, l2 = line
    device = PARTS[part]
    if fp32 and "fp32" in device.flop_per_s:
        assert device.peak("fp32") == pytest.approx(float(fp32) * 1e12, rel=0.03)
    if bus:
        assert device.byte_per_s == pytest.approx(float(bus) / 8 * float(gbps) * 1e9, rel=0.03)
    if l2:
        assert device.l2_bytes == int(float(l2) * 2**20)


# Parts with units that are cut for export (H20, L20, L2) or by design (B300), and data sheets that round to 1 PFLOP/s
UNEQUAL = {"H20", "H20-141GB", "L20", "L2", "B300", "GB300", "GB10", "RTX PRO 6000 Blackwell Server"}


@pytest.mark.parametrize("part", [name for name, device in PARTS.items() if device.arch in RATES])
def test_the_peaks_of_a_part_imply_one_clock(part):
    """FLOP/s / (rate × SMs) is a clock; data sheets of Hopper count the vector units at a higher one."""
    device = PARTS[part]
    if device.sms is None or not device.flop_per_s or part in UNEQUAL:
        return
    rates = RATES[device.arch]
    share = dict.fromkeys(HALVED, 0.5) if device.tensor == "half" else {}
    tensor_clocks, vector_clocks = (
        [
            peak / (rates[unit] * share.get(unit, 1) * device.sms)
            for unit, peak in device.flop_per_s.items()
            if unit in rates and unit.startswith("tc_") is tensor and unit not in ("fp64", "tc_fp64")
        ]
        for tensor in (True, False)
    )
    for clocks in (tensor_clocks, vector_clocks):
        if clocks:
            assert max(clocks) / min(clocks) < 1.03
            assert 0.6e9 < min(clocks) < 3e9
            assert device.boost_hz is None or math.isclose(min(clocks), device.boost_hz, rel_tol=0.06)


# The largest L2 of each architecture's dies, MB: white papers; GH100 has 60 with six stacks of memory
LARGEST_L2 = {"sm_70": 6, "sm_75": 6, "sm_80": 40, "sm_86": 6, "sm_87": 4, "sm_89": 96, "sm_90": 60, "sm_100": 126}


def test_no_part_has_more_cache_than_its_architecture():
    for device in PARTS.values():
        if device.l2_bytes is not None and device.arch in LARGEST_L2:
            assert device.l2_bytes <= LARGEST_L2[device.arch] * 2**20, device.part
