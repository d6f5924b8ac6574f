"""Models by name, as graphs that the planner takes. Nothing is allocated, computed or downloaded: shapes are inferred.

A model is the name of one in ``mxnet.gluon.model_zoo.vision`` or, where GluonCV is installed, in its model zoo; or
``module:function``, a function without required arguments (or a class) that returns a Gluon block; or the path of an
exported ``-symbol.json``.
"""
from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import io
import os
import re
import sys
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import HybridBlock
from mxnet.gluon.model_zoo import vision
from mxnet.ndarray.ndarray import _DTYPE_MX_TO_NP as _TYPES

from soybean_mx import graph
from soybean_mx.input_errors import InputError

Shape = Tuple[int, ...]
InputShapes = Union[Sequence[Shape], Mapping[str, Shape]]

DTYPES = ("float32", "float16", "float64")
DEFAULT_BATCH_SIZE = 256

# Shapes of one sample, by the names of models: the first pattern that is found counts. Detection models get the size in
# their name, or else the one that their authors train with; segmentation models the crops that GluonCV trains with.
_SAMPLE_SHAPES: Tuple[Tuple[str, Shape], ...] = (
    (r"^(ssd|fcos)_300_", (3, 300, 300)),
    (r"^(ssd|center_net)", (3, 512, 512)),
    (r"^yolo3", (3, 416, 416)),
    (r"rcnn", (3, 800, 800)),
    (r"^(fcn|psp|deeplab|icnet|danet|fastscnn)", (3, 480, 480)),
    (r"^hrnet.*_s$", (3, 480, 480)),
    (r"^monodepth2", (3, 192, 640)),
    (r"^(simple_pose|mobile_pose|alpha_pose)", (3, 256, 192)),
    (r"cifar", (3, 32, 32)),
    (r"^nasnet_6", (3, 331, 331)),
    (r"inception_?v3|^xception", (3, 299, 299)),
    (r"^(c3d|p3d|r2plus1d)", (3, 16, 112, 112)),
    (r"^i3d|^slowfast", (3, 32, 224, 224)),
    (r"", (3, 224, 224)),
)
# Models that do not take one image.
_NO_SAMPLE_SHAPE = r"^siamrpn|^smot|^slowfast|posenet|_int8$"


class ModelError(InputError):
    """A model that cannot be loaded or whose shapes do not follow; the message is one sentence for the user."""


@dataclass(frozen=True)
class LoadedModel:
    """A model as the planner takes it.

    Parameters
    ----------
    name : str
        As the user named it.
    graph : dict
        The ``graph`` of docs/interface.md, which ends in the network's outputs; in training mode.
    input_shapes : dict of str to tuple of int
        The shape of each input.
    notes : tuple of str
        What the user should know: for instance that a detection model's forward pass is the one without targets.
    """

    name: str
    graph: Dict[str, Any]
    input_shapes: Dict[str, Shape]
    notes: Tuple[str, ...] = ()

    @property
    def batch_size(self) -> Optional[int]:
        """The first extent of the first input; None for one without dims."""
        return next((shape[0] for shape in self.input_shapes.values() if shape), None)


@dataclass(frozen=True)
class _Traced:
    """A network as a symbol, with the shapes (None: to be inferred) and types of its variables."""

    symbol: Any
    inputs: Tuple[str, ...]
    parameters: Dict[str, Tuple[Optional[Shape], Any]]
    trained: frozenset
    inferred_inputs: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()


def load(
    model: str,
    batch_size: Optional[int] = None,
    input_shapes: Optional[InputShapes] = None,
    dtype: str = "float32",
    classes: Optional[int] = None,
    input_gradients: bool = False,
) -> LoadedModel:
    """Load a model and infer the shapes of all its tensors.

    Parameters
    ----------
    model : str
        A name, ``module:function`` or the path of a ``-symbol.json``, as the module says.
    batch_size : int, optional
        Samples in a batch of a named model, whose usual sample shape is taken. Not together with `input_shapes`.
    input_shapes : sequence of tuple of int, or mapping of str to tuple of int, optional
        The shape of every input with the batch, in their order or by name. Without it and without `batch_size`, a
        named model gets a batch of 256.
    dtype : str
        Of the inputs and parameters: float32, float16 or float64. (An exported symbol's may be fixed by the symbol.)
    classes : int, optional
        Of a named model; its own default when absent.
    input_gradients : bool
        Whether the gradients of the inputs are asked for too.

    Returns
    -------
    LoadedModel

    Raises
    ------
    ModelError
        When there is no such model, it cannot be traced, or the shapes do not fit it.
    """
    if dtype not in DTYPES:
        raise ModelError(f"The type is {dtype!r}, but {', '.join(DTYPES)} are possible.")
    if batch_size is not None and input_shapes:
        raise ModelError(f"Both a batch size ({batch_size}) and input shapes were given: give one of them, as shapes "
                         "hold the batch.")
    if batch_size is not None and batch_size < 1:
        raise ModelError(f"The batch size is {batch_size}, but 1 or more is needed.")
    if classes is not None and classes < 1:
        raise ModelError(f"The number of classes is {classes}, but 1 or more is needed.")
    # Names of nodes and parameters as in a fresh process; zoos print to the standard output.
    with mx.name.NameManager(), contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if model.endswith(".json"):
            _refuse_classes(model, classes)
            traced = _read_symbol(model, input_shapes, dtype)
            given = _named_shapes(model, traced.inputs, input_shapes, batch_size, None)
        else:
            made, named = _block(model, classes)
            count = len(input_shapes) if input_shapes else 1
            traced = _trace(model, made, count, dtype)
            sample = _sample_shape(model) if named else None
            given = _named_shapes(model, traced.inputs, input_shapes, batch_size, sample)
        described = _described(model, traced, given, dtype, input_gradients)
    return LoadedModel(model, described, given, traced.notes)


def of_block(name: str, block: Any, input_shapes: Sequence[Shape], dtype: str = "float32") -> LoadedModel:
    """A Gluon block that is there already, as :func:`load` gives one that it makes.

    Parameters
    ----------
    name : str
        What to call it.
    block : mxnet.gluon.HybridBlock
        The network; its parameters need no values.
    input_shapes : sequence of tuple of int
        Of each input, with the batch.
    dtype : str
        Of the inputs and parameters.

    Raises
    ------
    ModelError
        When it cannot be traced, or the shapes do not fit it.
    """
    with mx.name.NameManager():
        traced = _trace(name, block, len(input_shapes), dtype)
        given = _named_shapes(name, traced.inputs, input_shapes, None, None)
        return LoadedModel(name, _described(name, traced, given, dtype, False), given, traced.notes)


def block(model: str, classes: Optional[int] = None, inputs: Sequence[str] = ("data",)) -> Any:
    """The Gluon block of a model that :func:`load` takes, with parameters that have no values yet.

    Parameters
    ----------
    model, classes
        As of :func:`load`.
    inputs : sequence of str
        The names of an exported symbol's inputs: those of :attr:`LoadedModel.input_shapes`.

    Returns
    -------
    mxnet.gluon.HybridBlock
        Of an exported symbol a ``SymbolBlock``.

    Raises
    ------
    ModelError
        When there is no such model.
    """
    with mx.name.NameManager(), contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if model.endswith(".json"):
            _refuse_classes(model, classes)
            found = mx.gluon.SymbolBlock(_loaded_symbol(model), [mx.sym.var(name) for name in inputs])
            # Layers say which of their parameters begin with constants; a symbol has their names alone.
            for name, parameter in found.collect_params().items():
                if not name.endswith("weight"):
                    parameter.init = "ones" if name.endswith(("gamma", "var")) else "zeros"
            return found
        return _block(model, classes)[0]


def _described(model: str, traced: _Traced, given: Mapping[str, Shape], dtype: str,
               input_gradients: bool) -> Dict[str, Any]:
    """The planner's graph of a traced model."""
    inputs: Dict[str, Tuple[Optional[Shape], Any]] = {name: (shape, dtype) for name, shape in given.items()}
    inputs.update(dict.fromkeys(traced.inferred_inputs, (None, dtype)))
    wanted = set(traced.trained) | (set(given) if input_gradients else set())
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # MXNet prints what did not fit, which the error says too
            return graph.describe(traced.symbol, inputs, traced.parameters, wanted, True)
    except graph.InferenceError:
        raise ModelError(f"The shapes of some tensors of {model} do not follow from its input shapes {_text(given)}: "
                         "give the shape of every input (--input-shape), or a block whose parameters have full "
                         "shapes.") from None
    except mx.MXNetError as error:
        raise ModelError(f"The input shapes {_text(given)} do not fit {model} ({_first_line(error)}): give the shapes "
                         "(--input-shape) and the type (--dtype) that it takes.") from None


def _text(shapes: Mapping[str, Shape]) -> str:
    return ", ".join(f"{name}: {'x'.join(map(str, shape))}" for name, shape in shapes.items())


def _first_line(error: BaseException) -> str:
    """What an error says, without MXNet's stack trace and source positions."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = next((line for line in lines if "Check failed" in line or line.startswith("Error in operator")), None)
    said = said or next((line for line in lines if line and not re.fullmatch(r"Traceback.*|Stack trace:", line)), "")
    return re.sub(r"(MXNetError: )|(\[[\d:]+\] )|((\.\./)?src/\S+: )", "", said).rstrip(".: ") or type(error).__name__


def _refuse_classes(model: str, classes: Optional[int]) -> None:
    if classes is not None:
        raise ModelError(f"The number of classes ({classes}) was given for {model}, but only models of a zoo take it: "
                         "leave it out.")


# -- finding the block ---------------------------------------------------------------------------------------------


def _block(model: str, classes: Optional[int]) -> Tuple[Any, bool]:
    """The block, and whether it is one of a zoo."""
    if ":" in model:
        _refuse_classes(model, classes)
        return _from_function(model), False
    arguments = {} if classes is None else {"classes": classes}
    try:
        return vision.get_model(model, pretrained=False, **arguments), True
    except ValueError as error:
        ours = str(error).split("\n\t")[1:]
    zoo = _gluoncv()
    theirs = [] if zoo is None else list(zoo.get_model_list())
    if model.lower() in theirs:
        return _from_gluoncv(zoo, model, arguments), True
    raise ModelError(_unknown(model, ours, theirs, zoo is not None))


def _unknown(model: str, ours: List[str], theirs: List[str], has_gluoncv: bool) -> str:
    close = difflib.get_close_matches(model.lower(), ours + theirs, 4)
    hint = f"did you mean {' or '.join(dict.fromkeys(close))}?" if close else "see mxnet.gluon.model_zoo.vision."
    more = "" if has_gluoncv else " (GluonCV, which has more, is not installed: pip install soybean_mx[zoo])"
    return (f"There is no model {model!r} in the model zoos{more}, and it is no module:function and no exported "
            f"-symbol.json: {hint}")


def _gluoncv():
    try:
        return importlib.import_module("gluoncv.model_zoo")
    except ImportError:
        return None


@contextlib.contextmanager
def _no_downloads(model: str) -> Iterator[None]:
    """GluonCV's models fetch weights that they were not asked for; here they fail instead."""
    def refuse(*_, **__):
        raise ModelError(f"The model {model} of GluonCV is only made with weights that it downloads, and a plan needs "
                         "none: write a function that returns the block, and name it as module:function.")

    stores = [mx.gluon.model_zoo.model_store, importlib.import_module("gluoncv.model_zoo.model_store")]
    with contextlib.ExitStack() as stack:
        for store in stores:
            stack.callback(setattr, store, "download", store.download)
            store.download = refuse
        yield


def _from_gluoncv(zoo, model: str, arguments: Dict[str, Any]):
    if "custom" in model and "classes" in arguments:
        arguments = {"classes": [f"class{index}" for index in range(arguments["classes"])]}  # they take names
    with _no_downloads(model):
        for without in ({"pretrained": False, "pretrained_base": False}, {"pretrained": False}, {}):
            try:
                return zoo.get_model(model, **arguments, **without)
            except ModelError:
                raise
            except Exception as error:  # models differ in what they raise for options that they do not know
                failure = error
                if not re.search("pretrained|kwargs", str(error)):
                    break
    raise ModelError(f"GluonCV cannot make its model {model} ({type(failure).__name__}: {_first_line(failure)}): write "
                     "a function that returns the block, and name it as module:function.")


def _from_function(model: str):
    module_name, _, path = model.partition(":")
    with _on_path(os.getcwd()):
        try:
            found = importlib.import_module(module_name)
            for part in path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise ModelError(f"There is no {model} ({error}): name a module that can be imported from here and a "
                             "function in it, such as models.resnet:resnet50.") from None
        try:
            block = found() if callable(found) and not isinstance(found, mx.gluon.Block) else found
        except Exception as error:  # the user's own code
            raise ModelError(f"{model}() failed ({type(error).__name__}: {_first_line(error)}): name a function that "
                             "takes no arguments and returns a Gluon block.") from error
    if not isinstance(block, mx.gluon.Block):
        raise ModelError(f"{model} returns {type(block).__name__}, but a Gluon block is needed.")
    return block


@contextlib.contextmanager
def _on_path(folder: str) -> Iterator[None]:
    """Python's own programs import from the working folder; installed commands do not."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _sample_shape(model: str) -> Optional[Shape]:
    if re.search(_NO_SAMPLE_SHAPE, model.lower()):
        return None
    return next(shape for pattern, shape in _SAMPLE_SHAPES if re.search(pattern, model.lower()))


# -- symbols -------------------------------------------------------------------------------------------------------


def _trace(model: str, block, count: int, dtype: str) -> _Traced:
    """The block's symbol for a number of inputs."""
    if not isinstance(block, HybridBlock):
        raise ModelError(f"{model} is a {type(block).__name__}, which is no HybridBlock and cannot be traced: only "
                         "blocks that hybridize can be planned for.")
    if dtype != "float32":
        block.cast(dtype)
    numpy_like = mx.util.is_np_array()
    names = ["data"] if count == 1 else [f"data{index}" for index in range(count)]
    inputs = [mx.sym.var(name).as_np_ndarray() if numpy_like else mx.sym.var(name) for name in names]
    notes: Tuple[str, ...] = ()
    try:
        with autograd.train_mode():
            symbol = _symbol_of(block, inputs)
    except Exception as training:  # whatever the block's own code raises
        try:
            with autograd.predict_mode():
                symbol = _symbol_of(block, inputs)
        except Exception as error:
            raise ModelError(_untraceable(model, block, count, error)) from None
        notes = (f"{model} needs more than {count} input{'s' * (count > 1)} to train ({type(training).__name__}): its "
                 "forward pass without targets is planned.",)
    parameters, trained = {}, set()
    for name, parameter in block.collect_params().items():
        known = parameter.shape is not None and all(extent > 0 for extent in parameter.shape)
        parameters[name] = (tuple(parameter.shape) if known else None, np.dtype(parameter.dtype))
        if parameter.grad_req != "null":
            trained.add(name)
    used = set(symbol.list_inputs())
    unknown = [name for name in symbol.list_inputs() if name not in parameters and name not in names]
    if unknown:
        raise ModelError(f"{model} uses the variable {unknown[0]}, which is none of its inputs and parameters: create "
                         "it with self.params.get.")
    return _Traced(symbol, tuple(name for name in names if name in used), parameters, frozenset(trained & used),
                   notes=notes)


def _symbol_of(block: HybridBlock, inputs: List[Any]):
    """As ``HybridBlock._get_graph`` does, but traced anew in every mode and for inputs without arrays."""
    outputs = _flat(block(*inputs))
    return outputs[0] if len(outputs) == 1 else mx.sym.Group(outputs, type(outputs[0]))


def _flat(outputs) -> List[Any]:
    if isinstance(outputs, mx.sym.Symbol):
        return [outputs]
    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    return [symbol for output in outputs if output is not None for symbol in _flat(output)]


def _untraceable(model: str, block: HybridBlock, count: int, error: BaseException) -> str:
    function: Callable = block.hybrid_forward
    with contextlib.suppress(TypeError, ValueError):
        parameters = list(inspect.signature(function).parameters.values())[1:]
        wanted = [item.name for item in parameters if item.default is item.empty and item.kind in (
            item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD) and item.name not in block._reg_params]
        if len(wanted) > count:
            return (f"{model} takes {len(wanted)} inputs ({', '.join(wanted)}), but {count} was given: give the shape "
                    "of each with --input-shape, in this order.")
    return (f"{model} cannot be traced ({type(error).__name__}: {_first_line(error)}): its hybrid_forward may use "
            "nothing but operators of F on its arguments.")


def _loaded_symbol(path: str):
    if not os.path.isfile(path):
        raise ModelError(f"There is no exported symbol {path!r}: give the path of the -symbol.json that export() "
                         "wrote.")
    try:
        return mx.sym.load(path)
    except mx.MXNetError as error:
        raise ModelError(f"MXNet cannot read the symbol {path!r} ({_first_line(error)}): give the -symbol.json that "
                         "export() wrote.") from None


def _read_symbol(path: str, input_shapes: Optional[InputShapes], dtype: str) -> _Traced:
    symbol = _loaded_symbol(path)
    arguments, auxiliary = symbol.list_arguments(), symbol.list_auxiliary_states()
    if isinstance(input_shapes, Mapping):
        inputs = [name for name in arguments if name in input_shapes]
    else:
        inputs = [name for name in arguments if re.fullmatch(r"data\d*", name)]
    if not inputs:
        raise ModelError(f"The symbol {path!r} has no variable {', '.join(input_shapes) if input_shapes else 'data'}: "
                         f"name its inputs (--input-shape NAME=SHAPE) out of {', '.join(arguments[:6])}"
                         f"{', ...' if len(arguments) > 6 else ''}.")
    inferred = [name for name in arguments if name.endswith("label") and name not in inputs]
    # Gluon's exported symbols say which types parameters have; elsewhere BatchNorm's statistics are single at least.
    attributes = symbol.attr_dict()
    parameters: Dict[str, Tuple[Optional[Shape], Any]] = {}
    for name in arguments + auxiliary:
        if name not in inputs + inferred:
            kept = int(attributes.get(name, {}).get("__dtype__", -1))
            default = "float32" if name in auxiliary and dtype == "float16" else dtype
            parameters[name] = (None, _TYPES.get(kept) or default)
    trained = set(parameters) - set(auxiliary)
    return _Traced(symbol, tuple(inputs), parameters, frozenset(trained), tuple(inferred))


def _named_shapes(model: str, names: Sequence[str], shapes: Optional[InputShapes], batch_size: Optional[int],
                  sample: Optional[Shape]) -> Dict[str, Shape]:
    """The shape of each input."""
    if not shapes:
        if sample is None or len(names) != 1:
            raise ModelError(f"The input shape of {model} is not known here: give it, with the batch first "
                             f"(--input-shape), for its input{'s' * (len(names) != 1)} {', '.join(names)}.")
        return {names[0]: (DEFAULT_BATCH_SIZE if batch_size is None else batch_size, *sample)}
    if isinstance(shapes, Mapping):
        given = {name: tuple(shape) for name, shape in shapes.items()}
    else:
        given = {name: tuple(shape) for name, shape in zip(names, shapes)}
    if len(shapes) != len(names) or set(given) != set(names):
        raise ModelError(f"{model} has the inputs {', '.join(names)}, but {len(shapes)} shapes were given"
                         f"{' for ' + ', '.join(shapes) if isinstance(shapes, Mapping) else ''}: give one shape for "
                         "each.")
    for name, shape in given.items():
        if not shape or any(extent < 1 for extent in shape):
            raise ModelError(f"The input {name} of {model} has the shape {shape}, but 1 or more in every dim is "
                             "needed.")
    return {name: given[name] for name in names}
