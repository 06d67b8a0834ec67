"""Files appear whole or not at all, and nothing is overwritten unasked."""

import gzip
import io
import os
import subprocess
import sys

import pytest

from pyprof import files
from pyprof.errors import InputError, PyprofError
from pyprof.files import check_output, open_input, open_output


def write(name, text=b"new", force=False):
    with open_output(name, force) as out:
        out.write(text)


def test_a_file_appears_when_the_block_ends(tmp_path):
    with open_output(tmp_path / "x") as out:
        out.write(b"new")
        assert not (tmp_path / "x").exists()
    assert (tmp_path / "x").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_after_an_error_the_old_file_stands_and_nothing_lies_beside_it(tmp_path, error):
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises((error, PyprofError)), open_output(tmp_path / "x", force=True) as out:
        out.write(b"half")
        raise error
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"old")]


def test_nothing_is_overwritten_without_force(tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(PyprofError, match="exists; give --force"):
        write(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"old"
    write(tmp_path / "x", force=True)
    assert (tmp_path / "x").read_bytes() == b"new"


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_someone_made_meanwhile_is_not_overwritten(tmp_path, monkeypatch, links):
    def refuse(*_, **__):
        raise PermissionError("no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(PyprofError, match="exists"), open_output(tmp_path / "x"):
        (tmp_path / "x").write_bytes(b"theirs")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"theirs")]


def test_without_hard_links_the_file_is_moved(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_, **__: (_ for _ in ()).throw(PermissionError("no hard links here")))
    write(tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(tmp_path):
    old = os.umask(0o027)
    try:
        write(tmp_path / "x")
        assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640
        (tmp_path / "x").chmod(0o600)
        write(tmp_path / "x", force=True)
        assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)


def test_through_a_link_the_file_that_it_names_is_written(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", force=True)
    assert (tmp_path / "real").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_devices_and_pipes_are_written_as_they_are(tmp_path):
    write("/dev/null")
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE) as cat:
        write(tmp_path / "pipe")
        assert cat.communicate()[0] == b"new"


def test_gz_is_compressed_and_says_neither_time_nor_name(tmp_path):
    write(tmp_path / "x.gz")
    write(tmp_path / "y.gz")
    assert gzip.decompress((tmp_path / "x.gz").read_bytes()) == b"new"
    assert (tmp_path / "x.gz").read_bytes() == (tmp_path / "y.gz").read_bytes()


@pytest.mark.parametrize(("name", "words"), [("", "it is a folder"), ("no/x", "there is no folder")])
def test_a_place_that_cannot_be_written_is_known_at_once(tmp_path, name, words):
    with pytest.raises(PyprofError, match=words):
        check_output(tmp_path / name)


def test_a_full_disk_is_one_line():
    with pytest.raises(PyprofError, match=r"^/dev/full: cannot be written: No space left on device$"):
        write("/dev/full")


@pytest.mark.parametrize("name", [None, "-"])
def test_standard_output(name, capsysbinary):
    write(name)
    assert capsysbinary.readouterr().out == b"new"


def test_a_reader_that_goes_away_ends_the_output_quietly():
    code = "from pyprof.files import open_output\nwith open_output('-') as out:\n  while True: out.write(b'x' * 9999)"
    command = ["sh", "-c", f'{sys.executable} -c "{code}" | head -c 5']
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"xxxxx", b"")


@pytest.mark.parametrize("name", ["x", "x.gz"])
def test_what_was_written_is_read(tmp_path, name):
    write(tmp_path / name, b"a\nb\n")
    with open_input(tmp_path / name) as source:
        assert source.peek(1)[:1] == b"a"
        assert list(source) == [b"a\n", b"b\n"]


def test_gzip_on_standard_input_is_unpacked(monkeypatch):
    packed = io.BytesIO(gzip.compress(b"abc"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(packed)))
    with open_input("-") as source:
        assert source.read() == b"abc"
    assert not sys.stdin.closed


@pytest.mark.parametrize(
    "damage", [lambda packed: packed[:-9], lambda packed: packed[:20] + b"\xff" * 20 + packed[40:]]
)
def test_broken_gzip_names_the_file(tmp_path, damage):
    (tmp_path / "x").write_bytes(damage(gzip.compress(os.urandom(3000))))
    with (
        pytest.raises(InputError, match=r"x: expected whole gzip data, found .*; copy"),
        open_input(tmp_path / "x") as f,
    ):
        f.read()


def test_a_missing_file_is_one_line(tmp_path):
    with (
        pytest.raises(InputError, match=r"nothing: cannot be read: No such file or directory$"),
        open_input(tmp_path / "nothing"),
    ):
        pass


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read: Is a directory"), open_input(tmp_path):
        pass


def test_standard_names():
    assert files.is_standard(None)
    assert files.is_standard("-")
    assert not files.is_standard("x")


def test_gzip_of_nothing_but_zeros_ends_after_a_small_part(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FREE", 1 << 20)
    (tmp_path / "x").write_bytes(gzip.compress(bytes(200 << 20)))  # 204 kB, 1,029 times smaller
    found = r"x: expected gzip data of at most 100 times its size, found [0-9,]+ bytes from 32,768 .*: gunzip .*x\)$"
    with pytest.raises(InputError, match=found), open_input(tmp_path / "x") as source:
        source.read()


def test_small_files_may_unpack_to_any_size(tmp_path):
    (tmp_path / "x").write_bytes(gzip.compress(bytes(2 << 20)))
    with open_input(tmp_path / "x") as source:
        assert source.read() == bytes(2 << 20)


def test_gzip_in_parts_with_zeros_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PACKED", 7)  # the ends of parts fall anywhere
    (tmp_path / "x").write_bytes(gzip.compress(b"a\nb") + gzip.compress(b"c\n") + bytes(40))
    with open_input(tmp_path / "x") as source:
        assert list(source) == [b"a\n", b"bc\n"]


def test_closed_standard_input_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match=r"^standard input: cannot be read: it is closed$"), open_input("-"):
        pass
