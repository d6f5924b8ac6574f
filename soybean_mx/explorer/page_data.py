"""What the explorer's page shows, as one JSON value (docs/explorer.md lists its members)."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from soybean_mx import plan_report
from soybean_mx.explorer.layers import Layer, LayerGraph
from soybean_mx.explorer.strategies import Step, Strategy
from soybean_mx.explorer.timeline import KINDS
from soybean_mx.index_notation import operand_names, rule_text

VERSION = 1
_TICKS = 50_000  # of a step: what places on the time line are counted in


class _Numbers:
    """Numbers for values, in the order in which they are first asked for."""

    def __init__(self) -> None:
        self.values: List[Any] = []
        self._numbers: Dict[Any, int] = {}

    def of(self, value: Any) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]


def page_data(header: Mapping[str, Any], layers: LayerGraph, strategies: Sequence[Strategy],
              selected: str) -> Dict[str, Any]:
    """Put together what the page shows.

    Parameters
    ----------
    header : mapping
        What ``soybean-mx plan --json`` says of the model and the devices.
    layers : LayerGraph
        The network.
    strategies : sequence of Strategy
        Its plans.
    selected : str
        The name of the one that is shown first.
    """
    tensors = list(layers.tensors.values())
    numbers = {tensor.name: number for number, tensor in enumerate(tensors)}
    operators = [operator for layer in layers.layers for operator in layer.operators]
    rules, choices = _Numbers(), _Numbers()
    listed = []
    for operator in operators:
        is_parameter = [layers.tensors[name].role in ("parameter", "auxiliary") for name in operator.inputs]
        names = operand_names(operator.inputs, operator.name, is_parameter)
        listed.append([operator.name, operator.operator, [numbers[name] for name in operator.inputs],
                       [numbers[name] for name in operator.outputs], rules.of(rule_text(operator.rule, names))])
    position = {operator.name: number for number, operator in enumerate(operators)}
    steps: Dict[int, int] = {}  # by identity, as strategies that agree share one
    modelled = [strategy.step for strategy in strategies if strategy.step is not None]
    for step in modelled:
        steps.setdefault(id(step), len(steps))
    plans = [_strategy(strategy, layers, numbers, [operator.name for operator in operators], choices, steps)
             for strategy in strategies]
    labels = short_names([layer.name for layer in layers.layers])
    return {
        "version": VERSION, "model": dict(header), "selected": selected,
        "cuts": next(strategy.plan["cuts"] for strategy in strategies if strategy.plan is not None),
        "tensors": [[tensor.name, list(tensor.shape), tensor.itemsize, tensor.role] for tensor in tensors],
        "operators": listed, "rules": rules.values,
        "layers": [{"name": layer.name, "label": label, "kind": layer.kind,
                    "operators": [position[operator.name] for operator in layer.operators],
                    "main": -1 if layer.main is None else position[layer.main.name],
                    "parameters": [numbers[name] for name in layer.parameters],
                    "weight": _weight(layer, layers, numbers), "output": _output(number, layers, numbers)}
                   for number, (layer, label) in enumerate(zip(layers.layers, labels))],
        "edges": [[source, target, numbers[name]] for source, target, name in layers.edges],
        "choices": [list(value) for value in choices.values], "strategies": plans,
        "steps": [_step(next(step for step in modelled if id(step) == key)) for key in steps],
    }


def short_names(names: Sequence[str]) -> List[str]:
    """Names without what all those with a ``_`` begin with, and without ``_fwd`` at the end.

    Parameters
    ----------
    names : sequence of str
        For instance ``vgg0_conv0_fwd`` and ``vgg0_dense0_fwd``, of which ``conv0`` and ``dense0`` remain.
    """
    parts = [name.split("_") for name in names if "_" in name]
    common = len(os.path.commonprefix([words[:-1] for words in parts])) if len(parts) > 1 else 0
    prefix = "_".join(parts[0][:common]) + "_" if common else ""
    short = []
    for name in names:
        rest = name[len(prefix):] if name.startswith(prefix) else name
        short.append((rest[:-len("_fwd")] if rest.endswith("_fwd") else rest).strip("_") or name)
    return short if len(set(short)) == len(set(names)) else list(names)


def _weight(layer: Layer, layers: LayerGraph, numbers: Mapping[str, int]) -> int:
    """The largest parameter of a layer; -1 for none."""
    found = [layers.tensors[name] for name in layer.parameters if layers.tensors[name].role == "parameter"]
    return numbers[max(found, key=lambda tensor: tensor.bytes).name] if found else -1


def _output(number: int, layers: LayerGraph, numbers: Mapping[str, int]) -> int:
    """The tensor that is drawn for a layer: the largest of those that other layers read, else its last; -1 for none."""
    layer = layers.layers[number]
    read = [layers.tensors[name] for source, _, name in layers.edges if source == number]
    if layer.kind == "output":
        return next(numbers[name] for _, target, name in layers.edges if target == number)
    if read:
        return numbers[max(read, key=lambda tensor: tensor.bytes).name]
    return numbers[layer.operators[-1].outputs[0]] if layer.operators else numbers.get(layer.name, -1)


def _strategy(strategy: Strategy, layers: LayerGraph, numbers: Mapping[str, int], operators: Sequence[str],
              choices: _Numbers, steps: Mapping[int, int]) -> Dict[str, Any]:
    if strategy.plan is None:
        return {"name": strategy.name, "error": strategy.error}
    plan = strategy.plan

    def number_of(texts: Any) -> int:
        return -1 if texts is None else choices.of(tuple(texts))

    return {"name": strategy.name, "error": None, "summary": plan_report.summary(plan), "bytes": plan["bytes"],
            "memory": plan["memory"], "memory_by_device": plan["memory_by_device"], "whole": plan["whole"],
            "tilings": [number_of(plan["tensors"].get(name)) for name in numbers],
            "cuts": [number_of(plan["operators"].get(name)) for name in operators],
            "conversions": [_conversion(item, layers, numbers, number_of) for item in plan["conversions"]],
            "step": None if strategy.step is None else steps[id(strategy.step)]}


def _conversion(item: Mapping[str, Any], layers: LayerGraph, numbers: Mapping[str, int], number_of) -> List[Any]:
    user = item["user"]
    return [numbers.get(item["tensor"], -1), user, *places(item, layers), number_of(item["from"]),
            number_of(item["to"]), item["bytes"], item["seconds"]]


def places(conversion: Mapping[str, Any], layers: LayerGraph) -> Tuple[int, int]:
    """Between which layers a conversion is.

    Parameters
    ----------
    conversion : mapping
        One of a plan's ``conversions``.
    layers : LayerGraph
        The network.

    Returns
    -------
    (int, int)
        The layer that has the tensor, and the one that needs it: the same for a parameter, for what a layer converts on
        its own, and where several layers read the tensor as it then rests. Where one layer does, it is that.
    """
    name, user = conversion["tensor"], conversion["user"]
    source = layers.layer_of(name)
    readers = [target for origin, target, tensor in layers.edges if tensor == name and origin == source]
    if user is not None and user.startswith("output "):
        outputs = [number for number in readers if layers.layers[number].kind == "output"]
        return (source, outputs[0] if outputs else source)
    if user is not None:
        target = layers.layer_of(user)
        tensor = layers.tensors.get(name)
        is_parameter = tensor is not None and tensor.role in ("parameter", "auxiliary")
        return (target, target) if is_parameter or source is None else (source, source if target is None else target)
    return (source, readers[0]) if len(readers) == 1 else (source, source)


def _step(step: Step) -> Dict[str, Any]:
    per_second = _TICKS / step.seconds if step.seconds > 0 else 1.0

    def ticks(seconds: float) -> int:
        return round(seconds * per_second)

    return {"seconds": step.seconds, "idle": list(step.idle), "ticks_per_second": per_second, "kinds": list(KINDS),
            "bars": [[bar.device, KINDS.index(bar.kind), bar.layer, ticks(bar.begin), ticks(bar.end), ticks(bar.busy)]
                     for bar in step.bars]}
