"""Freed memory is given back in a large process, whatever the block does."""

import gc
import subprocess
import sys

import numpy as np
import pytest

from pyprof import gc_pause
from pyprof.gc_pause import given_back, uncollected


def test_garbage_collection_goes_on_after_the_block():
    with pytest.raises(KeyError), uncollected():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_freed_arrays_go_back_to_the_system(monkeypatch):
    """Freed arrays below others, which glibc keeps: 512 of 100 kB (less than its threshold for pages of their own)."""
    monkeypatch.setattr(gc_pause, "LARGE", 0)
    arrays = [np.ones(12_500) for _ in range(1024)]
    with given_back():
        del arrays[::2]
        before = _resident_bytes()
    assert before - _resident_bytes() > 40_000_000


THREAD = """
import threading
import numpy as np
from pyprof import gc_pause
gc_pause.LARGE = 0
gc_pause.one_heap()
def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
def work():
    arrays = [np.ones(12_500) for _ in range(300)]
np.ones(3_000_000)  # 24 MB: from now on glibc keeps as much at the end of a heap
thread, before = threading.Thread(target=work), resident_bytes()
thread.start()
thread.join()
with gc_pause.given_back():
    pass
print(resident_bytes() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_what_a_thread_freed_goes_back_to_the_system(root):
    """The thread frees 30 MB, of which 10 stay in its own heap if it has one."""
    done = subprocess.run([sys.executable, "-c", THREAD], capture_output=True, text=True, check=True, cwd=root)
    assert int(done.stdout) < 5_000_000


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
