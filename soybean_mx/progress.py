"""What is going on, where that takes more than a second: on the standard error, and only where that is a terminal."""
from __future__ import annotations

import contextlib
import sys
from typing import Callable, Iterator, Optional

Advance = Callable[[int, int], None]


@contextlib.contextmanager
def bar(what: str) -> Iterator[Optional[Advance]]:
    """Gives a function that is told how many of how many are done, or None where nobody would see it.

    Parameters
    ----------
    what : str
        What is counted, such as ``"operators"``.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                  console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Says what is being done, where nothing can be counted.

    Parameters
    ----------
    what : str
        Such as ``"planning vgg16"``.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
