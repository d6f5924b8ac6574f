"""Draws what ``bench_train.py`` measured: speed over MXNet's data parallelism, and seconds per batch, by batch size."""
from __future__ import annotations

import io
import os
from typing import Dict, List, Mapping, Sequence, Tuple

import matplotlib

matplotlib.use("Agg")  # before pyplot: no display is needed

from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import FixedLocator, NullLocator  # noqa: E402
from soybean_mx.files import write_bytes  # noqa: E402

FORMATS = (".png", ".svg")
BASE = "data_parallel"
PANELS = (("speedup", f"speed relative to {BASE}"), ("seconds", "seconds per batch"))


def check_path(path: str) -> None:
    """Check that a plot can be written to `path`.

    Raises
    ------
    ValueError
        For another ending than .png and .svg, and for a folder that is not there.
    """
    if os.path.splitext(path)[1].lower() not in FORMATS:
        raise ValueError(f"{path!r} was given, but a file that ends in {' or '.join(FORMATS)} is needed.")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(f"{path!r} was given, but there is no folder {folder!r}: make it first.")


def points(reports: Sequence[Mapping], devices: str, name: str, figure: str) -> Tuple[List[int], List[float]]:
    """The batch sizes at which a contender was measured on these devices, ascending, and its figure at each."""
    found = sorted((report["batch_size"], report[name][figure]) for report in reports
                   if report["devices"] == devices and figure in report.get(name, {}))
    return [size for size, _ in found], [value for _, value in found]


def draw(reports: Sequence[Mapping], contenders: Sequence[str], path: str) -> None:
    """Draw one row of panels for each device list.

    Parameters
    ----------
    reports : sequence of mapping
        Of ``bench_train.py``; all of one model.
    contenders : sequence of str
        What to draw, in the order of the legend.
    path : str
        A .png or .svg file; replaced when it is there.
    """
    rows = list(dict.fromkeys(report["devices"] for report in reports))
    colours: Dict[str, str] = {name: f"C{index}" for index, name in enumerate(dict.fromkeys(contenders))}
    figure, axes = pyplot.subplots(len(rows), len(PANELS), figsize=(11, 0.8 + 3.6 * len(rows)), squeeze=False,
                                   layout="constrained")
    for row, devices in zip(axes, rows):
        for axis, (value, label) in zip(row, PANELS):
            sizes = sorted({report["batch_size"] for report in reports if report["devices"] == devices})
            for name, colour in colours.items():
                x, y = points(reports, devices, name, value)
                if x:
                    axis.plot(x, y, marker="o", markersize=4, color=colour, label=name,
                              linestyle="--" if name == BASE else "-")
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_locator(FixedLocator(sizes))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.set_xticks(sizes, [str(size) for size in sizes])
            axis.set_ylim(bottom=0)
            axis.set(title=f"{reports[0]['model']}, {devices}", xlabel="batch size", ylabel=label)
            axis.grid(alpha=0.3)
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels())}
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncol=min(4, len(handles)))
    machine = reports[0]["machine"]
    figure.suptitle(f"{reports[0]['dtype']}; {machine['cores']} cores, {machine['processor']}, "
                    f"MXNet {machine['mxnet']}", fontsize="small")
    written = io.BytesIO()
    figure.savefig(written, format=os.path.splitext(path)[1][1:].lower(), dpi=150)
    pyplot.close(figure)
    write_bytes(path, written.getvalue())
