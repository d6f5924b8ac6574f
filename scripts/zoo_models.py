"""The models of MXNet's and GluonCV's zoos at small image size, with inputs to train them on.

:func:`find` knows every name of both zoos. What a model takes follows from its name: the first row of :data:`FAMILIES`
whose pattern is found in it counts. GluonCV's int8 models are inference graphs of quantised weights that it downloads;
they cannot be trained, and are not among the names.
"""
from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple
from unittest import mock

import mxnet as mx
import numpy as np

from models import zoo_names
from sample_model import SampleModel

BATCH = 4
SMALL_BRANCH = 0.1
OBJECTS = 3  # in an image of a detection model

Draw = Callable[[np.random.RandomState, Tuple[int, ...]], List[mx.nd.NDArray]]


def images(rng: np.random.RandomState, shape: Tuple[int, ...]) -> List[mx.nd.NDArray]:
    """One array of normally distributed pixels."""
    return [mx.nd.array(rng.normal(size=shape))]


def distinct_images(rng: np.random.RandomState, shape: Tuple[int, ...]) -> List[mx.nd.NDArray]:
    """Images of different brightness and contrast, which stay distinct where a network sees a whole image as a pixel.

    Over samples that are nearly equal, BatchNorm amplifies rounding by as much as they are nearer to each other than
    to 0.
    """
    contrast, brightness = rng.uniform(0.2, 3, size=(shape[0], 1, 1, 1)), 2 * rng.normal(size=(*shape[:2], 1, 1))
    return [mx.nd.array(rng.normal(size=shape) * contrast + brightness)]


def images_with_boxes(rng: np.random.RandomState, shape: Tuple[int, ...]) -> List[mx.nd.NDArray]:
    """Images, the corners of the objects in them and their classes, as R-CNN is trained on."""
    boxes = _boxes(rng, shape)
    classes = rng.randint(0, 20, size=(shape[0], OBJECTS, 1))
    return [*images(rng, shape), mx.nd.array(boxes), mx.nd.array(classes)]


def distinct_images_with_boxes(rng: np.random.RandomState, shape: Tuple[int, ...]) -> List[mx.nd.NDArray]:
    """As :func:`images_with_boxes`, of :func:`distinct_images`."""
    return [*distinct_images(rng, shape), *images_with_boxes(rng, shape)[1:]]


def images_with_grids(classes: int, rng: np.random.RandomState, shape: Tuple[int, ...]) -> List[mx.nd.NDArray]:
    """Images, the objects' corners and YOLO's targets: object or not, centre, scale, weight and class of every anchor.

    There are three anchors at each point of grids that are 32, 16 and 8 pixels wide.
    """
    batch, _, height, width = shape
    anchors = sum(3 * (height // stride) * (width // stride) for stride in (32, 16, 8))
    is_object = (rng.uniform(size=(batch, anchors, 1)) < 0.05).astype("float32")
    centres, scales = rng.uniform(size=(2, batch, anchors, 2))
    kinds = np.eye(classes)[rng.randint(0, classes, size=(batch, anchors))]
    weights = np.broadcast_to(is_object, (batch, anchors, 2))
    return [*images(rng, shape), *map(mx.nd.array, (_boxes(rng, shape), is_object, centres, scales, weights, kinds))]


def _boxes(rng: np.random.RandomState, shape: Tuple[int, ...]) -> np.ndarray:
    """Corners ``(x1, y1, x2, y2)`` of objects that are a quarter of the image wide at least, one row for each."""
    begin = rng.uniform(0, 0.4, size=(shape[0], OBJECTS, 2))
    end = begin + rng.uniform(0.25, 0.5, size=begin.shape)
    return np.concatenate([begin, end], axis=2) * [shape[3], shape[2], shape[3], shape[2]]


def template_and_search(rng: np.random.RandomState, shape: Tuple[int, ...]) -> List[mx.nd.NDArray]:
    """What a tracker looks for, and where: images of the sizes that SiamRPN is trained on."""
    return [*images(rng, shape), *images(rng, (*shape[:2], 255, 255))]


@dataclass(frozen=True)
class Family:
    """Models that take the same: options of ``get_model``, the shape of one sample, and how inputs are drawn."""

    pattern: str
    sample: Tuple[int, ...]
    options: Dict[str, Any] = field(default_factory=dict)
    draw: Draw = images
    batch: int = BATCH
    dtype: Optional[str] = None  # see SampleModel


_CROP = {"crop_size": 32, "base_size": 32}
_RCNN = {"per_device_batch_size": 2}
_FEW_REGIONS = {"num_sample": 4, "rpn_train_pre_nms": 64, "rpn_train_post_nms": 16, "max_num_gt": OBJECTS}
_CLASSES = {"classes": ["bird", "cat"]}

FAMILIES: Tuple[Family, ...] = (
    # It mixes in constants of single precision.
    Family(r"^custom_mask_rcnn", (3, 128, 128), {**_RCNN, **_CLASSES}, images_with_boxes, 2, "float32"),
    Family(r"rcnn.*syncbn_mobilenet", (3, 128, 128), {}, images_with_boxes, 1),
    Family(r"^custom_.*rcnn|rcnn.*custom", (3, 128, 128), {**_RCNN, **_CLASSES}, images_with_boxes, 2),
    # It normalises over the samples alone.
    Family(r"rcnn.*resnest", (3, 128, 128), {"per_device_batch_size": BATCH}, distinct_images_with_boxes),
    Family(r"rcnn", (3, 128, 128), _RCNN, images_with_boxes, 2),
    Family(r"^yolo3.*custom", (3, 64, 64), _CLASSES, partial(images_with_grids, 2)),
    Family(r"^yolo3.*coco", (3, 64, 64), {}, partial(images_with_grids, 80)),
    Family(r"^yolo3", (3, 64, 64), {}, partial(images_with_grids, 20)),
    Family(r"^ssd_.*vgg.*custom", (3, 300, 300), _CLASSES, images, 1),
    Family(r"^ssd_.*vgg", (3, 300, 300), {}, images, 1),
    Family(r"^ssd_300_resnet34.*custom", (3, 300, 300), _CLASSES, distinct_images),
    Family(r"^ssd_300_resnet34", (3, 300, 300), {}, distinct_images),
    Family(r"^ssd_.*custom", (3, 64, 64), _CLASSES, distinct_images, 8),
    Family(r"^ssd", (3, 64, 64), {}, distinct_images, 8),
    Family(r"^icnet", (3, 64, 64), {"crop_size": 64, "base_size": 64}),
    Family(r"^(fcn|psp|deeplab|danet|fastscnn)", (3, 32, 32), _CROP),
    Family(r"^monodepth2.*posenet", (6, 64, 64)),
    Family(r"^(monodepth2|alexnet|hrnet|dla|center_net_dla)", (3, 64, 64)),
    Family(r"^residualattention", (3, 224, 224), {}, images, 1),
    Family(r"cifar", (3, 32, 32)),
    Family(r"^i3d_inceptionv3", (3, 8, 128, 128), {}, images, 2),
    Family(r"^c3d", (3, 16, 112, 112), {}, images, 1),
    Family(r"^p3d", (3, 16, 64, 64), {}, images, 2),
    Family(r"^i3d.*custom|^slowfast.*custom", (3, 36, 32, 32), {"nclass": 10}),
    Family(r"_v1b_custom", (3, 48, 48), {"nclass": 10, "use_kinetics_pretrain": False}),
    # At 32 pixels it normalises over 8 numbers at its end, which amplifies rounding to 2e-6.
    Family(r"^i3d_nl5_resnet101", (3, 16, 48, 48)),
    Family(r"^(r2plus1d|i3d)", (3, 16, 32, 32)),
    Family(r"^slowfast_8x8", (3, 40, 32, 32)),
    Family(r"^slowfast_16x8", (3, 80, 32, 32), {}, images, 2),
    Family(r"^slowfast", (3, 36, 32, 32)),
    Family(r"^siamrpn", (3, 127, 127), {"bz": 2, "is_train": True}, template_and_search, 2),
    Family(r"inception_?v3", (3, 299, 299), {}, images, 2),
    Family(r"^densenet|^googlenet|^inceptionv1|^nasnet|^squeezenet", (3, 224, 224), {}, images, 2),
    Family(r"^xception", (3, 96, 96)),
    Family(r"", (3, 48, 48)),
)

# What plain MXNet cannot train on one CPU either, as hybridized blocks, and why.
UNTRAINABLE = {
    r"dcnv2": "the gradient of ModulatedDeformableConvolution is implemented on GPUs only",
    r"^custom_faster_rcnn_fpn$": "GluonCV lists a double-headed R-CNN by that name, whose forward pass fails",
    r"_v1b_gn$": "GluonCV's GroupNorm gives Symbol.reshape several numbers, and cannot be traced",
}


def why_untrainable(name: str) -> Optional[str]:
    """Why plain MXNet cannot train a model on a CPU; None where it can."""
    return next((reason for pattern, reason in UNTRAINABLE.items() if re.search(pattern, name)), None)


def gluoncv_names() -> List[str]:
    """The names of GluonCV's zoo that can be trained, with ``gluoncv:`` before those that MXNet's zoo has too."""
    from gluoncv import model_zoo

    ours = set(zoo_names())
    return [f"gluoncv:{name}" if name in ours else name for name in model_zoo.get_model_list() if "int8" not in name]


def find(name: str) -> SampleModel:
    """The model of that name: of MXNet's zoo, or else of GluonCV's.

    Raises
    ------
    ValueError
        When neither has it.
    """
    if name in zoo_names():
        build = partial(mx.gluon.model_zoo.vision.get_model, name)
    elif name in gluoncv_names():
        build = partial(_gluoncv, name.replace("gluoncv:", ""))
    else:
        raise ValueError(f"There is no model {name!r} in the zoos of MXNet and GluonCV: --list prints all names.")
    family = next(f for f in FAMILIES if re.search(f.pattern, name.replace("gluoncv:", "")))
    shape = (family.batch, *family.sample)
    return SampleModel(partial(build, **family.options), lambda rng: family.draw(rng, shape), family.dtype)


def _gluoncv(name: str, **options: Any) -> mx.gluon.Block:
    """GluonCV's model, without weights from the network."""
    from gluoncv import model_zoo

    failure: Exception = RuntimeError(name)
    with few_regions(), random_weights():
        # Models differ in the options that they know for that.
        for without in ({"pretrained": False, "pretrained_base": False}, {"pretrained": False}):
            try:
                net = model_zoo.get_model(name, **options, **without)
                if SENSITIVE.search(name):
                    let_branches_begin_small(net)
                getattr(net, "target_generator", None)  # a part of R-CNN that is made when it is first asked for
                return net
            except Exception as error:  # whatever the models' own code raises
                failure = error
    raise failure


# Networks that amplify rounding until one device with other last bits computes other gradients.
SENSITIVE = re.compile(r"resnest|^r2plus1d")
# A block's four BatchNorms, its residual branch's last among them, where a detection model has made one symbol of it.
_NUMBERED_GAMMA = re.compile(r"resnest_layers\d+_\w*batchnorm(\d+)_gamma$")


def let_branches_begin_small(net: mx.gluon.Block) -> None:
    """Let each residual block begin near the identity, by the factor of its last BatchNorm.

    ResNeSts normalise over the samples alone, in every block. Begun with factors of 1, the deep ones amplify rounding
    to 1e-3 of a gradient on one device, in float64; begun so, to 1e-10. A deep R(2+1)D amplifies it a hundredfold in
    every step, to 1e-7, which turns the sign of some number before a ReLU and so moves gradients by 2e-3.
    """
    for name, parameter in net._collect_params_with_prefix().items():
        numbered = _NUMBERED_GAMMA.search(name)
        if name.endswith("bn3.gamma") or numbered and int(numbered[1]) % 4 == 3:
            parameter.init = mx.init.Constant(SMALL_BRANCH)
            if parameter._data is not None:  # some networks initialise themselves
                parameter.set_data(mx.nd.full(parameter.shape, SMALL_BRANCH))


@contextlib.contextmanager
def random_weights() -> Iterator[None]:
    """Within it, what would load weights draws them: some functions load those of another network, asked or not."""
    def initialise(block: mx.gluon.Block, *_: Any, **__: Any) -> None:
        block.initialize()

    parameters, stores = mx.gluon.ParameterDict, ("mxnet.gluon.model_zoo", "gluoncv.model_zoo")
    with contextlib.ExitStack() as stack:
        for store in stores:
            stack.enter_context(mock.patch(f"{store}.model_store.get_model_file", lambda *_, **__: ""))
        stack.enter_context(mock.patch.object(mx.gluon.Block, "load_parameters", initialise))
        # They move parameters to a device that have no values yet.
        stack.enter_context(mock.patch.object(parameters, "reset_ctx", lambda *_: None))
        yield


@contextlib.contextmanager
def few_regions() -> Iterator[None]:
    """Within it, R-CNNs are made that learn from few regions of an image: the zoo's functions fix hundreds."""
    from gluoncv.model_zoo.rcnn.faster_rcnn.doublehead_rcnn import DoubleHeadRCNN
    from gluoncv.model_zoo.rcnn.faster_rcnn.faster_rcnn import FasterRCNN

    def smaller(made: Callable[..., None]) -> Callable[..., None]:
        return lambda *args, **kwargs: made(*args, **{**kwargs, **_FEW_REGIONS})

    with mock.patch.object(FasterRCNN, "__init__", smaller(FasterRCNN.__init__)), \
            mock.patch.object(DoubleHeadRCNN, "__init__", smaller(DoubleHeadRCNN.__init__)):
        yield
