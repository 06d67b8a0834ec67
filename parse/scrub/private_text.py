"""Removes from a text private data of the machine and its user: folders, names, addresses, ids of devices, secrets.

Three things are known of a private text. Its form shows it: a path, an IP address, a UUID. Or the capture says it
itself: the user in ``/home/alice``, the host in ``HOSTNAME=node17``; these words are then removed wherever they stand.
Or this machine says it: its host name, the user who runs the command.

Of a path its last part remains, with which a line of source stays readable, and what stands behind ``site-packages``.
Different paths stay different: of a second folder's net.py, ``2/net.py`` remains.
"""

import getpass
import re
import socket
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pyprof.parse.formats.python_frames import is_users
from pyprof.source_path import PACKAGES, short_path

SOURCE = r"(?:py|pyx|ipynb|cu|cuh|cpp|cc|cxx|c|h|hpp|hip|sh|json|ya?ml|toml|so[\d.]*)"
_END = r"\s\"'`<>|:;,()\[\]{}*?\\\0"  # what ends a path, unless it is known to be one
_HOMES = r"(?:home|Users)"
_FORMS = (
    ("address", r"(?<![\w+.-])[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s\"'<>]+"),
    ("address", r"(?<![\w.+-])[\w.+-]+@[A-Za-z0-9-]+\.[A-Za-z][\w.-]*"),
    ("device", r"(?<![\w-])(?:GPU-|MIG-)?[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?!\w)"),
    ("environment", r"(?<!\w)\w*(?:HOME|USER|LOGNAME|HOST|HOSTNAME|PATH|PWD|TOKEN|SECRET|PASSWORD|_KEY|SSH_\w+)"
                    r"=(?:\"[^\"]*\"|'[^']*'|[^\s\"']*)"),
    ("secret", r"(?<!\w)(?:sk|hf|gh[opsu]|xox[abp]|AKIA|glpat)[-_]?[A-Za-z0-9_-]{16,}"),
    ("path", r"(?<![A-Za-z0-9])[A-Za-z]:(?:\\{1,4}|/)[^\"'`<>|:;,()\[\]{}*?\r\n\0]*"),
    ("path", rf"(?<!\\)\\{{2,4}}[\w.$-]+\\{{1,2}}(?![\"'])[^{_END[2:]}]*(?:\\{{1,2}}[^{_END}]+)*"),
    ("path", rf"/{_HOMES}/[^/\"'`<>|:;,()\[\]{{}}\0\r\n]{{1,64}}/[^{_END}]*|/{_HOMES}/[^/{_END}]+"),
    ("path", rf"(?<![\w.)\]}}>/~])(?:~[\w.-]*|\.\.)?/[^{_END}]*"),
    ("path", rf"(?<![\w/.])(?:{_HOMES}/[\w.-]+/[^{_END}]*|[\w.+@-]+(?:/[\w.+@-]+)+\.{SOURCE}(?!\w))"),
    ("address", r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.])"),
    ("address", r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){5,7}[0-9A-Fa-f]{1,4}(?![\w:])"),
    ("address", r"(?<![\w:])(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3})::?(?:[0-9a-f]{1,4}:{1,2}){1,6}[0-9a-f]{1,4}"
                r"(?![\w:])"),
    ("host", r"(?<![\w.-])ip-\d+-\d+-\d+-\d+(?:\.[\w.-]+)?"),
    ("host", r"(?<![\w.:-])(?:[A-Za-z0-9-]+\.){2,}(?:com|edu|gov|localdomain|corp|lan)(?![\w.])"),
)  # fmt: skip
_PRIVATE = re.compile("|".join(f"(?P<{kind}{number}>{form})" for number, (kind, form) in enumerate(_FORMS)))
_LOCAL = frozenset(("127.0.0.1", "0.0.0.0"))
_LIBRARIES = ("/site-packages/", "/dist-packages/")
_STANDARD = re.compile(r"/lib/python3\.\d+/")
# Where a file names its user or its host. The bytes of a database's texts and of JSON are searched alike.
_NAMED = re.compile(
    rb"/(?:home|Users)/([^/\s\"'<>:;,()\[\]{}\\\0]{2,64})|[A-Za-z]:\\{1,4}Users\\{1,4}([^\\/\"'<>:\0]{2,64})"
    rb"|(?:^|[\s\0\"';])(?:USER|LOGNAME|USERNAME|HOST|HOSTNAME|COMPUTERNAME|SLURMD_NODENAME|SLURM_JOB_USER|SUDO_USER)="
    rb"[\"']?([\w.@-]{2,100})|\"(?:host_?name|user_?name)\"\s*:\s*\"([^\"\\]{2,100})\"",
    re.IGNORECASE,
)
# Names of accounts and hosts that tell nothing, and words that captures are full of: they are not learned.
_COMMON = frozenset(
    "root user users admin ubuntu debian centos nobody docker jovyan runner ec2-user localhost shared work data test "
    "guest default build public local node host torch aten cuda nccl python pytorch train model linear conv main step "
    "none true false null self kernel forward backward optimizer autograd nvidia module tensor".split()
)
_LEAST = 3  # letters of a learned word


class Cleaner:
    """Cleans texts, and counts what it removes. ``project``: a folder whose paths stay, relative to it."""

    def __init__(self, project: str | None = None) -> None:
        self.removed: Counter[str] = Counter()  # by kind: path, address, host or user, ...
        self.words: set[str] = set()
        self._project = None if project is None else str(Path(project).absolute()).replace("\\", "/").rstrip("/")
        self._words: re.Pattern[str] | None = None
        self._known: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self._folders: dict[str, int] = {}  # how many paths have the same short form
        self.learn((getpass_user(), socket.gethostname(), socket.gethostname().partition(".")[0]))

    def learn_from(self, content: bytes) -> None:
        """Learn the words by which a part of a file names its user or host."""
        found = (next(filter(None, match.groups())) for match in _NAMED.finditer(content))
        self.learn(word.decode("utf-8", "replace") for word in found)

    def learn(self, words: Iterable[str]) -> None:
        """Words to be removed wherever they stand. Of a host's full name the first part is one, too."""
        for word in words:
            for part in {word, word.partition(".")[0]}:
                if len(part) >= _LEAST and part.lower() not in _COMMON and not part.isdigit():
                    self.words.add(part)
        self._known.clear()
        listed = "|".join(re.escape(word) for word in sorted(self.words, key=lambda word: (-len(word), word)))
        self._words = re.compile(rf"(?<![A-Za-z0-9])(?:{listed})(?![A-Za-z0-9])", re.IGNORECASE) if listed else None

    def known(self, texts: dict[str, str]) -> None:
        """What stands in the place of texts that were cleaned elsewhere."""
        self._known.update(texts)

    def text(self, text: str) -> str:
        """The text without what is private; what was removed is named in brackets: [address]."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._cleaned(text)
        return found

    def _cleaned(self, text: str) -> str:
        if "\0" in text:  # a block of the environment, or bytes that are no text
            return self.gone("environment")
        text = _PRIVATE.sub(self._replaced, text)
        if self._words is not None:
            text = self._words.sub(lambda _: self.gone("name"), text)
        return text

    def gone(self, kind: str) -> str:
        """What stands in the place of a text that is removed as a whole."""
        self.removed[kind] += 1
        return f"[{kind}]"

    def _replaced(self, match: re.Match[str]) -> str:
        kind, found = str(match.lastgroup).rstrip("0123456789"), match[0]
        if kind == "path":
            rest = found.rstrip(" .")
            kept = self.path(rest)
            if kept != rest:
                self.removed[kind] += 1
            return kept + found[len(rest) :]
        return found if found in _LOCAL else self.gone(kind)

    def path(self, path: str) -> str:
        """What remains of a path."""
        if path not in self._paths:
            self._paths[path] = self._short(re.sub(r"\\+", "/", path))
        return self._paths[path]

    def _short(self, path: str) -> str:
        for folder in _LIBRARIES:
            if folder in path:
                return folder + path.rpartition(folder)[2]
        if match := _STANDARD.search(path):
            return path[match.start() :]
        parts = [part for part in path.split("/") if part]
        if len(parts) < 2 and parts != ["root"]:
            return path  # a division, or a file in the root
        if self._project and (path.startswith(f"{self._project}/") or not _is_absolute(path)):
            return path.removeprefix(f"{self._project}/")
        if parts[0] in PACKAGES or not is_users(short_path(path)):
            return short_path(path)
        name = parts[-1] if re.search(rf"\.{SOURCE}$", parts[-1]) else ""
        number = self._folders[name] = self._folders.get(name, 0) + 1
        if not name:
            return "[path]" if number == 1 else f"[path {number}]"
        kept = name if number == 1 else f"{number}/{name}"
        return kept if is_users(kept) else f"./{kept}"


def _is_absolute(path: str) -> bool:
    return path.startswith(("/", "~", "..")) or path[1:2] == ":" or re.match(rf"{_HOMES}/", path) is not None


def getpass_user() -> str:
    """The name of the user who runs this process; empty if it has none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # Python before 3.13, and since
        return ""


def private_parts(text: str) -> list[str]:
    """The parts of a text that would be removed from it, for the search of what remains."""
    cleaner = Cleaner()
    return [match[0] for match in _PRIVATE.finditer(text) if cleaner.text(match[0]) != match[0]]
