"""Reading and writing files: gzip is handled, output appears only when complete, and nothing is overwritten unasked.

Every command uses ``open_input`` and ``open_output``, so that a full disk, a closed pipe or an existing file has the
same result everywhere: a one-line error and no partial file.
"""

import gzip
import io
import os
import shutil
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from pyprof.errors import InputError, OutputError, PyprofError
from pyprof.text import MARKS, as_utf8, printable

Name = str | Path | None  # None and "-" are standard input or output
GZIP = b"\x1f\x8b"
GZIP_LEVEL = 3  # a net.dict becomes 20 times smaller at 3, and 23 times at 6, which takes 2.5 times as long
BUFFER = 1 << 20
PACKED = 1 << 15  # bytes unpacked at a time, which become at most 33 MB: DEFLATE packs no better than 1,032 to 1
# A file may unpack to this many bytes and this many times what was read of it so far. Real captures reach 46 times, and
# gzip of nothing but zeros 1,030 times: 20 MB would become 20 GB.
FREE, MOST_TIMES = 128 << 20, 100


def check_output(output: Name, force: bool = False) -> None:
    """Raise PyprofError if ``open_output`` would raise it. Commands call this before minutes of work."""
    if is_standard(output):
        return
    target = Path(str(output))
    if target.is_dir():
        raise PyprofError(f"{target}: cannot be written: it is a folder; name a file in it")
    if not target.parent.is_dir():
        raise PyprofError(f"{target}: cannot be written: there is no folder {target.parent}; make it first")
    if target.is_file() and not force:
        raise _taken(target)


def is_standard(name: Name) -> bool:
    """Whether the name stands for standard input or output."""
    return name is None or str(name) == "-"


def tell(line: str) -> None:
    """Print a line on standard error, with terminal control sequences removed; nowhere if standard error is closed."""
    if sys.stderr is not None:  # print() would use standard output, which is for data
        sys.stderr.write(f"{printable(line)}\n")


@contextmanager
def open_output(output: Name, force: bool = False) -> Iterator[BinaryIO]:
    """A binary file that appears under its name when the block ends, and not at all if the block raises.

    None or ``-`` is standard output; if its reader has gone (``| head``), the block ends early and quietly. A file
    whose name ends in ``.gz`` is compressed. A device or a named pipe is written to directly.
    Raises PyprofError if the file cannot be written, or exists and ``force`` is not given, and OutputError for
    standard output.
    """
    if is_standard(output):
        with _standard_output() as out:
            yield out
        return
    check_output(output, force)
    target = Path(os.path.realpath(str(output)))  # follows links to the file itself
    try:
        opened = _beside(target, force) if target.is_file() or not target.exists() else target.open("wb")
        with opened as raw, _packed(raw, str(output)) as out:
            yield out
    except OSError as error:
        raise PyprofError(f"{output}: cannot be written: {error.strerror or error}") from error


@contextmanager
def open_input(name: Name) -> Iterator[io.BufferedReader]:
    """A binary file to read, decompressed if it is gzip; None or ``-`` is standard input.

    Raises InputError if it cannot be opened or read, also while the block reads it.
    """
    shown = "standard input" if is_standard(name) else str(name)
    try:
        with _opened(name) as raw:
            is_packed = raw.peek(2)[:2] == GZIP
            unpacked: Any = io.BufferedReader(_Chunks(inflated(raw, shown)), BUFFER)
            source: io.BufferedReader = unpacked if is_packed else raw
            if source.peek(4).startswith(MARKS):  # PowerShell's `>` writes UTF-16
                yield io.BufferedReader(cast(io.RawIOBase, io.BytesIO(as_utf8(source.read()))))
            else:
                yield source
    except (EOFError, zlib.error) as error:
        raise InputError(shown, f"expected whole gzip data, found {error}; copy the file again") from error
    except OSError as error:
        raise InputError(shown, f"cannot be read: {error.strerror or error}") from error


def inflated(source: BinaryIO, shown: object) -> Iterator[bytes]:
    """The content of gzip data, piece by piece. ``shown``: the file's name for the error message.

    Raises InputError if it unpacks to far more than real files do, EOFError if it is cut, zlib.error if it is broken.
    """
    packed, read, unpacked = source.read(PACKED), 0, 0
    while packed:
        stream = zlib.decompressobj(wbits=31)
        while packed and not stream.eof:
            piece = stream.decompress(packed)
            read, unpacked = read + len(packed) - len(stream.unused_data), unpacked + len(piece)
            if unpacked > FREE + MOST_TIMES * read:
                found = f"{unpacked:,} bytes from {read:,} (if you trust the file, unpack it yourself: gunzip {shown})"
                raise InputError(shown, f"expected gzip data of at most {MOST_TIMES} times its size, found {found}")
            yield piece
            packed = stream.unused_data or source.read(PACKED)
        if not stream.eof:
            raise EOFError("its end is missing")
        while packed and not (packed := packed.lstrip(b"\0")):  # gzip allows zeros behind its parts
            packed = source.read(PACKED)


class _Chunks(io.RawIOBase):
    """Pieces of bytes as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _taken(target: Path) -> PyprofError:
    return PyprofError(f"{target}: exists; give --force to overwrite it, or another name")


@contextmanager
def _beside(target: Path, force: bool) -> Iterator[BinaryIO]:
    """A temporary file in the target's folder, which gets the target's name at the end.

    On Linux it has no name until it is complete, so that nothing is left if the process is killed.
    """
    handle = unnamed_file(target.parent)
    if handle is None:
        with _part(target, force) as out:
            yield out
        return
    with open(handle, "w+b", BUFFER) as out:
        os.fchmod(handle, usual_mode(target))
        yield out
        out.flush()
        _name(out, target, force)


@contextmanager
def _part(target: Path, force: bool) -> Iterator[BinaryIO]:
    """A temporary file with a name of its own, for file systems without others."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
    part = Path(name)
    try:
        with open(handle, "wb", BUFFER) as out:
            os.chmod(name, usual_mode(target))
            yield out
        _move(part, target, force)
    finally:
        part.unlink(missing_ok=True)


_scratch: set[str] = set()  # the folders of scratch_folder that are there


@contextmanager
def scratch_folder(parent: Path | None = None, prefix: str = "pyprof-") -> Iterator[str]:
    """A temporary folder, which is removed at the end; in ``parent``, or where temporary files belong."""
    name = tempfile.mkdtemp(prefix=prefix, dir=parent)
    _scratch.add(name)
    try:
        yield name
    finally:
        shutil.rmtree(name, ignore_errors=True)
        if os.path.lexists(name):  # what failed once, as calls on network file systems do, need not fail again
            shutil.rmtree(name, ignore_errors=True)
        _scratch.discard(name)


def remove_scratch() -> None:
    """Remove the temporary folders that are left where a signal has come while one was being removed."""
    for name in sorted(_scratch):
        shutil.rmtree(name, ignore_errors=True)
    _scratch.clear()


def unnamed_file(folder: Path) -> int | None:
    """A new file in a folder that has no name and is gone when it is closed; None where there are no such files.

    ``link_unnamed`` gives it a name.
    """
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError:  # a file system without them; whatever else it is, the named file has it, too
        return None


def link_unnamed(handle: int, name: str | Path) -> None:
    """Give a file from ``unnamed_file`` a name, which must be new."""
    # Any number for src_dir_fd makes Python call linkat(), which follows the link in /proc; link() does not.
    os.link(f"/proc/self/fd/{handle}", name, src_dir_fd=handle)


def _name(whole: BinaryIO, target: Path, force: bool) -> None:
    """Put a complete unnamed file in the target's place."""
    try:
        link_unnamed(whole.fileno(), target)
    except FileExistsError:
        if not force:
            raise _taken(target) from None
        _replace(whole, target)
    except OSError:  # a file system without hard links
        whole.seek(0)
        with _part(target, force) as out:
            shutil.copyfileobj(whole, out, BUFFER)


def _replace(whole: BinaryIO, target: Path) -> None:
    """The same where there is a file already: a link replaces nothing, so the new file gets another name first."""
    part = target.with_name(f".{target.name[:100]}.{os.getpid()}-{threading.get_ident()}.part")
    part.unlink(missing_ok=True)
    try:
        link_unnamed(whole.fileno(), part)
        part.replace(target)  # the last call: what fails after it would say that the file is not written
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def usual_mode(target: Path) -> int:
    """The file's mode, or the mode that open() would give it. A file from mkstemp is readable only by its owner."""
    if target.is_file():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _move(part: Path, target: Path, force: bool) -> None:
    if force:
        part.replace(target)
        return
    try:
        os.link(part, target)  # unlike a rename it fails if the target was created meanwhile
    except FileExistsError:
        raise _taken(target) from None
    except OSError:  # a file system without hard links
        if target.exists():
            raise _taken(target) from None
        part.replace(target)


@contextmanager
def _packed(raw: BinaryIO, name: str) -> Iterator[BinaryIO]:
    if not name.endswith(".gz"):
        yield raw
        return
    # The gzip header gets no file name and no time, so that equal content gives equal bytes.
    with gzip.GzipFile("", "wb", GZIP_LEVEL, raw, mtime=0) as packed:
        yield cast(BinaryIO, packed)


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    if sys.stdout is None:
        raise OutputError("standard output: cannot be written: it is closed")
    sys.stdout.flush()
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        drop_standard_output()
    except OSError as error:
        drop_standard_output()
        raise OutputError(f"standard output: cannot be written: {error.strerror or error}") from error


def drop_standard_output() -> None:
    """Discard unwritten output, so that the interpreter's flush at exit does not fail again."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


@contextmanager
def _opened(name: Name) -> Iterator[io.BufferedReader]:
    """The file, or standard input, which is left open afterwards; with a buffer that can look ahead."""
    if not is_standard(name):
        with io.FileIO(str(name)) as raw:
            yield io.BufferedReader(cast(io.RawIOBase, raw), BUFFER)
        return
    if sys.stdin is None:
        raise OSError("it is closed")
    source = sys.stdin.buffer
    yield source if isinstance(source, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, source))
