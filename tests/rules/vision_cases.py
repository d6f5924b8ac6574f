"""Operators on images and boxes that are checked, with attributes and shapes, and the factors that each should have."""
from __future__ import annotations

from typing import List

import numpy as np

from tests.rules.cutting import Case, Operand, index, positive, real


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
        Case(resize, {"mode": "like"}, [image, real(2, 5, 4, 9)], "n c l0 l1"),
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


FAMILIES = (deformable_convolutions, detection, vision)

CASES = [case for family in FAMILIES for case in family()]

# As UNKNOWN and READ in tests/rules/cases.py.
UNKNOWN = [
    (Case("_contrib_Proposal", {"rpn_pre_nms_top_n": 12, "rpn_post_nms_top_n": 4},
          [positive(1, 24, 2, 2), real(1, 48, 2, 2), real(1, 3)]), [(4, 5)]),
    # A region names its image by number.
    (Case("_contrib_MultiProposal", {"rpn_pre_nms_top_n": 12, "rpn_post_nms_top_n": 4},
          [positive(2, 24, 2, 2), real(2, 48, 2, 2), real(2, 3)]), [(8, 5)]),
]

READ = {
    "_contrib_DeformableConvolution": ("num_filter", "num_group", "no_bias", "num_deformable_group", "layout"),
    "_contrib_ModulatedDeformableConvolution": ("num_filter", "num_group", "no_bias", "num_deformable_group", "layout"),
}
