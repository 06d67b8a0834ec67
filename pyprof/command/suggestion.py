"""What a mistyped name may have meant, for messages: ``'kernal' is no column: did you mean 'kernel'?``"""

import difflib
import re
from collections.abc import Iterable

ALIKE = 0.7  # least similarity (difflib's ratio), from 0 to 1
MOST = 3  # names that are suggested
CANDIDATES = 5000  # names that are compared
LONGEST = 100  # characters that are compared; the names may come from a capture
SHORTEST = 3  # letters that a name must have to match as the beginning of a longer one
SPLIT = re.compile(r"::|\.")


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """``: did you mean 'a' or 'b'?``, or nothing if no name resembles the word.

    >>> did_you_mean("kernal", ["kernel", "op"]), did_you_mean("xyz", ["kernel"])
    (": did you mean 'kernel'?", '')
    """
    found = resembling(word, names)
    return f": did you mean {' or '.join(map(repr, found))}?" if found else ""


def resembling(word: str, names: Iterable[str]) -> list[str]:
    """The names that resemble a word, the best first: equal but for case or prefix, a beginning of it, or similar.

    >>> resembling("torch.nn.functional.Linear", ["linear", "bilinear"]), resembling("silicon", ["tid", "sil"])
    (['linear'], ['sil'])
    """
    listed = [name for _, name in zip(range(CANDIDATES), names, strict=False) if name]
    wanted = _plain(word)
    same = [name for name in listed if _plain(name) == wanted]
    if same or not wanted:
        return same[:MOST]
    begun = [name for name in listed if _begins(_plain(name), wanted) or _begins(wanted, _plain(name))]
    by_plain = {_plain(name): name for name in reversed(listed)}
    similar = difflib.get_close_matches(wanted, by_plain, MOST, ALIKE)
    return list(dict.fromkeys([*(by_plain[text] for text in similar), *sorted(begun, key=len)]))[:MOST]


def _plain(name: str) -> str:
    """Lower case, without module or namespace."""
    return SPLIT.split(name[-LONGEST:].lower())[-1]


def _begins(part: str, whole: str) -> bool:
    return len(part) >= SHORTEST and whole.startswith(part)
