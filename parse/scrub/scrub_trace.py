"""A torch.profiler trace or rocprofv3's JSON -> the same document with the keys that pyprof reads, and clean texts.

A time in a trace is a decimal number of more digits than a float has, so such numbers keep their text.
"""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from pyprof.errors import InputError
from pyprof.parse.formats import rocprof_json
from pyprof.parse.formats.rocm_events import AGENT_KEYS
from pyprof.parse.kineto.event_types import Header, MemoryArgs
from pyprof.parse.scrub.private_text import Cleaner
from pyprof.parse.scrub.private_tree import cleaned_tree, numbers_only

EVENTS = "traceEvents"
# Keys of an event. Others of its keys are kept where they are numbers.
_TEXTS_OF_EVENT = frozenset(("ph", "cat", "name", "id", "s", "bp", "cname"))
_TEXTS_OF_ARGS = frozenset(field.encode_name for field in msgspec.structs.fields(MemoryArgs)) | frozenset(
    ("Process Group Ranks", "Process Group Description", "kernel_backend", "wait_on_stream", "Python id", "Backend")
)
_TEXTS_OF_HEADER = frozenset(field.encode_name for field in msgspec.structs.fields(Header)) | frozenset(
    ("schemaVersion", "displayTimeUnit")
)
_OF_DEVICE = frozenset(("name",))  # of deviceProperties; its numbers stay
# Threads and processes are numbers, written as texts in some traces, and words of Kineto's own.
_OWNER = re.compile(
    r"(?:0x)?[0-9A-Fa-f]{1,20}|-?\d+|stream \d+|GPU \d+|CPU|Spans|Traces|PyTorch Profiler", re.IGNORECASE
)
_TITLES = frozenset(("process_name", "process_labels", "thread_name"))
_ROCPROF = frozenset(("metadata", "agents", "strings", "buffer_records", "kernel_symbols"))
_OF_AGENT = AGENT_KEYS | {"id", "handle"}


def scrub_json(file: Path, text: bytes, cleaner: Cleaner) -> bytes:
    """The document as JSON. Raises InputError if the text is no JSON, or neither a trace of Kineto nor of rocprofv3."""
    try:
        tree = msgspec.json.Decoder(float_hook=Decimal).decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        advice = "make a container of it and scrub that: pyprof parse FILE -o net.pyprof"
        raise InputError(file, f"expected whole JSON, found a broken or cut text ({error}; {advice})") from None
    if isinstance(tree, list):
        tree = {EVENTS: tree}
    if isinstance(tree, dict) and rocprof_json.KEY in tree:
        processes = tree[rocprof_json.KEY]
        kept: Any = {
            rocprof_json.KEY: [_process(p, cleaner) for p in (processes if isinstance(processes, list) else [])]
        }
    elif isinstance(tree, dict) and isinstance(tree.get(EVENTS), list):
        kept = _trace(tree, cleaner)
    else:
        raise InputError(file, f"expected a trace with the key {EVENTS}, found another JSON document")
    return msgspec.json.Encoder(decimal_format="number").encode(kept)


def _trace(tree: dict[str, Any], cleaner: Cleaner) -> dict[str, Any]:
    kept = {key: _of_header(key, value, cleaner) for key, value in tree.items() if key != EVENTS}
    kept = {key: value for key, value in kept.items() if value is not None}
    kept[EVENTS] = [_event(event, cleaner) for event in tree[EVENTS] if isinstance(event, dict)]
    return kept


def _of_header(key: str, value: Any, cleaner: Cleaner) -> Any:
    if key == "deviceProperties" and isinstance(value, list):
        return [_with_texts(device, _OF_DEVICE, cleaner) if isinstance(device, dict) else None for device in value]
    if key in _TEXTS_OF_HEADER:
        return cleaned_tree(value, cleaner)
    return numbers_only(value)


def _with_texts(record: dict[str, Any], texts: frozenset[str], cleaner: Cleaner) -> dict[str, Any]:
    """A record's numbers, and the texts of these keys."""
    pairs = (
        (key, cleaned_tree(value, cleaner) if key in texts else numbers_only(value)) for key, value in record.items()
    )
    return {cleaner.text(key): value for key, value in pairs if value is not None or record[key] is None}


def _event(event: dict[str, Any], cleaner: Cleaner) -> dict[str, Any]:
    args = event.get("args")
    rest = {key: value for key, value in event.items() if key not in ("args", "pid", "tid")}
    kept = _with_texts(rest, _TEXTS_OF_EVENT, cleaner)
    for key in ("pid", "tid"):
        if key in event:
            kept[key] = _owner(event[key], cleaner)
    if isinstance(args, dict) and not (event.get("ph") == "M" and event.get("name") in _TITLES):
        kept["args"] = _with_texts(args, _TEXTS_OF_ARGS, cleaner)
    return kept


def _owner(value: Any, cleaner: Cleaner) -> Any:
    return value if not isinstance(value, str) or _OWNER.fullmatch(value) else cleaner.gone("name")


def _process(process: Any, cleaner: Cleaner) -> dict[str, Any]:
    """A process of rocprofv3's document."""
    known = {key: value for key, value in process.items() if key in _ROCPROF} if isinstance(process, dict) else {}
    metadata = known.get("metadata")
    if "metadata" in known:
        known["metadata"] = {"pid": metadata.get("pid")} if isinstance(metadata, dict) else {}
    if "agents" in known:
        known["agents"] = cleaned_tree(known["agents"], cleaner, _OF_AGENT)
    strings = known.get("strings")
    if isinstance(strings, dict):
        known["strings"] = {key: strings[key] for key in ("buffer_records", "marker_api") if key in strings}
    symbols = known.get("kernel_symbols")
    if isinstance(symbols, list):
        keys = ("kernel_id", "kernel_name", "formatted_kernel_name")
        known["kernel_symbols"] = [{key: s[key] for key in keys if key in s} for s in symbols if isinstance(s, dict)]
    return {key: cleaned_tree(value, cleaner) for key, value in known.items()}
