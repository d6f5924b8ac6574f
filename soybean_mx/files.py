"""Files that are there whole, or not at all."""
from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from typing import Any, Iterator


def write_json(path: str, value: Any) -> None:
    """Write a value as JSON, under a temporary name first.

    Parameters
    ----------
    path : str
        Where to; an existing file is replaced.
    value : object
        What ``json`` can write.

    Raises
    ------
    OSError
        When the folder is not there or cannot be written to.
    """
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: str, text: str) -> None:
    """Write a text in UTF-8, under a temporary name first.

    Parameters
    ----------
    path : str
        Where to; an existing file is replaced.
    text : str
        What the file shall hold.

    Raises
    ------
    OSError
        When the folder is not there or cannot be written to.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str, content: bytes) -> None:
    """Write bytes, under a temporary name first.

    Parameters
    ----------
    path : str
        Where to; an existing file is replaced.
    content : bytes
        What the file shall hold.

    Raises
    ------
    OSError
        When the folder is not there or cannot be written to.
    """
    with replaced(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


@contextmanager
def replaced(path: str) -> Iterator[str]:
    """Gives the name of an empty file that takes the place of another when the block ends, unless it raises.

    Parameters
    ----------
    path : str
        What is to be replaced, or made.

    Raises
    ------
    OSError
        When the folder is not there or cannot be written to.
    """
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
    os.close(handle)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's own mode lets nobody else read
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
