"""Loops and branches in a symbol: ``_foreach``, ``_while_loop`` and ``_cond``, whose bodies are symbols of their own.

Such an operator is computed whole on one device. Two things must be done about it before a graph is planned.

**Gradients.** MXNet 1.9.1 does not compute all of them rightly, on one device as on many:

- ``_cond`` does not write the gradient of an input that the branch not taken uses alone, nor ``_while_loop`` that of an
  input when there is no iteration: what was in the memory before is taken for it.
- Where the gradient of a body's input is at the same time one of another tensor (``a + b`` hands it on), ``_foreach``
  adds up the iterations in the memory of both, and everything behind it is wrong; or nothing is added up.
- Where a body's gradient does not read all of its inputs, or the condition of a loop reads what the loop does not, the
  graph often cannot be bound (``storage_type_num_unknown_nodes``; ``outputs.size() == num_forward_outputs``).
- A ``_while_loop`` of no iteration leaves its executor in a state in which it fails when there are some the next time.

:func:`with_sound_gradients` gives the bodies of ``_foreach`` and ``_cond`` a further output for each of their inputs:
the input's first element, of which nobody reads anything. So each input has a gradient of its own in each body, a sum,
which is what MXNet treats rightly. What ``_while_loop`` only reads becomes a variable of the loop that it hands on, and
an executor with such a loop is used once (:func:`is_used_once`).

**Shapes.** MXNet infers none behind ``_cond`` and ``_while_loop``, since branches could differ. A tiled graph has fixed
shapes: :func:`without_bodies` writes the bodies into the graph, for inference only.
"""
from __future__ import annotations

import ast
import json
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

import mxnet as mx
import numpy as np

Json = Dict[str, Any]
Entry = Tuple[int, int]  # a node's position and one of its outputs

_VERSION = 10901
_LOOPS_AND_BRANCHES = ("_foreach", "_while_loop", "_cond")  # oneDNN's fused operators have graphs inside, too
_MARK = '"subgraphs"'  # without it a symbol's text, which may be long, need not be parsed
# Behind these MXNet infers no shapes.
_OF_UNKNOWN_SHAPE = ("_cond", "_while_loop")


def may_have_bodies(text: str) -> bool:
    """Whether a symbol's JSON text could contain loops or branches; quickly."""
    return _MARK in text


def has_bodies(graph: Json) -> bool:
    """Whether a symbol's JSON contains loops or branches."""
    return any(node["op"] in _LOOPS_AND_BRANCHES for node in graph["nodes"])


def hides_shapes(graph: Json) -> bool:
    """Whether MXNet's shape inference ends somewhere in a symbol's JSON."""
    return any(node["op"] in _OF_UNKNOWN_SHAPE for node in graph["nodes"])


def is_used_once(graph: Json) -> bool:
    """Whether an executor of a symbol's JSON must not run a second time."""
    return any(node["op"] == "_while_loop" or any(map(is_used_once, node.get("subgraphs", ())))
               for node in graph["nodes"])


def with_sound_gradients(symbol: mx.sym.Symbol, types: Mapping[str, Any]) -> mx.sym.Symbol:
    """The symbol with loops and branches whose gradients MXNet computes rightly.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
        A symbol whose nodes all have different names.
    types : mapping of str to numpy type
        The type of each of its variables.

    Returns
    -------
    mxnet.symbol.Symbol
        One with the same variables and outputs.
    """
    text = symbol.tojson()
    if not may_have_bodies(text) or not has_bodies(json.loads(text)):
        return symbol
    return _load(_with_handed_on(json.loads(text), types))


def _load(graph: Json) -> mx.sym.Symbol:
    # Without its version, MXNet takes a graph for an old one, and adds variables to operators.
    return mx.sym.load_json(json.dumps({**graph, "attrs": {"mxnet_version": ["int", _VERSION]}}))


# -- the operators' attributes -------------------------------------------------------------------------------------


class _Body:
    """A body of an operator, and which of the operator's inputs each of its variables is."""

    def __init__(self, graph: Json, positions: Sequence[int]):
        names = _load(graph).list_inputs()
        self.graph = graph
        self.position_of: Dict[str, int] = dict(zip(names, positions))

    def variable(self, position: int, name: str) -> str:
        """The variable that an input is; a new one of that name where the body has none."""
        for known, place in self.position_of.items():
            if place == position:
                return known
        self.graph["nodes"].append({"op": "null", "name": name, "inputs": []})
        self.position_of[name] = position
        return name

    def add(self, op: str, name: str, attributes: Dict[str, str], source: Entry) -> Entry:
        """A new node of one input."""
        nodes = self.graph["nodes"]
        nodes.append({"op": op, "name": name, "attrs": attributes, "inputs": [[*source, 0]]})
        return len(nodes) - 1, 0

    def entry(self, variable: str) -> Entry:
        """A variable's place among the nodes."""
        names = [node["name"] if node["op"] == "null" else None for node in self.graph["nodes"]]
        return names.index(variable), 0

    def first_element(self, variable: str) -> Entry:
        """The first element of a variable, as a vector of one."""
        flat = self.add("_np_reshape", f"{variable}~flat", {"newshape": "(-1,)"}, self.entry(variable))
        return self.add("slice_axis", f"{variable}~first", {"axis": "0", "begin": "0", "end": "1"}, flat)

    def positions(self) -> List[int]:
        """Which input each variable is, in the order in which MXNet takes them."""
        self.graph["arg_nodes"] = [index for index, node in enumerate(self.graph["nodes"]) if node["op"] == "null"]
        return [self.position_of[name] for name in _load(self.graph).list_inputs()]


def _locations(node: Json, name: str) -> List[int]:
    value = ast.literal_eval(node["attrs"][name])
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _positions(node: Json) -> List[List[int]]:
    """For each body of an operator: which of the operator's inputs each of the body's inputs is."""
    if node["op"] == "_cond":
        return [_locations(node, f"{which}_input_locs") for which in ("cond", "then", "else")]
    if node["op"] == "_while_loop":
        return [_locations(node, f"{which}_input_locs") for which in ("cond", "func")]
    places = [place for kind in ("data", "state") for place in _locations(node, f"in_{kind}_locs")]
    places += _locations(node, "remain_locs")
    return [[places.index(place) for place in range(len(places))]]


def _bodies(node: Json) -> List[_Body]:
    return [_Body(graph, positions) for graph, positions in zip(node["subgraphs"], _positions(node))]


def _set(node: Json, **values: Any) -> None:
    node["attrs"].update({name: str(value) for name, value in values.items()})


# -- gradients -----------------------------------------------------------------------------------------------------


def _with_handed_on(graph: Json, types: Mapping[str, Any]) -> Json:
    """The graph, all of whose bodies give an element of each input too."""
    graph, type_of = _with_types(graph, types)
    shifts: Dict[int, Tuple[int, int]] = {}  # by node: from which output on, and by how much, numbers have grown
    for index, node in enumerate(graph["nodes"]):
        given = [type_of[entry[0], entry[1]] for entry in node["inputs"]]
        for entry in node["inputs"]:
            _shift(entry, shifts)
        if node["op"] not in _LOOPS_AND_BRANCHES:
            continue
        for body, positions in zip(node["subgraphs"], _positions(node)):
            names = _load(body).list_inputs()
            body.update(_with_handed_on(body, {name: given[place] for name, place in zip(names, positions)}))
        floating = [place for place, dtype in enumerate(given) if np.dtype(dtype).kind == "f"]
        before = int(node["attrs"].get("num_out_data", 0))
        added = _HAND_ON[node["op"]](node, floating)
        if added:
            shifts[index] = (before, added)
    for entry in graph["heads"]:
        _shift(entry, shifts)
    graph.pop("node_row_ptr", None)
    return graph


def _shift(entry: List[int], shifts: Mapping[int, Tuple[int, int]]) -> None:
    begin, added = shifts.get(entry[0], (0, 0))
    if entry[1] >= begin:
        entry[1] += added


def _with_types(graph: Json, types: Mapping[str, Any]) -> Tuple[Json, Dict[Entry, Any]]:
    """The graph as MXNet writes it, and the type of each output of its nodes."""
    symbol = _load(graph)
    internals = symbol.get_internals()
    known = {name: np.dtype(types[name]) for name in symbol.list_inputs() if name in types}
    _, found, _ = internals.infer_type(**known)
    heads = json.loads(internals.tojson())["heads"]
    return json.loads(symbol.tojson()), {(node, output): kind for (node, output, _), kind in zip(heads, found)}


def _hand_on_foreach(node: Json, floating: Sequence[int]) -> int:
    """New outputs of each step, before the states; how many."""
    (body,), heads = _bodies(node), node["subgraphs"][0]["heads"]
    count = int(node["attrs"]["num_out_data"])
    states, data = len(_locations(node, "in_state_locs")), len(_locations(node, "in_data_locs"))
    new = [[*body.first_element(body.variable(place, f"input{place}")), 0] for place in floating]
    heads[count:count] = new
    places = body.positions()
    _set(node, num_out_data=count + len(new), num_outputs=len(heads),
         in_data_locs=[places.index(place) for place in range(data)],
         in_state_locs=[places.index(place) for place in range(data, data + states)],
         remain_locs=[places.index(place) for place in range(data + states, len(places))])
    return len(new)


def _hand_on_while(node: Json, floating: Sequence[int]) -> int:
    """As new variables of the loop, behind the others, all that it only reads."""
    condition, body = _bodies(node)
    heads = body.graph["heads"]
    places = body.positions()
    variables = [places[place] for place in _locations(node, "func_var_locs")]
    for place in floating:
        if place not in variables:
            name = body.variable(place, f"input{place}")
            heads.append([*body.add("_copy", f"{name}~same", {}, body.entry(name)), 0])
            variables.append(place)
    places = body.positions()
    _set(node, num_outputs=len(heads), func_input_locs=places,
         func_var_locs=[places.index(place) for place in variables], cond_input_locs=condition.positions())
    return 0


def _hand_on_cond(node: Json, floating: Sequence[int]) -> int:
    """New outputs of both branches, behind the others."""
    _, *branches = _bodies(node)
    for branch, which in zip(branches, ("then", "else")):
        branch.graph["heads"] += [[*branch.first_element(branch.variable(place, f"input{place}")), 0]
                                  for place in floating]
        _set(node, **{f"{which}_input_locs": branch.positions()})
    _set(node, num_outputs=len(branches[0].graph["heads"]))
    return 0


_HAND_ON = {"_foreach": _hand_on_foreach, "_while_loop": _hand_on_while, "_cond": _hand_on_cond}


# -- shapes --------------------------------------------------------------------------------------------------------


def internals_with_shapes(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    """What has the shapes of all outputs of all nodes, as far as MXNet can infer any.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
        A symbol.

    Returns
    -------
    mxnet.symbol.Symbol
        As many outputs as ``symbol.get_internals()`` has, each of the same shape. They hold other values where there
        are branches and loops.
    """
    internals = symbol.get_internals()
    text = internals.tojson()
    if not may_have_bodies(text) or not hides_shapes(json.loads(text)):
        return internals
    graph = json.loads(text)
    flat = _Flat()
    where = flat.write(graph, {}, "")
    return _load(flat.graph([flat.at(where, head) for head in graph["heads"]]))


class _Flat:
    """Nodes that graphs are written into."""

    def __init__(self) -> None:
        self._nodes: List[Json] = []

    def graph(self, heads: Iterable[Entry]) -> Json:
        """A symbol's JSON of all nodes and those heads."""
        variables = [index for index, node in enumerate(self._nodes) if node["op"] == "null"]
        return {"nodes": self._nodes, "arg_nodes": variables, "heads": [[*head, 0] for head in heads]}

    def write(self, graph: Json, variables: Mapping[str, Entry], prefix: str) -> List[List[Entry]]:
        """Write a graph's nodes; where the outputs of each are (one item only for a node that is taken over)."""
        where: List[List[Entry]] = []
        for node in graph["nodes"]:
            inputs = [self.at(where, entry) for entry in node["inputs"]]
            if node["op"] == "null" and node["name"] in variables:
                where.append([variables[node["name"]]])
            elif node["op"] in _OF_UNKNOWN_SHAPE:
                where.append(self._outputs_of(node, inputs, f"{prefix}{node['name']}~"))
            else:
                where.append([self._add({**node, "name": prefix + node["name"]}, inputs)])
        return where

    @staticmethod
    def at(where: Sequence[Sequence[Entry]], entry: Sequence[int]) -> Entry:
        """Where an output of a written node is."""
        places = where[entry[0]]
        return places[entry[1]] if len(places) > 1 else (places[0][0], places[0][1] + entry[1])

    def _add(self, node: Json, inputs: Iterable[Entry]) -> Entry:
        self._nodes.append({**node, "inputs": [[*entry, 0] for entry in inputs]})
        return len(self._nodes) - 1, 0

    def _outputs_of(self, node: Json, inputs: Sequence[Entry], prefix: str) -> List[Entry]:
        """What has the shapes of the outputs of a branch or loop."""
        body = node["subgraphs"][1]
        names = _load(body).list_inputs()
        given = {name: inputs[place] for name, place in zip(names, _positions(node)[1])}
        where = self.write(body, given, prefix)
        results = [self.at(where, head) for head in body["heads"]]
        if node["op"] == "_while_loop":
            for index in range(int(node["attrs"]["num_out_data"])):
                row = self._add({"op": "expand_dims", "name": f"{prefix}row{index}", "attrs": {"axis": "0"}},
                                [results[index]])
                attributes = {"axis": "0", "size": node["attrs"]["max_iterations"]}
                results[index] = self._add({"op": "broadcast_axis", "name": f"{prefix}rows{index}",
                                            "attrs": attributes}, [row])
        return results
