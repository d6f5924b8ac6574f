"""What ``soybean-mx explain`` prints: a sentence and tables, or one JSON object."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from soybean_mx.explanation import Alternative, Explanation
from soybean_mx.plan_report import counted, gibibytes, seconds, size

_MOST_ALTERNATIVES = 12
_OTHER_WORDS = {"replicated": "computed by several groups alike", "owner": "computed by one group alone"}


def sentence(explanation: Explanation, header: Mapping[str, Any]) -> str:
    """Why the operator is cut so, in words.

    Parameters
    ----------
    explanation : Explanation
        Of the operator.
    header : mapping
        The object of ``soybean-mx explain --json``, without the operators.
    """
    name = explanation.operator.name
    if explanation.rule is None:
        return f"{name} has no rule: the first device computes it whole."
    possible = [item for item in explanation.alternatives if item.error is None]
    how = f"{name} is {_along(explanation)}, {_cut_text(explanation.cut, header)}"
    if not possible:
        return f"{how}; no other way to cut it is possible."
    best, cost = possible[0], _cost_words(possible[0], header)
    if _difference(best, header) < 0:
        reason = ("a pin fixes it" if explanation.is_pinned
                  else "the search has not proved its plan the best" if header["strategy"] == "optimal"
                  else f"strategy {header['strategy']} does not look for the best")
        return f"{how}, though {_cut_text(best.cut, header)} would be better ({cost}): {reason}."
    if _difference(best, header) == 0:
        first = next((item for item in possible if _difference(item, header) > 0), None)
        others = sum(_difference(item, header) == 0 for item in possible)
        same = "another cut costs" if others == 1 else f"{others} other cuts cost"
        more = "" if first is None else f"; the next, {_cut_text(first.cut, header)}, {_cost_words(first, header)}"
        return f"{how}; {same} the same ({_cut_text(best.cut, header)}){more}."
    return f"{how}, because every other cut costs more: the next best, {_cut_text(best.cut, header)}, {cost}."


def _cut_text(cut: Sequence[str], header: Mapping[str, Any]) -> str:
    """The choices put together; one by one where it matters which links they cross."""
    return ", ".join(cut) if header["objective"] == "time" else counted(header["cuts"], cut)


def _along(explanation: Explanation) -> str:
    kinds = {factor["name"]: factor for factor in explanation.factors}
    words = []
    for choice in dict.fromkeys(explanation.cut):
        factor = kinds.get(choice)
        if factor is None:
            words.append(_OTHER_WORDS[choice])
        elif factor["batch"]:
            words.append(f"cut along the batch ({choice})")
        elif factor["reduced"]:
            words.append(f"cut along what it sums over ({choice})")
        elif factor["spatial"]:
            words.append(f"cut along the image ({choice})")
        else:
            words.append(f"cut along {choice}")
    return " and ".join(words)


def _difference(item: Alternative, header: Mapping[str, Any]) -> float:
    return item.difference_seconds if header["objective"] == "time" else item.difference_bytes


def _cost_words(item: Alternative, header: Mapping[str, Any]) -> str:
    if header["objective"] == "time":
        amount = _signed(item.difference_seconds, seconds)
        text = f"takes {amount.lstrip('+-')} {'less' if item.difference_seconds < 0 else 'more'}"
    else:
        amount = _signed(item.difference_bytes, size)
        text = f"moves {amount.lstrip('+-')} {'less' if item.difference_bytes < 0 else 'more'}"
    if item.most_more is None or _difference(item, header) <= 0:
        return text
    name, moved, before = item.most_more
    return f"{text}, most for {name} ({size(moved)} instead of {size(before)})"


def _signed(value, text) -> str:
    return f"{'-' if value < 0 else '+'}{text(abs(value))}"


def to_json(explanation: Explanation, header: Mapping[str, Any]) -> Dict[str, Any]:
    """The explanation as ``soybean-mx explain --json`` prints it.

    Parameters
    ----------
    explanation : Explanation
        Of the operator.
    header : mapping
        The object without the operators.
    """
    return {
        "name": explanation.operator.name, "operator": explanation.operator.operator, "rule": explanation.rule,
        "because": sentence(explanation, header), "cut": list(explanation.cut),
        "alternatives": [_alternative(item) for item in explanation.alternatives],
        "is_pinned": explanation.is_pinned, "left_out": explanation.left_out,
        "tensors": [{"use": item.use, "tensor": item.tensor.name, "shape": list(item.tensor.shape),
                     "bytes": item.tensor.bytes, "tiling": list(item.tiling), "tile_bytes": item.tile_bytes}
                    for item in explanation.tensors],
        "conversions": [dict(item) for item in explanation.conversions],
        "memory": dict(explanation.memory),
    }


def _alternative(item: Alternative) -> Dict[str, Any]:
    more = None if item.most_more is None else dict(zip(("tensor", "bytes", "instead_of"), item.most_more))
    return {"cut": list(item.cut), "bytes_moved": item.bytes_moved, "difference_bytes": item.difference_bytes,
            "predicted_seconds": item.seconds, "difference_seconds": item.difference_seconds,
            "peak_bytes_per_device": item.peak_bytes, "most_more": more, "error": item.error}


def print_explanations(out: Console, header: Mapping[str, Any], explanations: Sequence[Explanation]) -> None:
    """Print why operators are cut so.

    Parameters
    ----------
    out : rich.console.Console
        Where to.
    header : mapping
        The object of ``soybean-mx explain --json``, without the operators.
    explanations : sequence of Explanation
        One for each operator.
    """
    time = "" if header["predicted_seconds"] is None else f", {seconds(header['predicted_seconds'])} predicted"
    _say(out, f"{header['model']} on {header['devices']} devices, strategy {header['strategy']}: "
              f"{gibibytes(header['bytes_moved'])} moved in a step{time}")
    for explanation in explanations:
        out.print()
        _print_one(out, header, explanation)


def _print_one(out: Console, header: Mapping[str, Any], explanation: Explanation) -> None:
    cuts = header["cuts"]
    _say(out, sentence(explanation, header))
    out.print()
    if explanation.rule is not None:
        _say(out, f"{explanation.operator.operator}: {explanation.rule}")
        out.print()
    _print_alternatives(out, header, explanation)
    table = _table("tensor", "", "shape", "tiling", "tile")
    for item in explanation.tensors:
        table.add_row(*map(Text, (item.tensor.name, item.use, "x".join(map(str, item.tensor.shape)) or "scalar",
                                  counted(cuts, item.tiling), size(item.tile_bytes))))
    out.print(table)
    moving = [item for item in explanation.conversions if item["bytes"]]
    if moving:
        out.print()
        table = _table("conversion of", "for", "from", "to", "bytes")
        for item in sorted(moving, key=lambda item: -item["bytes"]):
            table.add_row(*map(Text, (item["tensor"], item["user"] or "where it rests", counted(cuts, item["from"]),
                                      counted(cuts, item["to"]), size(item["bytes"]))))
        out.print(table)
    parts = ", ".join(f"{size(count)} {_MEMORY_WORDS[kind]}" for kind, count in explanation.memory.items() if count)
    if parts:
        out.print()
        _say(out, f"on the fullest device: {parts}")


_MEMORY_WORDS = {"parameters": "of parameters", "gradients": "of their gradients", "optimizer": "of optimizer states",
                 "makes": "of results"}


def _print_alternatives(out: Console, header: Mapping[str, Any], explanation: Explanation) -> None:
    timed = header["predicted_seconds"] is not None
    table = _table("cut", "bytes", "difference", *(["time", "change"] if timed else []), "memory", "most more for")
    chosen: List[str] = [_cut_text(explanation.cut, header), gibibytes(header["bytes_moved"]), "chosen"]
    chosen += [seconds(header["predicted_seconds"]), ""] if timed else []
    table.add_row(*map(Text, [*chosen, gibibytes(header["peak_bytes_per_device"]), ""]), style="bold")
    possible = [item for item in explanation.alternatives if item.error is None]
    for item in possible[:_MOST_ALTERNATIVES]:
        row = [_cut_text(item.cut, header), gibibytes(item.bytes_moved), _signed(item.difference_bytes, size)]
        row += [seconds(item.seconds), _signed(item.difference_seconds, seconds)] if timed else []
        more = "" if item.most_more is None else f"{item.most_more[0]}: {size(item.most_more[1])}"
        table.add_row(*map(Text, [*row, gibibytes(item.peak_bytes), more]))
    out.print(table)
    if len(possible) > _MOST_ALTERNATIVES:
        _say(out, f"and {len(possible) - _MOST_ALTERNATIVES} more (--json has them)")
    if explanation.left_out:
        _say(out, f"{explanation.left_out} further cuts, of more different factors, were not tried")
    for item in [item for item in explanation.alternatives if item.error is not None][:3]:
        _say(out, f"{_cut_text(item.cut, header)} is refused: {item.error}")
    out.print()


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        right = column in ("bytes", "difference", "time", "change", "memory", "tile")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def _say(out: Console, text: str) -> None:
    out.print(Text(text), soft_wrap=True)
