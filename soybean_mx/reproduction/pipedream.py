"""PipeDream's tables and claims (the 2017 slides, arXiv 1806.03377, SOSP 2019), made again from its own profiles.

``released``
    The eleven plans that its released optimizer printed, beside what :func:`soybean_mx.core.stages` finds by the same
    cost model.
``claims``
    Published speedups over data parallelism, beside those that the planner predicts (cost model ``overlap``) over data
    parallelism that exchanges gradients after the backward pass (plain) and while it goes on (overlapped).
``bandwidths``
    The speedup predicted for VGG-16 by the bandwidth of the links.

All are estimated from the shipped profiles, plain JSON values, and the same on every machine.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Dict, List, Mapping, Optional

from soybean_mx.pipeline import profile as profiles
from soybean_mx.pipeline.stages_command import device_levels, plan
from soybean_mx.progress import Advance

SLIDES_CLAIM = 2.5
SWEEP_DEVICES = (4, 8, 16)
SWEEP_GIGABITS = (1, 2.5, 5, 10, 25, 50, 100)
MOST_DEVICE_SPEED = 64.0  # times that of the profile's device
REACHED, PLAIN_ONLY, MISSED = "yes", "over plain data parallelism only", "no"


@dataclass(frozen=True)
class ReleasedRow:
    """One plan that the released optimizer printed.

    Parameters
    ----------
    profile, devices, bandwidth : str
        As ``soybean-mx stages`` takes them.
    config : str
        The replicas of the stages; within servers in brackets.
    stage_ms, over_one, over_data : float
        Milliseconds of the slowest stage, and speedups.
    first_layers : int, optional
        The number of layers of the first stage, where that is known.
    """

    profile: str
    devices: str
    bandwidth: str
    config: str
    stage_ms: float
    over_one: float
    over_data: float
    first_layers: Optional[int] = None


RELEASED = (
    ReleasedRow("vgg16", "4", "1GB/s", "3-1", 205.521, 3.272, 2.838, 17),
    ReleasedRow("vgg16", "4", "10GB/s", "3-1", 170.179, 3.952, 1.232, 15),
    ReleasedRow("vgg16", "4x4", "10GB/s,1.25GB/s", "3(4)-1(1-1-1-1)", 67.134, 10.018, 2.017),
    ReleasedRow("vgg16", "16", "1.25GB/s", "13-2-1", 54.795, 12.274, 2.661),
    ReleasedRow("vgg16", "16", "3.125GB/s", "15-1", 45.525, 14.773, 1.835, 25),
    ReleasedRow("alexnet", "4", "1GB/s", "3-1", 34.217, 2.494, 5.980),
    ReleasedRow("alexnet", "4", "10GB/s", "2-1-1", 22.186, 3.846, 1.788),
    ReleasedRow("resnet50", "4", "10GB/s", "1-1-1-1", 111.497, 3.977, 1.063),
    ReleasedRow("resnet50", "4x4", "10GB/s,1.25GB/s", "4(1-1-1-1)", 43.208, 10.262, 1.041),
    ReleasedRow("resnet50", "8x2", "30GB/s,3.125GB/s", "2(5-1-1-1)", 31.989, 13.862, 1.017),
    ReleasedRow("gnmt", "4", "10GB/s", "1-1-1-1", 25.868, 3.457, 3.111),
)


@dataclass(frozen=True)
class Claim:
    """One published speedup over data parallelism.

    Parameters
    ----------
    source, network, machines : str
        Where it was published, of what, and on which machines.
    published : float
        The speedup.
    config : str, optional
        The published replicas of the stages.
    profile, devices, bandwidth : str, optional
        What ``soybean-mx stages`` plans for it; None where no profile of the network was published.
    note : str
        What was assumed.
    """

    source: str
    network: str
    machines: str
    published: float
    config: Optional[str] = None
    profile: Optional[str] = None
    devices: Optional[str] = None
    bandwidth: Optional[str] = None
    note: str = ""


_FOUR, _TWO = ("4x4", "10GB/s,10Gb/s"), ("8x2", "30GB/s,25Gb/s")
CLAIMS = (
    Claim("slides 2017", "VGG-16", "8 machines, 10 Gb/s", SLIDES_CLAIM, None, "vgg16", "8", "10Gb/s",
          "the slides' machines are not known here: those of v1 are assumed"),
    Claim("v1", "VGG-16", "8 machines of V100, 10 Gb/s", 5.12, "7-1", "vgg16", "8", "10Gb/s"),
    Claim("v1", "VGG-16", "8 machines of Titan X, 25 Gb/s", 2.99, "7-1", "vgg16", "8", "25Gb/s"),
    Claim("SOSP", "VGG-16", "4x4 V100, 10 Gb/s", 5.28, "15-1", "vgg16", *_FOUR),
    Claim("SOSP", "VGG-16", "2x8 V100, 25 Gb/s", 2.98, "15-1", "vgg16", *_TWO),
    Claim("SOSP", "AlexNet", "4x4 V100, 10 Gb/s", 4.92, None, "alexnet", *_FOUR),
    Claim("SOSP", "AlexNet", "2x8 V100, 25 Gb/s", 2.04, None, "alexnet", *_TWO),
    Claim("SOSP", "ResNet-50", "4x4 V100, 10 Gb/s", 1.0, "16", "resnet50", *_FOUR),
    Claim("SOSP", "ResNet-50", "2x8 V100, 25 Gb/s", 1.0, "16", "resnet50", *_TWO),
    Claim("SOSP", "S2VT", "4 machines", 3.01, "2-1-1"),
    Claim("SOSP", "AWD LM", "-", 4.25),
)


@lru_cache(maxsize=None)
def _profile(name: str, device_speed: float = 1.0) -> profiles.Profile:
    """A shipped profile, as if its device were so many times as fast."""
    found = profiles.shipped(name)
    layers = tuple(replace(layer, forward_seconds=layer.forward_seconds / device_speed,
                           backward_seconds=layer.backward_seconds / device_speed) for layer in found.layers)
    return replace(found, layers=layers)


def _planned(profile: str, devices: str, bandwidth: str, cost_model: str, device_speed: float = 1.0) -> Dict[str, Any]:
    options = {"levels": device_levels(devices, bandwidth, None), "cost_model": cost_model}
    return plan(_profile(profile, device_speed), options)


def estimated(advance: Optional[Advance] = None) -> Dict[str, Any]:
    """All of it.

    Parameters
    ----------
    advance : callable, optional
        Told how many plans are done, and of how many.
    """
    parts: List[Any] = [*((released_row, row) for row in RELEASED), *((claim_row, claim) for claim in CLAIMS),
                        *((sweep_line, devices) for devices in SWEEP_DEVICES)]
    found = []
    for number, (function, argument) in enumerate(parts):
        found.append(function(argument))
        if advance is not None:
            advance(number + 1, len(parts))
    claims = len(RELEASED) + len(CLAIMS)
    return {"released": found[:len(RELEASED)], "claims": found[len(RELEASED):claims],
            "bandwidths": {"claim": SLIDES_CLAIM, "profile": "vgg16", "lines": found[claims:]}}


def released_row(row: ReleasedRow) -> Dict[str, Any]:
    """What the released optimizer printed, what is found here, and whether all of it is the same."""
    found = _planned(row.profile, row.devices, row.bandwidth, "released")
    own = {"config": found["config_text"], "stage_ms": found["stage_ms"], "over_one": found["speedup_over_one"],
           "over_data": found["speedup_over_data_parallel"]}
    printed = {"config": row.config, "stage_ms": row.stage_ms, "over_one": row.over_one, "over_data": row.over_data}
    layers = _profile(row.profile).without(_profile(row.profile).inputs())
    first = len([name for name in found["stages"][0] if name in {layer.name for layer in layers.layers}])
    same = own["config"] == row.config and row.first_layers in (None, first) and all(
        round(own[name], 3) == printed[name] for name in ("stage_ms", "over_one", "over_data"))
    return {"profile": row.profile, "devices": row.devices, "bandwidth": row.bandwidth, "printed": printed,
            "found": own, "same": same}


def claim_row(claim: Claim) -> Dict[str, Any]:
    """A published speedup, what is predicted, whether that reaches it, and why not."""
    head = {"source": claim.source, "network": claim.network, "machines": claim.machines,
            "published": claim.published, "published_config": claim.config, "note": claim.note}
    if claim.profile is None or claim.devices is None or claim.bandwidth is None:
        return {**head, "predicted": None, "met": None, "why": "the repository ships no profile of it"}
    found = _planned(claim.profile, claim.devices, claim.bandwidth, "overlap")
    predicted = {"config": found["config_text"], "stage_ms": found["stage_ms"],
                 "one_device_ms": found["one_device_ms"], "over_plain": found["speedup_over_data_parallel"],
                 "over_overlapped": found["speedup_over_overlapped_data_parallel"]}
    met = (REACHED if predicted["over_overlapped"] >= claim.published else
           PLAIN_ONLY if predicted["over_plain"] >= claim.published else MISSED)
    speed = device_speed(claim) if met != REACHED else None
    return {**head, "profile": claim.profile, "devices": claim.devices, "bandwidth": claim.bandwidth,
            "predicted": predicted, "met": met, "device_speed": speed, "why": _why(claim, predicted, met, speed)}


def device_speed(claim: Claim) -> Optional[float]:
    """How many times as fast as the profile's a device must be for the claim to be reached over overlapped data
    parallelism, to a hundredth; None where none up to :data:`MOST_DEVICE_SPEED` is."""
    def reaches(speed: float) -> bool:
        found = _planned(claim.profile or "", claim.devices or "", claim.bandwidth or "", "overlap", speed)
        return (found["speedup_over_overlapped_data_parallel"] or 0.0) >= claim.published

    low, high = 1.0, 2.0
    while not reaches(high):
        low, high = high, 2 * high
        if high > MOST_DEVICE_SPEED:
            return None
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def _why(claim: Claim, predicted: Mapping[str, Any], met: str, speed: Optional[float]) -> str:
    if met == REACHED:
        return ""
    profiled = f"the profile's device takes {predicted['one_device_ms']:.0f} ms for a minibatch"
    if speed is None:
        return f"{profiled}; one {MOST_DEVICE_SPEED:g} times as fast would not reach it over overlapped exchanges"
    return (f"{profiled}; with a device {speed:.1f} times as fast, beside which exchanges weigh more, the prediction "
            "reaches it over overlapped exchanges too")


def sweep_line(devices: int) -> Dict[str, Any]:
    """The speedup of VGG-16 on so many machines, by the bandwidth of each one's link."""
    points = []
    for gigabits in SWEEP_GIGABITS:
        found = _planned("vgg16", str(devices), f"{gigabits}Gb/s", "overlap")
        points.append({"gigabits": gigabits, "config": found["config_text"],
                       "over_plain": found["speedup_over_data_parallel"],
                       "over_overlapped": found["speedup_over_overlapped_data_parallel"]})
    return {"devices": devices, "points": points}
