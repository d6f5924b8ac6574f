"""Operators on images and boxes that are checked, with attributes and shapes, and the factors that each should have."""
from __future__ import annotations

from typing import List

import numpy as np

from tests.rules.cutting import Case, Operand, index, length, positive, real


def _fixed(operand: Operand, dtype: str = "float32") -> Operand:
    """Return the operand without a gradient."""
    return Operand(operand.shape, operand.draw, gradient=False, dtype=dtype)


def _boxes(*shape: int) -> Operand:
    """Return an operand of boxes by their corners, within (0, 1)."""
    def draw(rng, shape):
        begin = rng.uniform(0, 0.6, size=(*shape[:-1], 2))
        return np.concatenate([begin, begin + rng.uniform(0.1, 0.4, size=begin.shape)], axis=-1)

    return Operand((*shape, 4), draw)


def _scored_boxes(*shape: int) -> Operand:
    """Return an operand of [class, score, box], a third of them below a score of 0."""
    def draw(rng, shape):
        return np.concatenate([rng.randint(0, 2, size=(*shape[:-1], 1)), rng.uniform(-0.5, 1, size=(*shape[:-1], 1)),
                               _boxes(*shape[:-1]).draw(rng, (*shape[:-1], 4))], axis=-1)

    return Operand((*shape, 6), draw)


def _regions(count: int, images: int, extent: float = 4, angle: bool = False) -> Operand:
    """Return an operand of regions: the number of an image, and a box (center, extent and angle of one)."""
    def draw(rng, shape):
        begin = rng.uniform(0, extent / 2, size=(count, 2))
        parts = [rng.randint(0, images, size=(count, 1)), begin, begin + rng.uniform(1, extent / 2, size=(count, 2))]
        return np.concatenate(parts + [rng.uniform(-90, 90, size=(count, 1))] * angle, axis=1)

    return Operand((count, 6 if angle else 5), draw, gradient=False)


def _labels(samples: int, count: int) -> Operand:
    """Return an operand of [class, box], the last ones of every second sample missing (-1)."""
    def draw(rng, shape):
        labels = np.concatenate([rng.randint(0, 3, size=(samples, count, 1)),
                                 _boxes(samples, count).draw(rng, (samples, count, 4))], axis=-1)
        labels[::2, count // 2:] = -1
        labels[-1] = -1
        return labels

    return Operand((samples, count, 5), draw, gradient=False)


def deformable_convolutions() -> List[Case]:
    def case(channels, filters, groups=1, deformable=1, modulated=False, bias=True, samples=4, **attrs):
        out = (samples, 0, 5, 4)
        operands = [real(samples, channels, 5, 4),
                    Operand((samples, 18 * deformable, *out[2:]), lambda rng, s: rng.uniform(-2, 2, size=s))]
        if modulated:
            operands.append(positive(samples, 9 * deformable, *out[2:]))
        operands += [real(filters, channels // groups, 3, 3)] + [real(filters)] * bias
        op = "_contrib_ModulatedDeformableConvolution" if modulated else "_contrib_DeformableConvolution"
        attrs = {"kernel": "(3, 3)", "pad": "(1, 1)", "num_filter": filters, "num_group": groups, "no_bias": not bias,
                 "num_deformable_group": deformable, **attrs}
        factors = "n g" if groups > 1 and (deformable == 1 or np.gcd(groups, deformable) > 1) else \
            "n" if groups > 1 else "n m c+"
        # MXNet has the gradient of the modulated one on GPUs only.
        return Case(op, attrs, operands, factors, training=not modulated)

    cases = []
    for modulated in (False, True):
        cases += [
            case(6, 5, modulated=modulated),
            case(6, 4, deformable=2, modulated=modulated, bias=False, layout="NCHW"),
            case(6, 6, groups=3, modulated=modulated),
            case(8, 8, groups=2, deformable=4, modulated=modulated),
            case(8, 8, groups=4, deformable=2, modulated=modulated, bias=False),
            case(6, 6, groups=2, deformable=3, modulated=modulated),
        ]
    return cases + [case(2, 2, modulated=True, samples=6, im2col_step=3)]


def detection() -> List[Case]:
    anchors = _fixed(_boxes(1, 7))
    nms = "_contrib_box_nms"
    return [
        Case(nms, {"overlap_thresh": 0.3}, [_scored_boxes(4, 7)], "n"),
        Case(nms, {"overlap_thresh": 0.3, "topk": 3, "valid_thresh": 0.1, "id_index": 0}, [_scored_boxes(4, 3, 7)],
             "n d1"),
        Case(nms, {"overlap_thresh": 0.3, "id_index": 0, "background_id": 0, "force_suppress": "True",
                   "out_format": "center"}, [_scored_boxes(4, 7)], "n"),
        Case(nms, {"overlap_thresh": 0.3, "topk": 0}, [_scored_boxes(4, 7)], "n"),
        Case(nms, {"valid_thresh": 2}, [_scored_boxes(4, 7)], "n"),
        Case(nms, {"overlap_thresh": 0.3}, [_scored_boxes(7)], ""),
        Case("_contrib_box_iou", {}, [_boxes(4, 3), _boxes(5)], "n d1 r"),
        Case("_contrib_box_iou", {"format": "center"}, [_boxes(4), _boxes(2, 3)], "n r r1"),
        Case("_contrib_bipartite_matching", {"threshold": 0.1}, [positive(4, 5, 3)], "n"),
        Case("_contrib_bipartite_matching", {"threshold": 0.5, "is_ascend": "True", "topk": 2}, [positive(2, 3, 5, 3)],
             "n d1"),
        Case("_contrib_box_encode", {}, [index(2, 4, 7), index(3, 4, 7), _boxes(4, 7), _boxes(4, 3), real(4),
                                         positive(4)], "n a"),
        Case("_contrib_box_decode", {"std0": 0.1, "clip": 0.5}, [real(4, 7, 4), _boxes(1, 7)], "n a"),
        Case("_contrib_box_decode", {"format": "corner", "std2": 0.2}, [real(4, 7, 4), _boxes(1, 7)], "n a"),
        Case("_contrib_MultiBoxPrior", {"sizes": "(0.5, 0.2)", "ratios": "(1, 2)", "clip": "True"},
             [_fixed(real(4, 3, 5, 2))], "n c"),
        Case("_contrib_MultiBoxTarget", {"overlap_threshold": 0.2}, [anchors, _labels(4, 3), real(4, 4, 7)], "n"),
        Case("_contrib_MultiBoxTarget", {"overlap_threshold": 0.2, "negative_mining_ratio": 2,
                                         "minimum_negative_samples": 1}, [anchors, _labels(4, 3), real(4, 4, 7)], "n"),
        Case("_contrib_MultiBoxDetection", {"nms_topk": 5, "threshold": 0.3},
             [positive(4, 3, 7), real(4, 28), anchors], "n", training=False),
        *[Case(f"_contrib_{name}Proposal", {"rpn_pre_nms_top_n": 12, "rpn_post_nms_top_n": 4, "rpn_min_size": 1,
                                            "output_score": "True"},
               [_fixed(x) for x in (positive(n, 24, 2, 2), real(n, 48, 2, 2), Operand(
                   (n, 3), lambda rng, s: np.full(s, [32, 32, 1])))], "", training=False)
          for name, n in (("", 1), ("Multi", 2))],
        Case("ROIPooling", {"pooled_size": "(2, 2)", "spatial_scale": 1.0}, [real(2, 3, 6, 6), _regions(5, 2)], "r c"),
        Case("_contrib_ROIAlign", {"pooled_size": "(2, 2)", "spatial_scale": 1.0}, [real(2, 3, 6, 6), _regions(5, 2)],
             "r c"),
        Case("_contrib_ROIAlign", {"pooled_size": "(2, 2)", "spatial_scale": 0.5, "sample_ratio": 2, "aligned": 1,
                                   "position_sensitive": "True"}, [real(2, 12, 6, 6), _regions(5, 2)], "r c"),
        Case("_contrib_RROIAlign", {"pooled_size": "(2, 2)", "spatial_scale": 1.0},
             [real(2, 3, 6, 6), _regions(5, 2, angle=True)], "r c", training=False),
        Case("_contrib_PSROIPooling", {"spatial_scale": 1.0, "output_dim": 3, "pooled_size": 2},
             [real(2, 12, 6, 6), _regions(5, 2)], "r c"),
        Case("_contrib_PSROIPooling", {"spatial_scale": 1.0, "output_dim": 2, "pooled_size": 2, "group_size": 3},
             [real(2, 18, 6, 6), _regions(5, 2)], "r c"),
        Case("_contrib_DeformablePSROIPooling",
             {"spatial_scale": 1.0, "output_dim": 3, "group_size": 2, "pooled_size": 2, "no_trans": "True"},
             [real(2, 12, 6, 6), _regions(5, 2)], "r c"),
        *[Case("_contrib_DeformablePSROIPooling",
               {"spatial_scale": 1.0, "output_dim": 4, "group_size": 2, "pooled_size": 2, "part_size": 2,
                "sample_per_part": 2, "trans_std": 0.1},
               [real(2, 16, 6, 6), _regions(5, 2), real(5, 2 * classes, 2, 2)], "r c") for classes in (1, 2)],
    ]


def vision() -> List[Case]:
    image = real(4, 3, 6, 5)
    grid = Operand((4, 2, 3, 7), lambda rng, s: rng.uniform(-1.2, 1.2, size=s))
    affine = Operand((4, 6), lambda rng, s: np.array([1, 0, 0, 0, 1, 0]) + 0.3 * rng.normal(size=s))
    resize = "_contrib_BilinearResize2D"
    return [
        Case("Crop", {"num_args": 1, "h_w": "(3, 2)", "offset": "(1, 2)"}, [image], "n c"),
        Case("Crop", {"num_args": 2, "center_crop": "True"}, [image, real(2, 5, 4, 3)], "n c l0 l1"),
        Case(resize, {"height": 8, "width": 3}, [image], "n c"),
        Case(resize, {"scale_height": 2, "scale_width": 0.5, "align_corners": "False"}, [image], "n c"),
        Case(resize, {"scale_height": 2, "scale_width": 2, "mode": "odd_scale"}, [image], "n c"),
        Case(resize, {"mode": "like"}, [image, real(4, 3, 4, 9)], "n c"),
        Case(resize, {"mode": "like"}, [image, real(4, 5, 4, 9)], "n c l1"),
        Case(resize, {"mode": "to_even_up"}, [image], "n c"),
        Case("Correlation", {"max_displacement": 1, "pad_size": 1}, [image, image], "n c+"),
        Case("Correlation", {"kernel_size": 3, "max_displacement": 2, "stride1": 1, "stride2": 2, "pad_size": 3,
                             "is_multiply": "False"}, [image, image], "n c+"),
        Case("BilinearSampler", {}, [image, grid], "n c h w"),
        Case("GridGenerator", {"transform_type": "affine", "target_shape": "(3, 4)"}, [real(4, 6)], "n"),
        Case("GridGenerator", {"transform_type": "warp"}, [real(4, 2, 3, 5)], "n"),
        Case("SpatialTransformer", {"target_shape": "(4, 3)", "transform_type": "affine", "sampler_type": "bilinear"},
             [image, affine], "n c"),
        Case("UpSampling", {"scale": 2, "sample_type": "bilinear", "num_filter": 3, "num_args": 2},
             [image, real(3, 1, 4, 4)], "n c"),
        Case("im2col", {"kernel": "(3, 2)", "stride": "(2, 1)", "pad": "(1, 0)"}, [image], "n c"),
        Case("im2col", {"kernel": "(3, 2)", "dilate": "(2, 1)"}, [image], "n c"),
        Case("col2im", {"output_size": "(6, 5)", "kernel": "(3, 2)", "stride": "(2, 1)", "pad": "(1, 0)"},
             [real(4, 18, 12)], "n c"),
    ]


def images() -> List[Case]:
    one, several = _fixed(index(256, 6, 5, 3), "uint8"), _fixed(index(256, 4, 6, 5, 3), "uint8")
    cases = [Case("_image_crop", {"x": 1, "y": 2, "width": 3, "height": 2}, [x], factors)
             for x, factors in ((real(6, 5, 3), ""), (real(4, 6, 5, 3), "n"))]
    cases += [Case("_image_resize", {"size": "(3, 7)", "interp": 1}, [x], factors, training=False)
              for x, factors in ((one, "c"), (several, "n c"), (_fixed(real(4, 6, 5, 3)), "n c"))]
    cases += [Case("_image_to_tensor", {}, [x], factors, training=False)
              for x, factors in ((one, "h w c"), (several, "n h w c"))]
    return cases + [
        # Along an even extent, and without a gradient: see tests/mxnet_bugs/image_flip.py.
        Case("_image_flip_left_right", {}, [_fixed(real(5, 4, 3))], "h c"),
        Case("_image_flip_top_bottom", {}, [_fixed(real(4, 5, 3))], "w c"),
        Case("_image_adjust_lighting", {"alpha": "(0.1, 0.2, 0.3)"}, [_fixed(one, "uint8")], "h w"),
        Case("_image_normalize", {"mean": "(0.1, 0.2, 0.3)", "std": "(1, 2, 3)"}, [real(3, 6, 5)], "h w"),
        Case("_image_normalize", {"mean": "0.1", "std": "2"}, [real(4, 3, 6, 5)], "n h w"),
    ]


def older_operators() -> List[Case]:
    """Return cases of the first versions of operators."""
    image, pool = real(4, 6, 7, 5), "Pooling_v1"
    square = {"kernel": "(3, 3)", "num_filter": 6}
    return [
        Case("Convolution_v1", {**square, "pad": "(1, 1)"}, [image, real(6, 6, 3, 3), real(6)], "n h w m c+"),
        Case("Convolution_v1", {**square, "num_group": 3, "stride": "(2, 1)", "no_bias": "True"},
             [image, real(6, 2, 3, 3)], "n h w g"),
        *[Case(pool, {"kernel": "(2, 2)", "stride": "(2, 2)", "pool_type": t}, [image], "n c h w")
          for t in ("max", "avg", "sum")],
        Case(pool, {"kernel": "(3, 3)", "pad": "(1, 1)", "pool_type": "max", "pooling_convention": "full",
                    "stride": "(2, 2)"}, [image], "n c h w"),
        Case(pool, {"kernel": "(3, 3)", "pool_type": "avg", "pooling_convention": "full", "stride": "(2, 2)"},
             [real(4, 3, 6, 6)], "n c"),
        Case(pool, {"kernel": "(1, 1)", "global_pool": "True", "pool_type": "avg"}, [image], "n c h+ w+"),
        Case(pool, {"kernel": "(1, 1)", "global_pool": "True", "pool_type": "max"}, [image], "n c"),
    ]


def batch_norms() -> List[Case]:
    image = (4, 6, 3, 5)
    sync, relu, older = "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU", "BatchNorm_v1"

    def case(op, attrs, factors, training=True, shape=image):
        operands = [real(*shape), positive(6), real(6), _fixed(real(6)), _fixed(positive(6))]
        return Case(op, {**attrs, **({"key": "k"} if op == sync else {})}, operands, factors, training)

    free = {"fix_gamma": "False"}
    return [
        *[case(op, free, "c") for op in (sync, relu, older)],
        *[case(op, free, "n c h w", training=False) for op in (sync, older)],
        *[case(op, {**free, "use_global_stats": "True", "eps": "1e-4"}, "n c h w") for op in (sync, older)],
        case(sync, {"momentum": "0.5"}, "c"),
        case(sync, free, "c", shape=(4, 6)),
        case(sync, free, "c", shape=(4, 6, 5)),
        case(older, {"output_mean_var": "True", **free}, "c"),
    ]


def scattered() -> List[Case]:
    """Return cases of operators that belong to no family."""
    rows = Operand((3,), lambda rng, s: rng.permutation(5)[:3], gradient=False, dtype="int32")
    lags = Operand((4, 5), lambda rng, s: rng.uniform(0, 1, size=s), gradient=False)
    return [
        Case("_contrib_index_array", {}, [_fixed(real(4, 3, 2))], "", training=False),
        Case("_contrib_index_array", {"axes": "(1, -1)"}, [_fixed(real(4, 3, 2, 5))], "n d2", training=False),
        Case("_contrib_index_copy", {}, [real(5, 4, 2), rows, real(3, 4, 2)], "d1 d2"),
        Case("khatri_rao", {"num_args": 2}, [real(4, 3), real(5, 3)], "n k", training=False),
        Case("khatri_rao", {"num_args": 3}, [real(4, 3), real(2, 3), real(3, 3)], "n k", training=False),
        Case("IdentityAttachKLSparseReg", {"penalty": 0.1}, [positive(5, 4), _fixed(positive(4))], "c"),
        Case("_contrib_hawkesll", {}, [positive(4, 3), positive(3), positive(3), positive(4, 3), lags,
                                       index(3, 4, 5, dtype="int32"), length(5, 4), _fixed(Operand(
                                           (4,), lambda rng, s: rng.uniform(5, 9, size=s)))], "n"),
    ]


def quantized() -> List[Case]:
    """Return cases of inference in 8 bits."""
    def signed(*shape):
        return Operand(shape, lambda rng, s: rng.randint(-127, 128, size=s), gradient=False, dtype="int8")

    def unsigned(*shape):
        return Operand(shape, lambda rng, s: rng.randint(0, 256, size=s), gradient=False, dtype="uint8")

    def wide(*shape):
        return Operand(shape, lambda rng, s: rng.randint(-2 ** 24, 2 ** 24, size=s), gradient=False, dtype="int32")

    def ends(count=1):
        return [Operand((1,), lambda rng, s, v=v: np.full(s, v), gradient=False) for v in (-2.5, 3)] * count

    def case(op, attrs, operands, factors="n"):
        return Case(f"_contrib_{op}", attrs, operands, factors, training=False)

    known = {"min_calib_range": -2, "max_calib_range": 2.5}
    image, channels = unsigned(4, 4, 6, 5), [_fixed(positive(4)), _fixed(real(4))] * 2
    square = {"kernel": "(3, 3)", "num_filter": 4, "layout": "NCHW"}
    dense = {"num_hidden": 5}
    return [
        case("quantize", {"out_type": "uint8"}, [_fixed(real(4, 6)), *ends()]),
        case("quantize_v2", {"out_type": "int8", **known}, [_fixed(real(4, 6))]),
        case("quantize_v2", {"out_type": "auto", **known}, [_fixed(real(4, 6))]),
        case("dequantize", {}, [signed(4, 6), *ends()]),
        case("dequantize", {}, [unsigned(4, 3, 6), *ends()]),
        case("requantize", known, [wide(4, 6), *ends()]),
        case("quantized_act", {"act_type": "relu"}, [signed(4, 6, 3, 2), *ends()]),
        case("quantized_conv", {**square, "no_bias": "True"}, [image, signed(4, 4, 3, 3), *ends(2)]),
        case("quantized_conv", {**square, "pad": "(1, 1)"}, [image, signed(4, 4, 3, 3), signed(4), *ends(3)]),
        case("quantized_fully_connected", dense, [signed(4, 6), signed(5, 6), signed(5), *ends(3)]),
        case("quantized_fully_connected", {**dense, "no_bias": "True"}, [unsigned(4, 6), signed(5, 6), *ends(2)]),
        case("quantized_pooling", {"kernel": "(2, 2)", "pool_type": "max"}, [image, *ends()]),
        case("quantized_pooling", {"kernel": "(2, 2)", "pool_type": "avg", "global_pool": "True"}, [image, *ends()]),
        case("quantized_flatten", {}, [signed(4, 3, 2), *ends()]),
        case("quantized_concat", {"num_args": 2, "dim": 1}, [signed(4, 3, 2, 2), signed(4, 2, 2, 2), *ends(2)]),
        case("quantized_elemwise_add", known, [signed(4, 3, 2, 2), signed(4, 3, 2, 2), *ends(2)]),
        case("quantized_elemwise_mul", known, [signed(4, 6), signed(4, 6), *ends(2)]),
        case("quantized_batch_norm", {"eps": 0.01, "fix_gamma": "False", **known},
             [signed(4, 4, 3, 2), *channels[:3], _fixed(positive(4)), *ends()]),
        case("quantized_embedding", {"input_dim": 7, "output_dim": 6}, [index(7, 4, 3), signed(7, 6), *ends()]),
    ]


FAMILIES = (deformable_convolutions, detection, vision, images, older_operators, batch_norms, scattered, quantized)

CASES = [case for family in FAMILIES for case in family()]

# As UNKNOWN and READ in tests/rules/cases.py.
UNKNOWN = [
    # The range is measured on what is given.
    (Case("_contrib_quantize_v2", {}, [real(4, 6)]), [(4, 6), (1,), (1,)]),
    (Case("_contrib_requantize", {}, [real(4, 6), real(1), real(1)]), [(4, 6), (1,), (1,)]),
    # MXNet writes the gradient of what a size is taken from beyond its end.
    (Case("_contrib_BilinearResize2D", {"mode": "like"}, [real(4, 3, 6, 5), real(2, 3, 4, 9)]), [(4, 3, 4, 9)]),
    # One number is drawn for all that they are given.
    (Case("_image_random_brightness", {"min_factor": 0.5, "max_factor": 1.5}, [real(6, 5, 3)]), [(6, 5, 3)]),
    (Case("_image_random_flip_left_right", {}, [real(6, 5, 3)]), [(6, 5, 3)]),
]

READ = {
    "_contrib_DeformableConvolution": ("num_filter", "num_group", "no_bias", "num_deformable_group", "layout"),
    "_contrib_ModulatedDeformableConvolution": ("num_filter", "num_group", "no_bias", "num_deformable_group", "layout"),
}
