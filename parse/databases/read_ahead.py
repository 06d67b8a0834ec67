"""An iterator that runs in a thread of its own while its caller works on what it has given."""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue
from threading import Event
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Callable[[], Iterator[Item]], most: int) -> Generator[Item, None, None]:
    """The items of ``items()``, which is called and runs in another thread, at most ``most`` items ahead.

    Whatever it opens belongs to that thread alone. SQLite and numpy release Python's lock while they work, so both
    threads do. Its errors are raised here. A caller that leaves early closes the generator, which waits for the item
    that is being made.
    """
    ready: Queue[Item | None] = Queue(most)  # None: no further item comes
    left = Event()

    def run() -> None:
        try:
            for item in items():
                ready.put(item)
                if left.is_set():
                    return
        finally:
            ready.put(None)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            while (item := ready.get()) is not None:
                yield item
            running.result()
        finally:
            left.set()
            while not running.done():  # it may be waiting to hand over an item
                _drop(ready)


def _drop(ready: Queue[Item]) -> None:
    try:
        ready.get(timeout=0.01)
    except Empty:
        return
