"""Writes docs/api.md from the docstrings of the public modules.

    python -m tests.documentation.api

The source is read, not imported (by griffe).
"""
from __future__ import annotations

import re
from typing import Iterator, List

import griffe

from soybean_mx.files import write_text
from tests.child import ROOT

PAGE = ROOT / "docs" / "api.md"

# The public modules, with the members that are meant for others where a module has more.
MODULES = {
    "soybean_mx": ["library_path", "plan_of"],
    "soybean_mx.rules": ["register", "check", "unregister", "registered", "Rule", "Operand", "RuleError"],
    "soybean_mx.pipeline.trainer": ["PipelineTrainer"],
    "soybean_mx.simulation": ["simulate", "Simulation", "Roofline"],
    "soybean_mx.tracing": ["recording", "RecordingError"],
    "soybean_mx.topology": None,
    "soybean_mx.memory": None,
    "soybean_mx.devices": None,
    "soybean_mx.core": ["plan", "lower", "rules", "space", "stages", "PlanError"],
}

HEAD = """# The Python interface

What other programs may use. This page is written by `python -m tests.documentation.api` from the docstrings. The ways
to switch tiling on, by environment, command line or `hybridize(backend="soybean_mx", ...)`, are in the
[README](../README.md#use); the JSON forms of graphs and plans in [interface.md](interface.md).

"""


def page() -> str:
    """The text of the page."""
    package = griffe.load("soybean_mx", search_paths=[str(ROOT)], docstring_parser="numpy", allow_inspection=False,
                          submodules=True)
    parts: List[str] = []
    for name, members in MODULES.items():
        module = package[name[len("soybean_mx."):]] if "." in name else package
        parts += [f"## {name}", "", _text(module), ""]
        public = [member for member in module.members.values() if _is_public(member)]
        shown = public if members is None else [module.members[member] for member in members]
        for member in shown:
            parts += list(_member(member.final_target if member.is_alias else member, "###"))
    return HEAD + "\n".join(parts).rstrip() + "\n"


def _is_public(member) -> bool:
    return (not member.is_alias and not member.name.startswith("_") and member.docstring is not None
            and (member.is_function or member.is_class))


def _member(member, level: str) -> Iterator[str]:
    """A function's or class's part of the page."""
    yield f"{level} {member.name if level == '###' else f'{member.parent.name}.{member.name}'}"
    yield ""
    if member.is_function:
        yield f"`{_signature(member)}`"
        yield ""
    yield from _sections(member)
    if member.is_class:
        for inner in member.members.values():
            if _is_public(inner):
                yield from _member(inner, "####")


def _signature(function) -> str:
    """The names of the parameters, with their defaults; types are in the table."""
    parts, starred = [], False
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        kind = parameter.kind.value if parameter.kind else ""
        if kind == "keyword-only" and not starred:
            parts.append("*")
            starred = True
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        starred = starred or stars == "*"
        default = f"={parameter.default}" if parameter.default is not None and not stars else ""
        parts.append(f"{stars}{parameter.name}{default}")
    return f"{function.name}({', '.join(parts)})"


def _text(member) -> str:
    """The words of a docstring, without its sections of parameters."""
    return "\n\n".join(_plain(section.value) for section in member.docstring.parsed if section.kind.value == "text")


def _sections(member) -> Iterator[str]:
    for section in member.docstring.parsed:
        kind = section.kind.value
        if kind == "text":
            yield _plain(section.value)
            yield ""
        elif kind in ("parameters", "attributes", "returns", "raises", "other parameters"):
            title = {"returns": "Returns", "raises": "Raises", "attributes": "Attributes"}.get(kind, "Parameters")
            yield f"| {title} | |"
            yield "|---|---|"
            for item in section.value:
                name = getattr(item, "name", "") or ""
                kind_of = str(item.annotation) if item.annotation is not None else ""
                said = " ".join(part for part in (f"`{name}`" if name else "", kind_of) if part)
                yield f"| {_cell(said)} | {_cell(_plain(item.description))} |"
            yield ""


def _plain(text: str) -> str:
    """reStructuredText's roles and double backquotes, as Markdown has them."""
    text = re.sub(r":\w+:`~?\.?([^`]*)`", r"`\1`", text)
    text = re.sub(r"::\n\n((?: {4}.*\n?|\n)+)", lambda match: ":\n\n```text\n" + "\n".join(
        line[4:] for line in match.group(1).rstrip().splitlines()) + "\n```\n", text)
    return re.sub("(?<!`)``(?!`)", "`", text).strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    write_text(str(PAGE), page())
    print(f"written to {PAGE}")
