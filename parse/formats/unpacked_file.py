"""A file that may be packed with gzip, as one that is not: SQLite cannot read a stream."""

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyprof.errors import InputError
from pyprof.files import GZIP, inflated


@contextmanager
def unpacked(file: Path) -> Iterator[Path]:
    """The file itself, or an unpacked temporary copy if it begins as gzip does. Its name does not matter.

    Raises InputError if the data is broken, cut or far too large, or there is no room for the copy.
    """
    with file.open("rb") as source, ExitStack() as stack:
        if source.peek(2)[:2] != GZIP:
            yield file
            return
        try:
            copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyprof-"))) / "unpacked"
            with copy.open("wb") as out:
                out.writelines(inflated(source, file))
        except (EOFError, zlib.error) as error:
            raise InputError(file, f"expected a whole gzip file, found {error} (copy or compress it again)") from None
        except OSError as error:
            advice = "set TMPDIR to a folder with room, or unpack the file yourself"
            found = f"cannot be unpacked to a temporary file: {error.strerror or error} ({advice})"
            raise InputError(file, found) from None
        yield copy
