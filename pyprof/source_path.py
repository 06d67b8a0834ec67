"""What is shown of a source file's path: enough to find the file, and nothing of the machine or its user."""

import re

_HOMES = ("home", "Users")
_ABSOLUTE = re.compile(r"(?<![\w.])(?:[A-Za-z]:[\\/]|/)[^\s\"'<>|:;,()]+[\\/][^\s\"'<>|:;,()]+")


def short_path(path: str) -> str:
    """The part after site-packages or the standard library's folder, or else the last two parts of an absolute path.

    A user's home folder is not shown, also where the file is directly in it.

    >>> short_path("/home/me/work/nets/net.py"), short_path("nets/deep/er/net.py"), short_path("/home/me/net.py")
    ('nets/net.py', 'nets/deep/er/net.py', 'net.py')
    """
    path = path.replace("\\", "/")
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in path:
            return path.rpartition(folder)[2]
    absolute = path.startswith("/") or path[1:3] == ":/"
    if not absolute:
        return path
    if re.search(r"/lib/python3\.\d+/", path):  # the standard library
        return path.rpartition("/lib/python3.")[2].partition("/")[2]
    parts = path.split("/")
    in_home = parts[-3:-2] in ([home] for home in _HOMES) or parts[:-1] == ["", "root"]
    return parts[-1] if in_home else "/".join(parts[-2:])


def short_line(line: str) -> str:
    """The same of a path with a line's number: ``/home/me/nets/net.py:12``."""
    path, colon, number = line.rpartition(":")
    return f"{short_path(path)}:{number}" if colon and number.isdigit() else short_path(line)


def without_folders(text: str) -> str:
    """A message of a profiler's with its absolute paths short.

    >>> without_folders("symbols found in /home/me/env/lib/libcudnn.so are not complete")
    'symbols found in lib/libcudnn.so are not complete'
    """
    return _ABSOLUTE.sub(lambda match: short_path(match[0]), text)
