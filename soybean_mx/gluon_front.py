"""The Gluon front: hybridized blocks run tiled.

:func:`install` patches ``HybridBlock`` so that a hybridized block that is called with arrays runs as a parallel graph
over several devices, when soybean_mx is on for it: for every block after ``install(devices)``, which the start-up hook
calls, or for one block after ``net.hybridize(backend="soybean_mx", devices=...)``. A block that is hybridized for
another backend stays MXNet's, as does a block that is called with symbols inside another one's trace, and, unless it
is asked for by name, a block without parameters: a loss, or a transformation of single images in a data loader.
"""
from __future__ import annotations

import functools
import json
import os
import warnings
from collections import OrderedDict
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import mxnet as mx
from mxnet import autograd
from mxnet.gluon import HybridBlock
from mxnet.gluon import block as _block_module
from mxnet.gluon.parameter import Parameter
from mxnet.ndarray import NDArray
from mxnet.symbol.numpy import _Symbol as _NumpySymbol

from soybean_mx import core, operators, tape, trainer
from soybean_mx import parameters as tiled
from soybean_mx import pins as user_pins
from soybean_mx.devices import TILES_VARIABLE, with_tiles
from soybean_mx.devices import contexts as device_contexts
from soybean_mx.executor import BoundGraph, Program, Tiles, positions_used
from soybean_mx.graph import describe, fixed_scales, weights_beside_trained_biases
from soybean_mx.parameters import Cut, Layout
from soybean_mx.regions import Region, Shape, legacy, like

BACKEND = "soybean_mx"
_OPTIONS = ("devices", "strategy", "pins", "batch_norm", "recompute", "parallel", "microbatches")
PARALLEL = ("tiling", "pipeline")
# Call signatures (input shapes and modes) of a block that keep an executor.
_MAX_SIGNATURES = 16

_default_devices: Optional[List[mx.Context]] = None
_original: Dict[str, Any] = {}


class BlockError(ValueError):
    """A block, its parameters or a call of it that cannot be tiled; the message says what to do."""


class _Settings:
    """How one block is to be tiled."""

    def __init__(self, devices=None, strategy=None, pins=None, batch_norm=None, recompute=None, parallel=None,
                 microbatches=None):
        if devices is None and _default_devices is not None:
            devices = _default_devices
        self.contexts = with_tiles(device_contexts(devices), os.environ.get(TILES_VARIABLE))
        self.strategy = strategy or os.environ.get("SOYBEAN_MX_STRATEGY") or "optimal"
        self.batch_norm = batch_norm or os.environ.get("SOYBEAN_MX_BATCH_NORM") or "exact"
        # "serial" is there to be compared with (scripts/trace_step.py).
        self.order = os.environ.get("SOYBEAN_MX_ORDER") or "scheduled"
        self.conversions = os.environ.get("SOYBEAN_MX_CONVERSIONS") or "exchanged"
        if self.conversions == "local":
            warnings.warn("SOYBEAN_MX_CONVERSIONS=local is there to measure: the devices exchange nothing, and all "
                          "results are wrong.", RuntimeWarning, stacklevel=2)
        if recompute is None:
            recompute = os.environ.get("SOYBEAN_MX_RECOMPUTE", "0") not in ("", "0")
        self.recompute = bool(recompute)
        self.parallel = parallel or os.environ.get("SOYBEAN_MX_PARALLEL") or "tiling"
        self.microbatches = _microbatches(microbatches)
        self._check_parallel(strategy, pins, batch_norm)
        self._pins = user_pins.checked(pins or {}, "The argument pins")
        # The variable is for all blocks of a program: in each, only what it has is pinned.
        self._pins_of_any = user_pins.from_environment() if pins is None else {}

    def _check_parallel(self, strategy, pins, batch_norm) -> None:
        if self.parallel not in PARALLEL:
            raise BlockError(f"The kind of parallelism {self.parallel!r} was given (parallel, or SOYBEAN_MX_PARALLEL), "
                             f"but there are {' and '.join(PARALLEL)}: give one of these.")
        if self.parallel == "tiling":
            if self.microbatches is not None:
                raise BlockError(f"{self.microbatches} microbatches were given, but tiled blocks have none: leave "
                                 "microbatches and SOYBEAN_MX_MICROBATCHES out, or give parallel='pipeline'.")
            return
        given = {"strategy": strategy or os.environ.get("SOYBEAN_MX_STRATEGY"),
                 "pins": pins or os.environ.get("SOYBEAN_MX_PINS"),
                 "batch_norm": batch_norm or os.environ.get("SOYBEAN_MX_BATCH_NORM"), "recompute": self.recompute}
        for name, value in given.items():
            if value:
                raise BlockError(f"{name}={value!r} was given with parallel='pipeline', but is for tiled blocks: leave "
                                 f"it and SOYBEAN_MX_{name.upper()} out, or give parallel='tiling'.")

    def plan_options(self, decided: Dict[str, List[str]], names: Set[str]) -> Dict[str, Any]:
        """What the planner is asked for.

        Parameters
        ----------
        decided : dict of str to list of str
            The tilings of parameters that stand.
        names : set of str
            All tensors and operators of the block.

        Raises
        ------
        soybean_mx.pins.PinError
            When the user pins a parameter to something else than what stands.
        """
        pins = {**self._pins, **user_pins.matching(self._pins_of_any, names)}
        return {"devices": len(self.contexts), "strategy": self.strategy, "batch_norm": self.batch_norm,
                "pins": user_pins.with_decided(pins, decided)}

    def lower_options(self) -> Dict[str, Any]:
        """What the lowering is asked for: GPUs copy while they compute."""
        return {"order": self.order, "copy_engines": self.contexts[0].device_type == "gpu",
                "conversions": self.conversions}


def _microbatches(given) -> Optional[int]:
    """How many microbatches a batch is cut into, where it is said."""
    given = given if given is not None else os.environ.get("SOYBEAN_MX_MICROBATCHES") or None
    try:
        count = None if given is None else int(given)
    except ValueError:
        count = 0
    if count is not None and count < 1:
        raise BlockError(f"The number of microbatches is {given!r} (microbatches, or SOYBEAN_MX_MICROBATCHES): give a "
                         "whole number, 1 or more.")
    return count


class _Tiling:
    """What was decided for a parameter: its tiling over a list of devices.

    It is provisional when a call without gradients decided it; the first call that trains may decide anew.
    """

    def __init__(self, contexts: Sequence[mx.Context], tiling: List[str], provisional: bool):
        self.contexts, self.tiling, self.provisional = list(contexts), tiling, provisional


class _Call:
    """A call signature: what decides which graph is run."""

    def __init__(self, arrays: Dict[str, NDArray]):
        self.training, self.recording = autograd.is_training(), autograd.is_recording()
        self.sources = tape.inputs_with_gradient(arrays) if self.recording else []
        self.inputs = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        self.key = (tuple(self.inputs.values()), self.training, self.recording, tuple(self.sources))


class _Signature:
    """A program for one call signature, with its executors."""

    def __init__(self, program: Program, plan: Dict[str, Any], call: _Call):
        self.program, self.plan, self.inputs = program, plan, call.inputs
        self.free: List[BoundGraph] = []
        self.bound = 0
        self.trained: List[tiled.TiledParameter] = []
        # Of the auxiliary states: which tiles the graph reads, and which are new after a backward pass.
        self.reads: Dict[tiled.TiledParameter, Set[int]] = {}
        self.changes: List[Tuple[tiled.TiledParameter, Set[int], bool]] = []
        self.output_shapes: List[Shape] = _output_shapes(program)

    def release(self, bound: BoundGraph) -> None:
        """Take back an executor that no recorded call holds any more."""
        if self.program.used_once:
            self.bound -= 1
        else:
            self.free.append(bound)


def _tile_of(changes: Sequence[Tuple[tiled.TiledParameter, Set[int], bool]], source: str, device: int,
             region: Region) -> NDArray:
    """The tile of an auxiliary state that a graph changes, by the state's name and its place."""
    state = next(parameter for parameter, _, _ in changes if parameter.name == source)
    return state.tiles()[state.layout.places.index((device, region))]


def _output_shapes(program: Program) -> List[Shape]:
    ends: Dict[int, Shape] = {}
    for index, _, region in program.outputs:
        before = ends.get(index, region.end)
        ends[index] = tuple(max(a, b) for a, b in zip(before, region.end))
    return [ends[index] for index in range(len(ends))]


class TiledGraph:
    """What a tiled block runs, in the place of MXNet's CachedOp.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
        What the block computes.
    input_names : sequence of str
        The variables that the caller feeds, in the order of the block's arguments.
    parameters : dict of str to Parameter
        All other variables.
    settings : _Settings
        Devices and options.
    """

    def __init__(self, symbol, input_names: Sequence[str], parameters: Dict[str, Parameter], settings: _Settings):
        self.settings = settings
        self.training_plan: Optional[Dict[str, Any]] = None
        self.latest_plan: Optional[Dict[str, Any]] = None
        self.latest_graph: Optional[Dict[str, Any]] = None
        self._symbol = symbol
        self._numpy_like = isinstance(symbol, _NumpySymbol)
        used = set(symbol.list_inputs())
        # What a program's own class of parameters makes of the value at every call is fed like an input.
        self._computed = [parameter for parameter in parameters.values() if _computes_data(parameter)]
        fed = [*input_names, *(parameter.name for parameter in self._computed)]
        self._input_names = [name if name in used else None for name in fed]
        self._parameters = {name: parameter for name, parameter in parameters.items() if name not in fed}
        self._auxiliary = set(symbol.list_auxiliary_states())
        text = symbol.tojson()
        self._names = {node["name"] for node in json.loads(text)["nodes"]}
        self._fixed = [parameters[name] for name in sorted(fixed_scales(text)) if name in parameters]
        self._signatures: "OrderedDict[tuple, _Signature]" = OrderedDict()
        self._watcher: Optional[Callable[[BoundGraph], None]] = None

    def __deepcopy__(self, memo):
        return None  # a copied block traces and plans anew

    def __reduce__(self):
        return (_nothing, ())

    def parameters_changed(self) -> None:
        """Forget the executors: they are bound to arrays that the parameters no longer hold."""
        self._signatures.clear()

    def watch(self, bound: Optional[Callable[[BoundGraph], None]]) -> None:
        """Release the executors that no recorded call holds, and show the new ones from now on; None: no longer."""
        self._watcher = bound
        for signature in self._signatures.values():
            signature.bound -= len(signature.free)
            signature.free.clear()

    def __call__(self, *arrays: NDArray) -> List[NDArray]:
        """Run on whole arrays, one per input, all on one device; the outputs are on that device too."""
        arrays += tuple(parameter.data() for parameter in self._computed)
        given = {name: array for name, array in zip(self._input_names, arrays) if name is not None}
        self._check_inputs(given)
        call = _Call(given)
        with autograd.pause():
            signature = self._signatures.get(call.key)
            if signature is None:
                signature = self._add_signature(call)
            self._signatures.move_to_end(call.key)
            return self._run(signature, call, given, arrays[0].context)

    def _run(self, signature: _Signature, call: _Call, given: Dict[str, NDArray], context) -> List[NDArray]:
        bound = self._take(signature)
        tiled.write_back()
        self._fix_scales()
        tiled.even_out(signature.reads)
        bound.feed({name: legacy(array) for name, array in given.items()})
        bound.forward()
        outputs = bound.gather_outputs(signature.output_shapes, context)
        if not signature.program.gradients:
            signature.release(bound)
            return [like(output, self._numpy_like) for output in outputs]
        recorded = tape.TiledCall(bound, [(name, given[name]) for name in call.sources], signature.trained,
                                  signature.release, functools.partial(self._move_statistics, signature))
        return recorded.put_on_tape(outputs, self._numpy_like)

    def _fix_scales(self) -> None:
        """Set to 1 what MXNet's operators set to 1 while they run, which here may work on copies."""
        for parameter in self._fixed:
            for tile in parameter.tiles():
                tile[:] = 1
            parameter.updated()
        if self._fixed:
            tiled.refresh()

    @staticmethod
    def _check_inputs(given: Dict[str, NDArray]) -> None:
        for name, array in given.items():
            if array.stype != "default":
                raise BlockError(f"The input {name} of a tiled block has the storage type {array.stype!r}, but only "
                                 "dense arrays can be tiled: convert it with tostype('default').")
            if 0 in array.shape:
                raise BlockError(f"The input {name} of a tiled block has the shape {array.shape}, which holds no "
                                 "element: give a batch of at least 1 sample.")

    def _take(self, signature: _Signature) -> BoundGraph:
        """An executor that no recorded call holds."""
        if not signature.free and signature.bound:
            tape.pending_calls()
            if not signature.free and signature.bound > 1:
                mx.nd.waitall()  # MXNet may not have got round to releasing what the program has dropped
                tape.pending_calls()
        if signature.free:
            return signature.free.pop()
        tiles = {name: Tiles.of(parameter) for name, parameter in self._parameters.items()}
        signature.bound += 1
        return self._bound(signature.program, signature.inputs, tiles)

    def _bound(self, program: Program, inputs, tiles: Dict[str, Tiles]) -> BoundGraph:
        bound = BoundGraph(program, inputs, tiles)
        if self._watcher is not None:
            self._watcher(bound)
        return bound

    @staticmethod
    def _move_statistics(signature: _Signature, bound: BoundGraph) -> None:
        """After a backward pass: move the auxiliary states, as MXNet's BatchNorm does in its backward pass."""
        for parameter, positions, diverges in signature.changes:
            parameter.changed_tiles(positions, diverges)
        if bound.program.statistics:
            bound.update_statistics(functools.partial(_tile_of, signature.changes))

    # -- planning and binding --------------------------------------------------------------------------------------

    def _add_signature(self, call: _Call) -> _Signature:
        """Plan, lower and bind for a new call signature; parameters become tiled only when all that succeeded."""
        for name, parameter in self._parameters.items():
            _check_parameter(name, parameter, self.settings)
        gradients = set(call.sources)
        if call.recording:
            gradients |= {name for name, parameter in self._parameters.items() if parameter.grad_req != "null"}
        computed = gradients | (weights_beside_trained_biases(self._symbol, gradients) & set(self._parameters))
        graph, plan, program = self._plan(call, computed)
        signature = _Signature(program, plan, call)
        cuts = self._cuts(program, bool(gradients))
        tiles = {name: Tiles.of(parameter, cuts.get(name)) for name, parameter in self._parameters.items()}
        bound = self._bound(program, call.inputs, tiles)
        for cut in cuts.values():
            cut.commit()
        self._remember_tilings(plan, provisional=not gradients)
        self._fill(signature, gradients)
        signature.free.append(bound)
        signature.bound = 1
        self._signatures[call.key] = signature
        while len(self._signatures) > _MAX_SIGNATURES:
            self._signatures.popitem(last=False)
        self.latest_plan, self.latest_graph = plan, graph
        if gradients:
            self.training_plan = plan
        return signature

    def _plan(self, call: _Call, gradients: Set[str]) -> Tuple[Dict[str, Any], Dict[str, Any], Program]:
        """The graph as the planner sees it, its plan, and what runs."""
        parameters = {name: tiled.type_of(parameter) for name, parameter in self._parameters.items()}
        own = operators.are_usable(self.settings.contexts)
        graph = describe(self._symbol, call.inputs, parameters, gradients, call.training, own)
        pins = self._pins(deciding=bool(gradients))
        undecided = [name for name in self._parameters if name not in pins and name not in self._auxiliary]
        if not gradients and undecided:
            # Parameters are to lie as training wants them, although this call does not train.
            wanted = {name for name, parameter in self._parameters.items() if parameter.grad_req != "null"}
            training = describe(self._symbol, call.inputs, parameters, wanted, True, own) if wanted else graph
            tensors = core.plan(training, self.settings.plan_options(pins, self._names))["tensors"]
            pins.update({name: tensors[name] for name in undecided if name in tensors})
        plan = core.plan(graph, self.settings.plan_options(pins, self._names))
        lowered = core.lower(graph, plan, self.settings.lower_options())
        return graph, plan, Program(lowered, self.settings.contexts, call.training, gradients, self.settings.recompute)

    def _pins(self, deciding: bool) -> Dict[str, List[str]]:
        """The tilings of parameters that are decided."""
        pins = {}
        for name, parameter in self._parameters.items():
            decided = parameter.__dict__.get("_soybean_tiling")
            if decided is not None and not (deciding and decided.provisional):
                pins[name] = decided.tiling
        return pins

    def _remember_tilings(self, plan: Dict[str, Any], provisional: bool) -> None:
        for name, parameter in self._parameters.items():
            decided = parameter.__dict__.get("_soybean_tiling")
            if name in self._auxiliary or name not in plan["tensors"]:
                continue
            if decided is None or (decided.provisional and not provisional):
                parameter._soybean_tiling = _Tiling(self.settings.contexts, plan["tensors"][name], provisional)

    def _cuts(self, program: Program, trains: bool) -> Dict[str, Cut]:
        """New tiles for the parameters that are not tiled yet, or whose provisional tiling is another."""
        cuts = {}
        for name, parameter in self._parameters.items():
            shape, _ = tiled.type_of(parameter)
            places = self._places(program, name, shape)
            if not tiled.is_tiled(parameter):
                cuts[name] = Cut(parameter, Layout(shape, self.settings.contexts, places))
            elif name in self._auxiliary:
                parameter.extend(places)
            elif trains and set(places) != set(parameter.layout.places):
                cuts[name] = Cut(parameter, Layout(shape, self.settings.contexts, places))
        return cuts

    @staticmethod
    def _places(program: Program, name: str, shape: Shape) -> List[Tuple[int, Region]]:
        """Where a program wants tiles of a parameter: where it reads them, and where it yields new statistics."""
        places = [(slot.device, slot.region) for slot in program.slots_of.get(name, ())]
        places += [(item["device"], Region.of(item)) for item in program.statistics if item["source"] == name]
        return list(OrderedDict.fromkeys(places)) or [(0, Region.whole(shape))]

    def _fill(self, signature: _Signature, gradients: Set[str]) -> None:
        """Note what the runs of a signature read and change."""
        program = signature.program
        signature.trained = [parameter for name, parameter in self._parameters.items() if name in gradients]
        for name in self._auxiliary:
            parameter = self._parameters.get(name)
            if parameter is None:
                continue
            signature.reads[parameter] = positions_used(program, parameter)
            places = parameter.layout.places
            yielded = {places.index((item["device"], Region.of(item))) for item in program.statistics
                       if item["source"] == name}
            changed = yielded or signature.reads[parameter]
            if program.training and gradients and changed:
                copies = len({places[position][1] for position in changed}) < len(changed)
                local = self.settings.batch_norm == "local" and not yielded and copies
                signature.changes.append((parameter, changed, local))
        for parameter in self._parameters.values():
            parameter._soybean_users.add(self)


def _nothing() -> None:
    return None


def _computes_data(parameter: Parameter) -> bool:
    """Whether the parameter's class computes what ``data()`` gives, such as GluonNLP's WeightDropParameter."""
    return type(parameter).data is not Parameter.data


def _check_parameter(name: str, parameter: Parameter, settings: _Settings) -> None:
    if parameter._stype != "default" or parameter._grad_stype != "default":
        raise BlockError(f"Parameter {name} has the storage type {parameter._stype!r} and its gradient "
                         f"{parameter._grad_stype!r}, but only dense parameters can be tiled: create it with "
                         "stype='default' and grad_stype='default' (sparse_grad=False), or set SOYBEAN_MX=0.")
    held = parameter.list_ctx()
    if len(held) > 1:
        raise BlockError(f"Parameter {name} was initialised on {held}, but soybean_mx spreads a program that is "
                         "written for one device: initialise the block on one context, or set SOYBEAN_MX=0.")
    if not tiled.is_tiled(parameter):
        decided = parameter.__dict__.get("_soybean_tiling")
        if decided is not None and decided.contexts != settings.contexts:
            del parameter._soybean_tiling  # of devices that it was on before
    elif parameter.layout.contexts != settings.contexts:
        raise BlockError(f"Parameter {name} is tiled over {parameter.layout.contexts}, but this block is to run on "
                         f"{settings.contexts}: give all blocks that share a parameter the same devices, or call "
                         "reset_ctx on the parameters first.")


# -- the patched methods -------------------------------------------------------------------------------------------


def _settings_of(block: HybridBlock) -> Optional[_Settings]:
    """How the block is to be tiled; None when it is MXNet's."""
    if block._soybean_settings is not None:
        return block._soybean_settings
    if _default_devices is None or block._backend is not None or not _has_parameters(block):
        return None
    return _default_settings()


def _has_parameters(block: HybridBlock) -> bool:
    """Whether the block or one inside it has a parameter; found out once per hybridization."""
    if block._soybean_has_parameters is None:
        block._soybean_has_parameters = any(True for _ in block.collect_params())
    return block._soybean_has_parameters


@functools.lru_cache(maxsize=None)
def _default_settings() -> _Settings:
    return _Settings()


def _build(block: HybridBlock, settings: _Settings, args: Tuple[Any, ...]) -> None:
    """Trace the block and initialise its parameters, as ``HybridBlock._build_cache`` does, for the tiled path."""
    data, out = _trace(block, args)
    input_names = [symbol.name for symbol in data]
    expected = out.list_inputs()
    if block._cached_op_args:
        params = {pair[1].name: pair[1] for pair in block._cached_op_args if isinstance(pair[1], Parameter)}
    else:
        params = dict(block.collect_params().items())
    _check_names(expected, input_names, params)
    _initialise(block, [params[name] for name in expected if name in params], args)
    order = {name: index for index, name in enumerate(input_names)}
    block._cached_op_args = [(True, order[name]) if name in order else (False, params[name]) for name in expected]
    used = {name: params[name] for name in expected if name not in order}
    block._cached_op = _graph_class(settings)(out, input_names, used, settings)


def _graph_class(settings: _Settings) -> type:
    if settings.parallel == "tiling":
        return TiledGraph
    from soybean_mx.pipeline.blocks import PipelinedGraph  # which imports this module

    return PipelinedGraph


def _trace(block: HybridBlock, args: Tuple[Any, ...]):
    """The block's symbol; a block that cannot be traced is named, with the reason."""
    try:
        return block._get_graph(*args)
    except (AttributeError, NotImplementedError, TypeError) as error:
        raise BlockError(f"Block {block.name} was hybridized but cannot be traced ({type(error).__name__}: {error}): "
                         "its hybrid_forward may use nothing but operators of F on its arguments; write it so, or do "
                         "not hybridize it.") from error


def _check_names(expected: Sequence[str], input_names: Sequence[str], params: Dict[str, Parameter]) -> None:
    unknown = [name for name in expected if name not in params and name not in input_names]
    assert not unknown, f"Unknown input to HybridBlock: {unknown[0]}"
    unused = [f"{index}-th" for index, name in enumerate(input_names) if name not in expected]
    if unused:
        warnings.warn(f"The {', '.join(unused)} input to HybridBlock is not used by any computation. "
                      "Is this intended?", stacklevel=6)
    unused = [name for name in params if name not in expected]
    if unused:
        warnings.warn(f"Parameter {', '.join(unused)} is not used by any computation. Is this intended?",
                      stacklevel=6)


def _initialise(block: HybridBlock, params: Sequence[Parameter], args: Tuple[Any, ...]) -> None:
    """Finish deferred initialisation; raises MXNet's own error for parameters that are not initialised at all."""
    missing = [parameter for parameter in params if parameter._data is None]
    if any(parameter._deferred_init for parameter in missing):
        flat, _ = _block_module._flatten(args, "input")
        block._deferred_infer_shape(*flat)
        for parameter in params:
            parameter._finish_deferred_init()
    with autograd.pause():  # nothing is recorded on what is looked at here
        for parameter in missing:
            parameter.list_data()


def _call_cached_op(self, *args):
    settings = _settings_of(self)
    if settings is None:
        if isinstance(self._cached_op, TiledGraph):
            self._cached_op = None
        return _original["call_cached_op"](self, *args)
    if self._callback:
        raise BlockError(f"{self.name} has an operator hook (register_op_hook), but a tiled block runs other operators "
                         "than the ones that it was written with: hybridize it with another backend, or set "
                         "SOYBEAN_MX=0.")
    if not isinstance(self._cached_op, TiledGraph) or self._cached_op.settings is not settings:
        _build(self, settings, args)
    flat, format_ = _block_module._flatten(args, "input")
    if format_ != self._in_format and not _same_but_for_none(self._in_format, format_):
        raise ValueError("The argument structure of HybridBlock does not match the cached version. Stored format = "
                         f"{self._in_format}, input format = {format_}")
    outputs = self._cached_op(*[array for array in flat if array is not None])
    return _block_module._regroup(outputs, self._out_format)


def _same_but_for_none(stored, given) -> bool:
    """Whether two argument structures differ only by None at the end, where default values are relied on."""
    if isinstance(stored, int) or isinstance(given, int) or len(stored) == len(given):
        return False
    shorter, longer = sorted((stored, given), key=len)
    return longer[:len(shorter)] == shorter and all(item == -1 for item in longer[len(shorter):])


def _build_cache(self, *args):
    settings = _settings_of(self)
    if settings is None:
        _original["build_cache"](self, *args)
    else:
        _build(self, settings, args)


def _hybridize(self, active=True, backend=None, clear=True, *args, **kwargs):
    """``HybridBlock.hybridize``, with the backend ``soybean_mx``.

    Its options: ``devices``, a list of contexts or a text such as ``"cpu:8"``; ``strategy``, a name that the planner
    knows (``"optimal"``); ``pins``, what is fixed of the plan, by patterns on the names of tensors and operators
    (:mod:`soybean_mx.pins`; default: ``$SOYBEAN_MX_PINS``); ``batch_norm``, ``"exact"`` or
    ``"local"``; ``parallel``, ``"tiling"`` or ``"pipeline"`` (:mod:`soybean_mx.pipeline.blocks`; default:
    ``$SOYBEAN_MX_PARALLEL``); ``microbatches`` of a pipelined block (default: ``$SOYBEAN_MX_MICROBATCHES``, else twice
    the devices); ``recompute``, whether the backward pass computes activations again instead of keeping them (default:
    ``$SOYBEAN_MX_RECOMPUTE``).
    """
    self._soybean_has_parameters = None
    if backend != BACKEND:
        self._soybean_settings = None
        _original["hybridize"](self, active, backend, clear, *args, **kwargs)
        return
    options = {name: value for name, value in self._backend_opts.items() if name in _OPTIONS}
    options.update({name: kwargs.pop(name) for name in _OPTIONS if name in kwargs})
    unknown = [name for name in kwargs if name not in ("static_alloc", "static_shape", "inline_limit",
                                                       "forward_bulk_size", "backward_bulk_size")]
    if unknown:
        raise TypeError(f"hybridize(backend='{BACKEND}') got the unknown options {unknown}: its options are "
                        f"{', '.join(_OPTIONS)}.")
    settings = _Settings(**options)
    _original["hybridize"](self, active, None, clear, *args, **kwargs)
    self.apply(lambda block: _set_settings(block, settings))


def _set_settings(block, settings: _Settings) -> None:
    if isinstance(block, HybridBlock):
        block._soybean_settings = settings


def install(devices=None) -> None:
    """Patch Gluon, and make ``devices`` the ones that hybridized blocks run on.

    Parameters
    ----------
    devices : sequence of mxnet.Context or str, optional
        For instance ``"cpu:8"``. Without devices only blocks that are hybridized for the backend ``soybean_mx`` are
        tiled, unless the environment says otherwise. A later call replaces them.

    Raises
    ------
    soybean_mx.devices.DeviceError
        When the device list cannot be used.
    """
    global _default_devices
    if devices is None and os.environ.get("SOYBEAN_MX", "0") not in ("", "0"):
        devices = os.environ.get("SOYBEAN_MX_DEVICES")
        devices = device_contexts(devices)
    if devices is not None:
        _default_devices = device_contexts(devices)
        _default_settings.cache_clear()
    if _original:
        return
    _original.update(call_cached_op=HybridBlock._call_cached_op, build_cache=HybridBlock._build_cache,
                     hybridize=HybridBlock.hybridize)
    HybridBlock._soybean_settings = HybridBlock._soybean_has_parameters = None
    HybridBlock._call_cached_op = _call_cached_op
    HybridBlock._build_cache = _build_cache
    HybridBlock.hybridize = _hybridize
    tiled.install()
    tape.install()
    trainer.install()


def plan_of(block: HybridBlock) -> Dict[str, Any]:
    """The plan that a tiled block runs by.

    Parameters
    ----------
    block : mxnet.gluon.HybridBlock
        A block that has been called.

    Returns
    -------
    dict
        The latest plan of a call that trains; of any call where none did.

    Raises
    ------
    BlockError
        When the block has no plan.
    """
    graph = getattr(block, "_cached_op", None)
    if not isinstance(graph, TiledGraph) or graph.latest_plan is None:
        raise BlockError(f"{getattr(block, 'name', block)} has no plan: hybridize it with soybean_mx switched on, and "
                         "call it once.")
    return graph.training_plan or graph.latest_plan


__all__ = ["BACKEND", "BlockError", "TiledGraph", "install", "plan_of"]
