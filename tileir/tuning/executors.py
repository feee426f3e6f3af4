"""Where candidates are worked on: this process, others, or a cluster – anything that is a `concurrent.futures.Executor`."""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Generator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

KINDS = "processes, threads or dask:ADDRESS"


class UnknownExecutor(ValueError):
    """A kind of executor that does not exist, or that cannot be reached; the message says which do."""


class Here(Executor):
    """Does the work when it is submitted, in this thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as e:  # like every executor: whoever asks for the result gets it
            future.set_exception(e)
        return future


@contextmanager
def executor_of(kind: str, jobs: int) -> Generator[Executor]:
    """An executor by its name on the command line; with one job, this process does the work. Raises UnknownExecutor."""
    if kind.startswith("dask:"):
        with _dask(kind.removeprefix("dask:")) as executor:
            yield executor
    elif kind not in ("processes", "threads"):
        raise UnknownExecutor(f"there is no executor '{kind}'; there are {KINDS}")
    elif jobs == 1:
        yield Here()
    elif kind == "threads":
        with ThreadPoolExecutor(jobs) as executor:
            yield executor
    else:
        # a fresh process: one that forks has copies of the locks of our threads
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as executor:
            yield executor


def default_jobs() -> int:
    """As many as there are processors for this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _dask(address: str) -> Generator[Executor]:
    try:
        distributed: Any = importlib.import_module("dask.distributed")
    except ImportError:
        raise UnknownExecutor("dask:ADDRESS needs the package 'distributed': pip install distributed") from None
    if not address:
        raise UnknownExecutor("dask:ADDRESS wants the address of a scheduler, such as dask:tcp://10.0.0.1:8786")
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, ValueError) as e:
        raise UnknownExecutor(f"there is no scheduler at '{address}': {e}") from None
    try:
        yield client.get_executor(pure=False)
    finally:
        client.close()
