"""Kernel names, short. The pairs of the first table are nsys's own shortName of the same kernels."""

import gzip
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from pyprof.parse.formats.kernel_names import demangle, short_name
from tests.paths import ROOT

NSYS = [
    (
        "void at::native::<unnamed>::elementwise_kernel_with_index<int, at::native::arange_cuda_out(const c10::Scalar "
        "&)::[lambda() (instance 1)]::operator ()() const::[lambda(long) (instance 1)]>(T1 *, long)",
        "elementwise_kernel_with_index",
    ),
    ("at::cuda::philox::unpack_cudnn(at::PhiloxCudaState, long *, long *)", "unpack_cudnn"),
    (
        "void at::native::vectorized_elementwise_kernel<(int)2, at::native::FillFunctor<long>, std::array<char *, "
        "(unsigned long)1>>(int, T2, T3)",
        "vectorized_elementwise_kernel",
    ),
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN", "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN"),
]
OURS = [
    (
        "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, 4, true>"
        "(float*, float const*, int)",
        "softmax_warp_forward",
    ),
    (
        "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::copy(at::Iter&)"
        "::{lambda()#3}::operator()() const::{lambda(float)#1}>(at::Iter&)::{lambda(int)#1}>(int, at::native::X)",
        "elementwise_kernel",
    ),
    ("void foo(int)::{lambda(float)#1}::operator()(float) const", "foo"),
    (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    ),
    ("triton_poi_fused__to_copy_10", "triton_poi_fused__to_copy_10"),
    ("_ZN2at6native3addIfEEvPT_", "add"),
    ("_ZN7cutlass6KernelINS_9UnknownXYEE!!", "Kernel"),  # no demangler takes it
    ("void foo<(a > b), &x->y>(int) [clone .kd]", "foo"),
    ("Cijk_Ailk_Bljk_SB_MT64x16x16.kd", "Cijk_Ailk_Bljk_SB_MT64x16x16"),
    ("Functor::operator()(int)", "Functor"),
    ("operator()(int)", "operator()"),
    ("void cub::Kernel<(cub::Op)3, 4>::run<int>(int)", "run"),
    ("", ""),
    ("((", "(("),
    ("void f<int", "f"),  # cut
]


@pytest.mark.parametrize(("long", "short"), NSYS + OURS)
def test_short_names(long, short):
    assert short_name(long) == short


@pytest.mark.parametrize(("name", "whole"), [("_Z3fooi", "foo(int)"), ("foo", "foo"), ("_Zno", "_Zno"), ("", "")])
def test_demangling(name, whole):
    assert demangle(name) == whole


def test_short_names_are_nsys_own_on_every_capture(data, tmp_path):
    pairs = set()
    for file in sorted((data / "nsys").glob("*.gz")):
        copy = tmp_path / "net.sqlite"
        copy.write_bytes(gzip.decompress(file.read_bytes()))
        with closing(sqlite3.connect(copy)) as db:
            db.text_factory = lambda raw: raw.decode("utf-8", "replace")
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            if {"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"} <= tables:
                pairs |= set(
                    db.execute(
                        "SELECT DISTINCT l.value, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k"
                        " JOIN StringIds s ON s.id = k.shortName JOIN StringIds l ON l.id = k.demangledName"
                    )
                )
    assert len(pairs) > 300
    assert {long: short_name(long) for long, _ in pairs} == dict(pairs)


NOTHING_FOUND = """
import ctypes, ctypes.util, sys
ctypes.util.find_library = lambda name: None
if sys.argv[1] == "none":
    def absent(name, *args, **kwargs):
        raise OSError(name)
    ctypes.CDLL = absent
from pyprof.parse.formats.kernel_names import demangle
print(demangle("_ZN2at3addEv"))
"""


@pytest.mark.parametrize(("libraries", "name"), [("there", "at::add()"), ("none", "_ZN2at3addEv")])
@pytest.mark.skipif(sys.platform != "linux", reason="the libraries have other names there")
def test_a_system_that_cannot_look_libraries_up(libraries, name):
    """Small containers have neither ldconfig nor a compiler, which Python asks."""
    words = [sys.executable, "-c", NOTHING_FOUND, libraries]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{name}\n", "")
