"""Whether the tensors of an executor may share memory one after the other, on CPU contexts."""
from __future__ import annotations

import json
import re
from typing import Set

# Operators that take an input for its shape alone, and which.
_FIRST = r"zeros_like|ones_like|_np\w*_(?:zeros|ones|full)_like|_(?:random|sample)_\w+_like|\w+_index_array"
_SECOND = r"reshape_like|_npx_reshape_like|_identity_with_attr_like_rhs"
_IGNORED = re.compile(rf"^Op:(?:(?:{_FIRST}), Name=.*\nInputs:\n|(?:{_SECOND}), Name=.*\nInputs:\n\targ\[0\]=.*\n)"
                      r"\targ\[[01]\]=(\S+)\((\d+)\)$", re.MULTILINE)
# Operators whose output lies where their input does.
_IN_PLACE = {"BlockGrad", "identity", "_copy", "make_loss"}


def reads_freed_memory(executor_text: str, symbol_text: str) -> bool:
    """Whether an operator may find a tensor of other operators in the memory of an input that it ignores.

    An input that is taken for its shape alone does not keep its memory, and MXNet converts whatever lies there from
    oneDNN's layouts before the operator runs, which fails where that is of another size
    (tests/mxnet_bugs/ignored_inputs.py). Variables and outputs keep theirs.

    Parameters
    ----------
    executor_text : str
        What ``debug_str`` of the executor gives.
    symbol_text : str
        The executor's symbol as JSON.

    Returns
    -------
    bool
        Whether it must be bound so that no tensors share memory.
    """
    ignored = {(match[1], int(match[2])) for match in _IGNORED.finditer(executor_text)}
    return bool(ignored) and not ignored <= _kept(symbol_text)


def _kept(symbol_text: str) -> Set:
    """The outputs of operators, by name and number, that lie where an output of the symbol does."""
    graph = json.loads(symbol_text)
    nodes, kept = graph["nodes"], set()
    heads = [tuple(head[:2]) for head in graph["heads"]]
    while heads:
        node, number = heads.pop()
        kept.add((nodes[node]["name"], number))
        if nodes[node]["op"] in _IN_PLACE:
            heads.append(tuple(nodes[node]["inputs"][0][:2]))
    return kept
