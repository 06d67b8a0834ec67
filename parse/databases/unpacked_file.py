"""A file that may be packed with gzip, as one that is not: SQLite cannot read a stream."""

import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pyprof.errors import InputError
from pyprof.files import GZIP, inflated, link_unnamed, unnamed_file


@contextmanager
def unpacked(file: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """The file itself, or an unpacked temporary copy if it begins as gzip does, whose name does not matter.

    The function that comes with it is to be called once the file has been opened: it takes the copy's name away, so
    that nothing is left if the process is killed. On Linux the copy has a name between the two only.
    Raises InputError if the data is broken, cut or far too large, or there is no room for the copy.
    """
    with file.open("rb") as source, ExitStack() as stack:
        if source.peek(2)[:2] != GZIP:
            yield file, lambda: None
            return
        try:
            folder = Path(tempfile.gettempdir())
            handle = unnamed_file(folder)
            copy = folder / f"pyprof-{uuid.uuid4().hex}"
            if handle is None:
                handle = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            stack.callback(copy.unlink, missing_ok=True)
            with os.fdopen(handle, "w+b") as out:
                out.writelines(inflated(source, file))
                out.flush()
                if not copy.exists():
                    _name(out, copy)
        except (EOFError, zlib.error) as error:
            raise InputError(file, f"expected a whole gzip file, found {error} (copy or compress it again)") from None
        except OSError as error:
            advice = "set TMPDIR to a folder with room, or unpack the file yourself"
            found = f"cannot be unpacked to a temporary file: {error.strerror or error} ({advice})"
            raise InputError(file, found) from None
        yield copy, lambda: _forget(copy)


def _name(whole: BinaryIO, copy: Path) -> None:
    try:
        link_unnamed(whole.fileno(), copy)
    except OSError:  # a system without hard links, or that does not allow this one
        whole.seek(0)
        with copy.open("xb") as out:
            shutil.copyfileobj(whole, out)


def _forget(copy: Path) -> None:
    with suppress(OSError):  # a system on which an open file cannot lose its name: it goes at the end
        copy.unlink(missing_ok=True)
