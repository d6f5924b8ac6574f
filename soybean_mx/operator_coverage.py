"""Which of MXNet's operators are cut, along what, and why the others are not.

A rule depends on an operator's attributes and shapes, so each operator is shown in one typical call
(``operator_calls.json``), of which the core is asked for the rule.
"""
from __future__ import annotations

import ctypes
import enum
import functools
import json
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from soybean_mx import core

CALLS_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "operator_calls.json")

_OWN = "_soybean_mx_"  # operators of this package, which MXNet has when the library is loaded
_NODE = "op"
# Operators of quantized numbers, with a rule or without.
_QUANTIZATION = ("_contrib_calibrate_", "_contrib_dequantize", "_contrib_quantize", "_contrib_requantize")


class Reason(enum.Enum):
    """Why an operator is not cut.

    ``in_blocks``: whether a hybridized block of dense tensors that is trained can contain such an operator.
    """

    SHAPE = ("the result's shape depends on the values", True)
    CONSTANT = ("no operand: every device makes the constant itself", True)
    WHOLE = ("each part of the result needs all of the operands", True)
    MIXED = ("its results are not alike: what sums up one of them does not sum up another", True)
    NUMBERED = ("the result numbers samples, which a part would count from its own beginning", True)
    ONE_IMAGE = ("of a single image, before there is a batch, with one random number for all of it", False)
    WRONG_IN_PARTS = ("MXNet goes wrong on parts of it (docs/mxnet_bugs.md)", True)
    GPU_ONLY = ("computed on GPUs only", True)
    CONTROL_FLOW = ("control flow: the body is a graph of its own", True)
    CALLBACK = ("calls back into the host's language", True)
    UPDATE = ("changes its operands: an optimizer's update", False)
    IN_PLACE = ("writes into its operand, which MXNet refuses in a graph", False)
    NDARRAY = ("a function of NDArrays: MXNet cannot compute it in a graph", False)
    SPARSE = ("of sparse tensors only, which the tiled graph has none of", False)
    INFERENCE = ("of quantized numbers, which have no gradient: for inference only", False)
    NO_REASON = ("no rule is written", True)
    MADE_BY_MXNET = ("made by MXNet itself when it rewrites or runs a graph", False)

    def __init__(self, text: str, in_blocks: bool) -> None:
        self.text = text
        self.in_blocks = in_blocks


NOT_CUT: Mapping[Reason, Tuple[str, ...]] = {
    Reason.SHAPE: (
        "_contrib_boolean_mask", "_npi_bincount", "_npi_delete", "_npi_unique", "_npx_nonzero",
    ),
    Reason.CONSTANT: (
        "_linspace", "_npi_blackman", "_npi_hamming", "_npi_hanning", "_npi_indices", "_npi_logspace",
    ),
    Reason.WHOLE: (
        "_contrib_Proposal", "_contrib_allclose", "_np_diagflat", "_npi_diag_indices_from", "_npi_ediff1d",
        "_npi_share_memory", "_npi_tensorinv", "_npi_tensorsolve", "_npx_constraint_check", "_rnn_param_concat",
        "_shuffle", "all_finite", "multi_all_finite", "shape_array", "size_array",
    ),
    Reason.MIXED: ("_histogram",),
    Reason.NUMBERED: ("_contrib_MultiProposal",),
    Reason.ONE_IMAGE: (
        "_image_random_brightness", "_image_random_color_jitter", "_image_random_contrast",
        "_image_random_flip_left_right", "_image_random_flip_top_bottom", "_image_random_hue", "_image_random_lighting",
        "_image_random_saturation",
    ),
    Reason.WRONG_IN_PARTS: ("CTCLoss",),
    Reason.GPU_ONLY: ("_contrib_count_sketch", "_contrib_fft", "_contrib_ifft"),
    Reason.CONTROL_FLOW: ("_cond", "_foreach", "_while_loop"),
    Reason.CALLBACK: ("Custom", "_NDArray", "_Native"),
    Reason.UPDATE: (
        "_adamw_update", "_contrib_group_adagrad_update", "_mp_adamw_update", "_multi_adamw_update",
        "_multi_lamb_update", "_multi_mp_adamw_update", "_multi_mp_lamb_update", "_sparse_adagrad_update",
        "adam_update", "ftml_update", "ftrl_update", "lamb_update_phase1", "lamb_update_phase2",
        "mp_lamb_update_phase1", "mp_lamb_update_phase2", "mp_nag_mom_update", "mp_sgd_mom_update", "mp_sgd_update",
        "multi_lars", "multi_mp_sgd_mom_update", "multi_mp_sgd_update", "multi_sgd_mom_update", "multi_sgd_update",
        "nag_mom_update", "preloaded_multi_mp_sgd_mom_update", "preloaded_multi_mp_sgd_update",
        "preloaded_multi_sgd_mom_update", "preloaded_multi_sgd_update", "reset_arrays", "rmsprop_update",
        "rmspropalex_update", "sgd_mom_update", "sgd_update", "signsgd_update", "signum_update",
    ),
    Reason.IN_PLACE: ("_npi_boolean_mask_assign_scalar", "_npi_boolean_mask_assign_tensor", "_scatter_set_nd"),
    Reason.NDARRAY: (
        "_CustomFunction", "_copyto", "_cvcopyMakeBorder", "_cvimdecode", "_cvimread", "_cvimresize", "_imdecode",
        "_onehot_encode", "_set_value", "fill_element_0index",
    ),
    Reason.SPARSE: (
        "_contrib_SparseEmbedding", "_contrib_dgl_adjacency", "_contrib_dgl_csr_neighbor_non_uniform_sample",
        "_contrib_dgl_csr_neighbor_uniform_sample", "_contrib_dgl_graph_compact", "_contrib_dgl_subgraph",
        "_contrib_edge_id", "_contrib_getnnz", "_sparse_retain", "_square_sum",
    ),
    Reason.INFERENCE: ("_contrib_calibrate_entropy", "_contrib_quantize_asym", "_contrib_quantized_rnn"),
    Reason.MADE_BY_MXNET: (
        "_CachedOp", "_CachedOpThreadSafe", "_CrossDeviceCopy", "_NoGradient", "_sg_mkldnn_conv",
        "_sg_mkldnn_fully_connected", "_sg_mkldnn_selfatt_qk", "_sg_mkldnn_selfatt_valatt",
    ),
}


@dataclass(frozen=True)
class Factor:
    """One index along which an operator can be cut."""

    name: str
    is_sum: bool  # the outputs are sums over it, or maxima or minima
    has_halo: bool  # windows run along it, so that a part needs rows of its neighbours
    has_statistics: bool  # a statistic is taken over it, which its parts join


@dataclass(frozen=True)
class Operator:
    """One of MXNet's operators in a typical call.

    ``shapes`` are those of the call's operands, None without a rule. ``has_rule``: whether the search knows how its
    operands belong together; an operator without a rule is computed by one device, one with a rule that has no factors
    by each device that needs the result. ``reason`` is None for an operator that can be cut.
    """

    name: str
    aliases: Tuple[str, ...]
    shapes: Optional[Tuple[Tuple[int, ...], ...]]
    attributes: Mapping[str, str]
    factors: Tuple[Factor, ...]
    draws: bool  # never computed twice on the same elements (random numbers, gradients of its own making)
    has_rule: bool
    reason: Optional[Reason]

    @property
    def is_cut(self) -> bool:
        """Whether there is something along which it can be cut."""
        return bool(self.factors)

    @property
    def in_blocks(self) -> bool:
        """Whether a hybridized block of dense tensors that is trained can contain it."""
        reason = Reason.INFERENCE if self.name.startswith(_QUANTIZATION) else self.reason
        return reason is None or reason.in_blocks

    def to_json(self) -> Dict[str, Any]:
        """The operator as a JSON value."""
        return {
            "name": self.name, "aliases": list(self.aliases),
            "shapes": None if self.shapes is None else [list(shape) for shape in self.shapes],
            "attributes": dict(self.attributes),
            "factors": [{"name": f.name, "sum": f.is_sum, "halo": f.has_halo, "statistics": f.has_statistics}
                        for f in self.factors],
            "draws": self.draws, "rule": self.has_rule, "reason": self.reason.name.lower() if self.reason else None,
            "in_blocks": self.in_blocks,
        }


@dataclass(frozen=True)
class Share:
    """How many of a set of operators have a rule, and how many of these can be cut."""

    operators: int
    known: int
    cut: int

    @property
    def known_percent(self) -> float:
        """The share that has a rule, in percent."""
        return 100 * self.known / self.operators

    @property
    def cut_percent(self) -> float:
        """The share that can be cut, in percent."""
        return 100 * self.cut / self.operators

    def to_json(self) -> Dict[str, Any]:
        """The share as a JSON value."""
        return {"operators": self.operators, "with_rule": self.known, "cut": self.cut,
                "with_rule_percent": self.known_percent, "cut_percent": self.cut_percent}


def share(operators: Sequence[Operator]) -> Share:
    """Count the operators that have a rule."""
    return Share(len(operators), sum(o.has_rule for o in operators), sum(o.is_cut for o in operators))


@functools.lru_cache(maxsize=None)
def registered() -> Mapping[str, Tuple[str, ...]]:
    """The canonical name of each forward operator that this MXNet registers, and its other names.

    Left out are operators that exist only as another's gradient (``_backward_*`` and the like), and our own.
    """
    from mxnet.base import _LIB, check_call

    count, names = ctypes.c_uint(), ctypes.POINTER(ctypes.c_char_p)()
    check_call(_LIB.NNListAllOpNames(ctypes.byref(count), ctypes.byref(names)))
    found: Dict[str, List[str]] = {}
    for name in [names[i].decode("utf-8") for i in range(count.value)]:
        found.setdefault(_canonical(name), []).append(name)
    return {name: tuple(sorted(alias for alias in aliases if alias != name))
            for name, aliases in sorted(found.items()) if "backward" not in name and not name.startswith(_OWN)}


def _canonical(name: str) -> str:
    from mxnet.base import _LIB, check_call

    handle = ctypes.c_void_p()
    check_call(_LIB.NNGetOpHandle(ctypes.c_char_p(name.encode("utf-8")), ctypes.byref(handle)))
    own, text, count = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_uint()
    lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
    returned = ctypes.c_char_p()
    check_call(_LIB.NNGetOpInfo(handle, ctypes.byref(own), ctypes.byref(text), ctypes.byref(count),
                                *map(ctypes.byref, lists), ctypes.byref(returned)))
    return (own.value or b"").decode("utf-8")


def graph_of(call: Mapping[str, Any]) -> Dict[str, Any]:
    """The graph of one call, as the core reads it (docs/interface.md).

    Parameters
    ----------
    call : mapping
        ``op``, ``attrs``, the shapes of its ``inputs`` and ``outputs``, and ``training``.
    """
    inputs = len(call["inputs"])
    variables = [{"op": "null", "name": f"x{i}", "inputs": []} for i in range(inputs)]
    node = {"op": call["op"], "name": _NODE, "attrs": call["attrs"], "inputs": [[i, 0, 0] for i in range(inputs)]}
    symbol = {"nodes": [*variables, node], "arg_nodes": list(range(inputs)),
              "heads": [[inputs, i, 0] for i in range(len(call["outputs"]))],
              "attrs": {"mxnet_version": ["int", 10901]}}
    shapes = {**{f"x{i}": [shape] for i, shape in enumerate(call["inputs"])}, _NODE: call["outputs"]}
    return {"symbol": json.dumps(symbol), "shapes": shapes,
            "itemsizes": {name: [4] * len(found) for name, found in shapes.items()},
            "variables": {f"x{i}": {"role": "input", "requires_grad": True} for i in range(inputs)},
            "training": call["training"]}


def rule_of(call: Mapping[str, Any]) -> Dict[str, Any]:
    """The rule of one call (csrc/rules/rule_json.h)."""
    return core.rules(graph_of(call))[_NODE]


def factors_of(rule: Mapping[str, Any]) -> Tuple[Factor, ...]:
    """The factors of a rule that can be divided."""
    windowed = {window["factor"] for window in rule["windows"]}
    return tuple(Factor(factor["name"], factor["reduced"], i in windowed, factor["statistic"])
                 for i, factor in enumerate(rule["factors"]) if factor["size"] > 1)


def coverage() -> List[Operator]:
    """All forward operators that this MXNet registers, by name."""
    with open(CALLS_FILE, encoding="utf-8") as file:
        calls = {call["op"]: call for call in json.load(file)}
    reasons = {name: reason for reason, names in NOT_CUT.items() for name in names}
    operators = []
    for name, aliases in registered().items():
        call = calls.get(name)
        rule = rule_of(call) if call else None
        known = rule is not None and rule["known"]
        factors = factors_of(rule) if known else ()
        operators.append(Operator(
            name, aliases, tuple(map(tuple, call["inputs"])) if known else None, call["attrs"] if known else {},
            factors, known and rule["random"], known, None if factors else reasons.get(name, Reason.NO_REASON)))
    return operators
