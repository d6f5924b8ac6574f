"""``soybean-mx explain``: why a layer is cut as it is, and what each other way to cut it would cost."""
from __future__ import annotations

import argparse
import json
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Dict, Iterable, List, Sequence

from soybean_mx import pins as user_pins
from soybean_mx import progress
from soybean_mx import topology as topologies
from soybean_mx.plan_command import (
    ArgumentError,
    add_model_arguments,
    add_planner_arguments,
    load_model,
    planner_options,
    search,
)

# Operators that one command explains: each takes a search for every way to cut it.
_MOST_OPERATORS = 12
_WILD = "*?["


def add(commands) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "explain", help="say why a layer is cut as it is", description=(
            "Say how a layer of a model is cut, and what each other way to cut it would cost: the rest is planned "
            "again for each."))
    add_model_arguments(parser)
    parser.add_argument("layer", metavar="LAYER",
                        help="an operator, a parameter of it, or a shell pattern such as '*dense?_fwd'")
    add_planner_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(function=run, prog=parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; raises what :func:`soybean_mx.cli.main` tells."""
    from soybean_mx import core, explain_report, plan_report
    from soybean_mx.explanation import MOST_ALTERNATIVES, explain
    from soybean_mx.explorer.layers import layer_graph

    topology = topologies.load(arguments.topology) if arguments.topology else None
    options = planner_options(arguments, topology)
    loaded = load_model(arguments)
    graph = loaded.graph
    with progress.waiting(f"planning {loaded.name}"):
        plan = search(graph, options)
    # Pins of the environment hold for the other plans too.
    names = {node["name"] for node in json.loads(graph["symbol"])["nodes"]}
    given = options.get("pins") or user_pins.matching(user_pins.from_environment(), names)
    options = {**options, **({"pins": given} if given else {})}
    # Pins would leave the pinned choice alone in the space.
    space = core.space(graph, {name: value for name, value in options.items() if name != "pins"})
    layers = layer_graph(graph, space)
    nodes = {node["name"]: node for node in space["nodes"]}
    chosen = matching(arguments.layer, layers)
    total = sum(min(len(nodes[operator.name]["choices"]) - 1, MOST_ALTERNATIVES) for operator in chosen)
    trained = {node["name"] for node in space["nodes"] if node["role"] == "parameter" and node["requires_grad"]}
    with progress.bar("plans with another cut") as advance:
        count = _Count(advance, total)
        explained = [explain(operator, nodes[operator.name], trained, layers, plan, options,
                             lambda changed: core.plan(graph, changed), count.one_more) for operator in chosen]
    header = {"model": loaded.name, "batch_size": loaded.batch_size, "devices": plan["devices"], "cuts": plan["cuts"],
              "topology": None if topology is None else topology.to_json(), **plan_report.summary(plan)}
    if arguments.json:
        print(json.dumps({**header, "operators": [explain_report.to_json(item, header) for item in explained]},
                         indent=1))
    else:
        explain_report.print_explanations(plan_report.console(), header, explained)
    return 0


class _Count:
    """Tells a progress bar of each plan."""

    def __init__(self, advance, total: int) -> None:
        self._advance, self._total, self._done = advance, total, 0

    def one_more(self) -> None:
        self._done += 1
        if self._advance is not None:
            self._advance(self._done, self._total)


def matching(text: str, layers) -> List[Any]:
    """The operators that a user means.

    Parameters
    ----------
    text : str
        The name of an operator, of a layer as the explorer's page calls it, of a parameter or another tensor; or a
        shell pattern on the names of operators and parameters.
    layers : soybean_mx.explorer.layers.LayerGraph
        The network.

    Returns
    -------
    list of soybean_mx.explorer.layers.Operator
        For a parameter, those that read it.

    Raises
    ------
    ArgumentError
        When there is none, or too many; names that are alike are in the message.
    """
    from soybean_mx.explorer.page_data import short_names

    operators = [operator for layer in layers.layers for operator in layer.operators]
    by_name: Dict[str, Sequence[Any]] = {}
    for label, layer in zip(short_names([layer.name for layer in layers.layers]), layers.layers):
        if layer.operators:
            by_name[label] = [layer.main]
    for tensor in layers.tensors.values():
        if tensor.role in ("parameter", "auxiliary", "input"):
            by_name[tensor.name] = [operator for operator in operators if tensor.name in operator.inputs]
    by_name.update({name: [operator] for operator in operators for name in (*operator.outputs, operator.name)})
    if text in by_name:
        found = list(by_name[text])
    elif any(character in text for character in _WILD):
        own = {operator.name for operator in operators if operator.name == operator.origin}
        parameters = {name for layer in layers.layers for name in layer.parameters}
        found = _distinct(operator for name, own_operators in by_name.items()
                          if name in own | parameters and fnmatchcase(name, text) for operator in own_operators)
    else:
        found = []
    if not found:
        alike = get_close_matches(text, by_name, n=3, cutoff=0.5)
        raise ArgumentError(f"The model has no layer {text!r}: " + (
            f"did you mean {', '.join(alike)}?" if alike else "`soybean-mx plan` prints their names."))
    if len(found) > _MOST_OPERATORS:
        raise ArgumentError(f"{text!r} matches {len(found)} operators, but {_MOST_OPERATORS} at most are explained at "
                            f"a time: give a narrower pattern, such as {found[0].name!r}.")
    return found


def _distinct(operators: Iterable[Any]) -> List[Any]:
    return list({operator.name: operator for operator in operators}.values())

