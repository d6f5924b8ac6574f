"""Plots of the reproductions, as PNG and SVG. This module imports matplotlib.

The colours are those of Okabe and Ito, which the colour-blind tell apart; each line has a marker of its own too.
"""
from __future__ import annotations

import io
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import matplotlib

matplotlib.use("Agg")  # before pyplot: no display is needed

from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
_FORMATS = ("png", "svg")
_SETTINGS = {"font.size": 9, "axes.titlesize": 9, "axes.grid": True, "grid.alpha": 0.3, "lines.markersize": 4.5,
             "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "soybean_mx",
             "svg.fonttype": "none", "legend.frameon": False}
_SPEEDUPS = (1, 1.5, 2, 4, 8, 16, 32)

Images = Dict[str, bytes]


def _images(name: str, figure) -> Images:
    """A figure's files by their names; the same bytes for the same figure."""
    result = {}
    for ending in _FORMATS:
        written = io.BytesIO()
        metadata = {"Date": None} if ending == "svg" else {}
        figure.savefig(written, format=ending, dpi=90, metadata=metadata)
        result[f"{name}.{ending}"] = written.getvalue()
    pyplot.close(figure)
    return result


def _grid(count: int, columns: int, height: float, **options: Any):
    rows = -(-count // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.4 * columns, height * rows), squeeze=False,
                                   layout="constrained", **options)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, list(axes.flat[:count])


def _powers(axis, values: Iterable[float], which: str = "x") -> None:
    """A logarithmic axis that is labelled at these values."""
    values = sorted(set(values))
    getattr(axis, f"set_{which}scale")("log", base=2)
    side = getattr(axis, f"{which}axis")
    side.set_major_locator(FixedLocator(values))
    side.set_minor_locator(NullLocator())
    side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _legend(figure, axes, columns: int) -> None:
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncol=columns)


def soybean(report: Mapping[str, Any]) -> Images:
    """All plots of ``reproduce soybean``: file names and contents."""
    with matplotlib.rc_context(_SETTINGS):
        found = {**_speedups(report), **_shares(report), **_traffic(report)}
        return {**found, **(_partitioning(report["partitioning"]) if report["partitioning"] else {})}


def _speedups(report: Mapping[str, Any]) -> Images:
    networks = report["networks"]
    figure, axes = _grid(len(networks), 3, 2.7)
    for axis, network in zip(axes, networks):
        sizes = [row["batch_size"] for row in network["rows"]]
        if network["claimed"]:
            axis.axhspan(*report["claim"], color=GREEN, alpha=0.12, linewidth=0, label="the paper's claim")
        axis.axhline(1, color=GREY, linewidth=0.8)
        for base, label, colour, marker in (
                ("mxnet", "over MXNet's data parallelism", ORANGE, "^"),
                ("data", "over the same runtime's", BLUE, "o"),
                ("overlapped", "over ideally overlapped data parallelism", VERMILION, "s")):
            axis.plot(sizes, [row[f"speedup_over_{base}"] for row in network["rows"]], color=colour, marker=marker,
                      label=label)
        _powers(axis, sizes)
        _powers(axis, _SPEEDUPS, "y")
        axis.set_ylim(0.7, 36)
        axis.set(title=network["title"], xlabel="batch size (8 devices)", ylabel="speedup (times)")
    _legend(figure, axes, 4)
    figure.suptitle(f"Speedup of soybean_mx on {report['topology']['name']}, estimated", fontsize=10)
    return _images("soybean_speedup", figure)


def _shares(report: Mapping[str, Any]) -> Images:
    networks = report["networks"]
    figure, axes = _grid(len(networks), 3, 2.7)
    for axis, network in zip(axes, networks):
        sizes = [row["batch_size"] for row in network["rows"]]
        for kind, label, colour, marker in (
                ("mxnet", "MXNet's data parallelism", ORANGE, "^"),
                ("data", "same runtime's", BLUE, "o"), ("overlapped", "ideally overlapped", VERMILION, "s"),
                ("model", "model parallelism", GREY, "v"), ("soybean_mx", "soybean_mx", GREEN, "D")):
            axis.plot(sizes, [100 * row[kind]["communication_share"] for row in network["rows"]], color=colour,
                      marker=marker, label=label)
        _powers(axis, sizes)
        axis.set_ylim(0, 100)
        axis.set(title=network["title"], xlabel="batch size (8 devices)", ylabel="communication (% of step)")
    _legend(figure, axes, 5)
    figure.suptitle(f"Share of communication in a step on {report['topology']['name']}, estimated", fontsize=10)
    return _images("soybean_communication", figure)


def _traffic(report: Mapping[str, Any]) -> Images:
    rows = report["traffic"]
    figure, (axis,) = _grid(1, 1, 3.4)
    figure.set_figwidth(5.2)
    sizes = [row["batch_size"] for row in rows]
    for kind, label, colour, marker, line in (
            ("data", "data parallelism", BLUE, "o", "-"), ("model", "model parallelism", ORANGE, "^", "-"),
            ("k_cut", "the paper's recursion", VERMILION, "s", "--"), ("soybean_mx", "soybean_mx", GREEN, "D", "-")):
        axis.plot(sizes, [row[kind] / 1e9 for row in rows], color=colour, marker=marker, linestyle=line, label=label)
    _powers(axis, sizes)
    _powers(axis, (0.25, 0.5, 1, 2, 4, 8, 16), "y")
    axis.set(title="MLP, 4 layers 8192 wide, 8 devices: counted", xlabel="batch size", ylabel="moved in a step (GB)")
    _legend(figure, [axis], 2)
    return _images("soybean_traffic", figure)


def _partitioning(found: Mapping[str, Any]) -> Images:
    figure, axes = _grid(len(found["batches"]), len(found["batches"]), 3.0)
    figure.set_figwidth(max(5.2, figure.get_figwidth()))
    for axis, row in zip(axes, found["batches"]):
        good = [item for item in row["contenders"] if "ratio" in item]
        middle = [item["ratio"] for item in good]
        spread = [[item["ratio"] - item["ratio_min"] for item in good],
                  [item["ratio_max"] - item["ratio"] for item in good]]
        axis.bar([item["name"] for item in good], middle, yerr=spread, capsize=3, width=0.6,
                 color=[GREY, *[BLUE] * (len(good) - 1)], ecolor="black")
        axis.axhline(1, color=GREY, linewidth=0.8)
        axis.tick_params(axis="x", labelsize=8)
        axis.set(title=f"batch {row['batch_size']}", ylabel="processor time / plain MXNet's")
    figure.suptitle(f"MLP, {found['layers']} layers {found['width']} wide, on one device: measured on this machine",
                    fontsize=10)
    return _images("soybean_partitioning", figure)


def pipedream(report: Mapping[str, Any]) -> Images:
    """All plots of ``reproduce pipedream``: file names and contents."""
    with matplotlib.rc_context(_SETTINGS):
        return {**_claims(report), **_bandwidths(report)}


def _claims(report: Mapping[str, Any]) -> Images:
    claims = [claim for claim in report["claims"] if claim["predicted"] is not None]
    figure, (axis,) = _grid(1, 1, 0.8 + 0.52 * len(claims))
    figure.set_figwidth(7.5)
    height = 0.26
    kinds: Tuple[Tuple[str, str, str], ...] = (
        ("published", "published", GREY), ("plain", "predicted, over plain data parallelism", BLUE),
        ("overlapped", "predicted, over data parallelism that overlaps its exchanges", VERMILION))
    for offset, (kind, label, colour) in enumerate(kinds):
        values = [_claimed(claim, kind) for claim in claims]
        places = [number + (offset - 1) * height for number in range(len(claims))]
        axis.barh(places, [value or 0 for value in values], height=height * 0.9, color=colour, label=label)
        for place, value in zip(places, values):
            axis.text((value or 0) + 0.06, place, "-" if value is None else f"{value:.2f}", va="center", fontsize=7)
    axis.set_yticks(range(len(claims)), [f"{claim['network']}, {claim['machines']}" for claim in claims])
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.margins(x=0.1)
    axis.set(xlabel="speedup over data parallelism (times)")
    _legend(figure, [axis], 1)
    return _images("pipedream_claims", figure)


def _claimed(claim: Mapping[str, Any], kind: str) -> Optional[float]:
    return claim["published"] if kind == "published" else claim["predicted"][f"over_{kind}"]


def _bandwidths(report: Mapping[str, Any]) -> Images:
    sweep = report["bandwidths"]
    bases: List[Tuple[str, str]] = [("over_plain", "plain data parallelism"),
                                    ("over_overlapped", "overlapped data parallelism")]
    figure, axes = _grid(len(bases), len(bases), 3.1, sharey=True)
    looks: Sequence[Tuple[str, str]] = ((BLUE, "o"), (ORANGE, "^"), (GREEN, "D"))
    for axis, (base, title) in zip(axes, bases):
        axis.axhline(sweep["claim"], color=VERMILION, linestyle="--", linewidth=1,
                     label=f"the slides' {sweep['claim']:g}x")
        for (colour, marker), line in zip(looks, sweep["lines"]):
            axis.plot([point["gigabits"] for point in line["points"]], [point[base] for point in line["points"]],
                      color=colour, marker=marker, label=f"{line['devices']} machines")
        _powers(axis, [point["gigabits"] for point in sweep["lines"][0]["points"]])
        axis.set_ylim(bottom=0)
        axis.set(xlabel="link of each machine (Gb/s)", ylabel="speedup (times), estimated")
        axis.set_title(f"VGG-16 over {title}", fontsize=8)
    _legend(figure, axes, 4)
    return _images("pipedream_bandwidth", figure)
