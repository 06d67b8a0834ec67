"""Files that a server keeps in memory once they are read."""

import os
import shutil

from pyprof.prof import load as loading
from pyprof.prof.kept_files import keep_files
from pyprof.prof.load import load_table
from tests.paths import ROOT

LENET = ROOT / "tests" / "golden" / "h200_lenet.sqlite.gz"


def reads(monkeypatch):
    """The names that are really read from now on."""
    names, original = [], loading._read
    monkeypatch.setattr(loading, "_read", lambda name, *rest: (names.append(str(name)), original(name, *rest))[1])
    return names


def test_a_file_is_read_once_while_it_does_not_change(tmp_path, monkeypatch):
    file = tmp_path / "net.sqlite.gz"
    shutil.copy(LENET, file)
    names = reads(monkeypatch)
    with keep_files(2):
        first = load_table(file)
        assert load_table(file) is first
        assert load_table(file, host=True).host is not None  # another question: with the host's calls
        os.utime(file, (1, 1))
        assert load_table(file) is not first
    assert len(names) == 3


def test_only_the_last_ones_are_kept(tmp_path, monkeypatch):
    files = [tmp_path / f"{name}.sqlite.gz" for name in "abc"]
    for file in files:
        shutil.copy(LENET, file)
    names = reads(monkeypatch)
    a, b, c = files
    with keep_files(2):
        for file in (a, b, a, c, a, b):  # c takes the place of b, which was used longest ago
            load_table(file)
    assert names == [str(file) for file in (a, b, c, b)]


def test_nothing_is_kept_outside_of_the_block(monkeypatch):
    monkeypatch.setattr("pyprof.prof.kept_files._kept", None)  # where the tests keep files
    names = reads(monkeypatch)
    with keep_files(0):
        load_table(LENET)
        load_table(LENET)
    load_table(LENET)
    assert len(names) == 3
