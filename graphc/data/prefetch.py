"""Making batches ahead of their use, in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Task = TypeVar("Task")
Made = TypeVar("Made")


def made_ahead(
    tasks: Iterator[Task], make: Callable[[Task], Made], depth: int, workers: int
) -> Iterator[tuple[Task, Made]]:
    """Each task with what is made of it, in order; `depth` of them are made ahead.

    An error is raised where its result would come. The threads end with the iterator, after what
    they are just making: it may be dropped at any time, also by one of the threads, if that is
    where the garbage collector runs. So it does not wait for them.
    """
    if not depth:
        yield from ((task, make(task)) for task in tasks)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="graphc-data")
    waiting: deque[tuple[Task, Future[Made]]] = deque()
    try:
        for task in tasks:
            waiting.append((task, pool.submit(make, task)))
            if len(waiting) > depth:
                yield _first(waiting)
        while waiting:
            yield _first(waiting)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _first(waiting: deque[tuple[Task, Future[Made]]]) -> tuple[Task, Made]:
    task, future = waiting.popleft()
    return task, future.result()
