"""The files that ``soybean-mx plan --html`` and ``--dot`` write."""
from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Sequence

from soybean_mx import core, progress
from soybean_mx.explorer.dot import dot_text
from soybean_mx.explorer.layers import LayerGraph, layer_graph
from soybean_mx.explorer.page import PageError, check_libraries, page
from soybean_mx.explorer.page_data import page_data
from soybean_mx.explorer.strategies import plan_strategies
from soybean_mx.files import replaced, write_text

__all__ = ["PageError", "layers_of", "write_dot", "write_page"]


def layers_of(graph: Mapping[str, Any], batch_norm: str) -> LayerGraph:
    """The layers of a network, as it is planned.

    Parameters
    ----------
    graph : mapping
        As docs/interface.md says.
    batch_norm : str
        The planner's option, which decides what BatchNorm is written out as.
    """
    return layer_graph(graph, core.space(graph, {"devices": 1, "batch_norm": batch_norm}))


def write_page(path: str, header: Mapping[str, Any], graph: Mapping[str, Any], options: Mapping[str, Any],
               strategies: Sequence[str], search: Callable[[Mapping[str, Any]], Dict[str, Any]]) -> None:
    """Write the explorer's page, with a progress bar on a terminal.

    Parameters
    ----------
    path : str
        Where to.
    header : mapping
        What ``soybean-mx plan --json`` says of the model.
    graph, options : mapping
        As docs/interface.md says; the options' strategy is shown first.
    strategies : sequence of str
        The others.
    search : callable
        Gives the plan for other options.

    Raises
    ------
    PageError
        When the package was built without the page's libraries.
    OSError
        When the file cannot be written, before anything is planned.
    """
    check_libraries()
    selected = options["strategy"]
    names = [*strategies, *([] if selected in strategies else [selected])]

    def plan(name: str) -> Dict[str, Any]:
        return search({**options, "strategy": name, "memory_by_device": True})

    with replaced(path) as temporary, progress.bar("strategies") as advance:
        done = 0

        def begin(_: str) -> None:
            nonlocal done
            if advance is not None:
                advance(done, len(names))
            done += 1

        layers = layers_of(graph, options["batch_norm"])
        planned = plan_strategies(graph, layers, names, selected, plan, options.get("topology"), options["devices"],
                                  begin)
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(page(page_data(header, layers, planned, selected)))


def write_dot(path: str, header: Mapping[str, Any], graph: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Write a plan as a Graphviz graph.

    Parameters
    ----------
    path : str
        Where to.
    header : mapping
        What ``soybean-mx plan --json`` says of the model.
    graph, plan : mapping
        As docs/interface.md says.

    Raises
    ------
    OSError
        When the file cannot be written.
    """
    title = f"{header['model']} on {header['devices']} devices, strategy {header['strategy']}"
    write_text(path, dot_text(title, layers_of(graph, header["batch_norm"]), plan))
