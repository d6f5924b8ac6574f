"""Rules of operators in index notation: ``data[n,c,~h,~w] weight[m,c,:,:] bias[m] -> out[n,m,h,w]``."""
from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence


def rule_text(rule: Mapping[str, Any], operands: Sequence[str]) -> Optional[str]:
    """A rule as people read it.

    Parameters
    ----------
    rule : mapping
        One of :func:`soybean_mx.core.rules`, or ``rule`` of a node of :func:`soybean_mx.core.space`.
    operands : sequence of str
        What the inputs are called, in their order.

    Returns
    -------
    str or None
        Each operand with the factor that runs along each dim: ``~`` before it where parts need rows of their
        neighbours (a halo), ``*`` behind it where a statistic is taken over it; ``:`` for a dim that no factor runs
        along. None for an operator without a rule, which one device computes whole.
    """
    if not rule["known"]:
        return None
    factors = rule["factors"]
    windows = {(window["input"], window["dim"]) for window in rule["windows"]}

    def dims(tensor: Mapping[str, Any], number: Optional[int]) -> str:
        texts = []
        for dim, factor in enumerate(tensor["dims"]):
            mark = "~" if (number, dim) in windows else ""
            texts.append(":" if factor < 0 else f"{mark}{factors[factor]['name']}{'*' * factors[factor]['statistic']}")
        return f"[{','.join(texts)}]"

    inputs = [f"{name}{dims(tensor, number)}" for number, (name, tensor) in enumerate(zip(operands, rule["inputs"]))]
    outputs = rule["outputs"]
    names = ["out"] if len(outputs) == 1 else [f"out{number}" for number in range(len(outputs))]
    made = [f"{name}{dims(tensor, None)}" for name, tensor in zip(names, outputs)]
    return f"{' '.join(inputs)} -> {' '.join(made)}".strip()


def operand_names(names: Sequence[str], operator: str, is_parameter: Sequence[bool]) -> Sequence[str]:
    """Short names for the inputs of an operator.

    Parameters
    ----------
    names : sequence of str
        The nodes that they come from.
    operator : str
        The operator's own name, such as ``conv0_fwd``.
    is_parameter : sequence of bool
        Whether each input is a parameter or an auxiliary state.

    Returns
    -------
    sequence of str
        The last word of a parameter's name (``weight``), ``data`` for the others, numbered where there are several.
    """
    others = sum(not parameter for parameter in is_parameter)
    short, count = [], 0
    for name, parameter in zip(names, is_parameter):
        if parameter:
            short.append(name.rpartition("_")[2])
        else:
            short.append("data" if others == 1 else f"data{count}")
            count += 1
    return short
