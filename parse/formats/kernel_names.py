"""Kernel names: demangled, and short as nsys and nvprof print them (without namespaces, templates and parameters)."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

_OPEN = {"(": ")", "[": "]", "{": "}", "<": ">"}
_ANONYMOUS = ("(anonymous namespace)", "<unnamed>", "(anonymous class)")
_OPERATOR = re.compile(r"operator\s*(?:\(\)|\[\]|<=>|<<=?|>>=?|->\*?|[<>]=?)")
_LENGTH = re.compile(r"\d{1,4}")  # the length of a name in a mangled name
_CLONE = re.compile(r"(?: \[clone [^\]]*\])+$|\.kd$")


LONGEST = 1 << 16  # characters; names of kernels with many templates reach 20,000


def kept(name: str, longest: int = LONGEST) -> str:
    """The name, without its middle if it is far longer than the name of any kernel."""
    if len(name) <= longest:
        return name
    half = longest // 2
    return f"{name[:half]}..({len(name) - longest:,} characters are left out)..{name[-half:]}"


def demangle(name: str) -> str:
    """``_ZN2at3addEv`` -> ``at::add()``. A name that is not validly mangled is returned as it is (see ``kept``)."""
    name = kept(name)
    if not name.startswith(("_Z", "__Z")):
        return name
    demangler, error = _demangler()
    try:
        return str(demangler.demangle(name))
    except (error, UnicodeError):
        return name


@cache
def _demangler() -> tuple[Any, type[Exception]]:
    """What demangles, and its error. It returns names as they are where the system has no C++ library."""
    import cxxfilt

    try:
        cxxfilt.demangle("_ZN1aE")
    except cxxfilt.LibraryNotFound:  # neither ldconfig nor a compiler is there to look it up, as in small containers
        try:
            return cxxfilt.Demangler("libc.so.6", "libstdc++.so.6"), cxxfilt.Error
        except OSError:
            return cxxfilt, cxxfilt.Error
    return cxxfilt, cxxfilt.Error


def short_name(long: str) -> str:
    """The bare name of a kernel's function.

    >>> short_name("void at::native::(anonymous namespace)::gather<float, 2>(float*, int)::{lambda(int)#1}::operator()")
    'gather'
    >>> short_name("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN")
    'nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN'
    """
    long = kept(long)
    name = _CLONE.sub("", demangle(long))
    if name.startswith("_Z"):
        return _mangled(name) or long
    last = ""
    for part in _parts(name):
        if part and (not part.startswith("operator") or not last):
            last = part
    return last or long


def _mangled(name: str) -> str:
    """The innermost name in a mangled name that demanglers reject, as in cuDNN's CUTLASS kernels (seen in 9.x)."""
    at = 3 if name.startswith("_ZN") else 2
    innermost = ""
    while (length := _LENGTH.match(name, at)) is not None:
        at = length.end() + int(length[0])
        innermost = name[length.end() : at]
    return innermost


def _parts(name: str) -> Iterator[str]:
    """The components of a qualified name, without bracketed parts; lambdas and anonymous namespaces are empty."""
    closing: list[str] = []
    part = ""
    at = 0
    while at < len(name):
        char = name[at]
        operator = _OPERATOR.match(name, at) if char == "o" and not closing else None
        anonymous = next((word for word in _ANONYMOUS if name.startswith(word, at)), "") if char in "(<" else ""
        if operator or anonymous:
            word = operator[0] if operator else anonymous
            part += word if operator and not part else ""
            at += len(word)
            continue
        if closing:
            at += 1
            _nest(closing, char, name[at - 2])
            continue
        if char in _OPEN and not (char == "<" and not part):
            if char == "(" and not _continues(name, at):
                break
            closing.append(_OPEN[char])
        elif name.startswith("::", at):
            yield part
            part = ""
            at += 1
        elif char == " ":
            part = ""  # the text before it is the return type
        else:
            part += char
        at += 1
    yield part


def _nest(closing: list[str], char: str, before: str) -> None:
    """Update the stack of open brackets. A > closes only a <; the > in -> is not a bracket."""
    if char == closing[-1] and not (char == ">" and before == "-"):
        closing.pop()
    elif char in _OPEN and not (char == "<" and closing[-1] != ">" and before in " <"):
        closing.append(_OPEN[char])


def _continues(name: str, at: int) -> bool:
    """Whether a scope follows the parameter list that opens at ``at``: f(int)::{lambda()#1}::operator()."""
    closing = [")"]
    for index in range(at + 1, len(name)):
        if not closing:
            return re.match(r"(?: const)?::", name[index : index + 8]) is not None
        _nest(closing, name[index], name[index - 1])
    return False
