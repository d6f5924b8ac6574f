"""``soybean-mx operators``: which of MXNet's operators are cut, along what, and why the others are not."""
from __future__ import annotations

import argparse
import fnmatch
import json
from typing import List, Sequence, Tuple

from soybean_mx import startup
from soybean_mx.files import write_text
from soybean_mx.input_errors import InputError
from soybean_mx.operator_coverage import Factor, Operator, Reason, Share, coverage, share


class OperatorsError(InputError):
    """The arguments cannot be used; the text says why."""


def add(commands) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "operators", help="show along what each of MXNet's operators can be cut", description=(
            "Show each operator of MXNet in a typical call, with the factors along which it can be cut, or the reason "
            "why it is not."))
    parser.add_argument("patterns", metavar="NAME", nargs="*",
                        help="operators, by name, alias or shell pattern such as 'broadcast_*'; default: all")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--markdown", metavar="FILE", help="write the page docs/operators.md")
    parser.set_defaults(function=run, prog=parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; raises what :func:`soybean_mx.cli.main` tells."""
    if arguments.markdown is not None and arguments.patterns:
        raise OperatorsError(f"--markdown {arguments.markdown} was given with {arguments.patterns[0]!r}: the page is "
                             "of all operators, leave the name out.")
    startup.set_environment(None)  # before MXNet is imported
    everything = coverage()
    shown = _matching(everything, arguments.patterns)
    if arguments.markdown is not None:
        try:
            write_text(arguments.markdown, markdown(everything))
        except OSError as error:
            raise OperatorsError(f"The page cannot be written to {arguments.markdown!r} ({error.strerror}): give "
                                 "another --markdown.") from None
    if arguments.json:
        of_blocks, of_all = shares(everything)
        print(json.dumps({"operators": [operator.to_json() for operator in shown],
                          "share_of_blocks": of_blocks.to_json(), "share_of_all": of_all.to_json()}, indent=1))
    elif arguments.markdown is None:
        _print(everything, shown)
    return 0


def _matching(operators: Sequence[Operator], patterns: Sequence[str]) -> List[Operator]:
    found = []
    for pattern in patterns:
        matching = [o for o in operators if any(fnmatch.fnmatchcase(n, pattern) for n in (o.name, *o.aliases))]
        if not matching:
            raise OperatorsError(f"MXNet has no operator {pattern!r}: give a name as it is in a symbol's JSON, an "
                                 "alias, or a pattern such as '*conv*'.")
        found += [operator for operator in matching if operator not in found]
    return found if patterns else list(operators)


def shares(operators: Sequence[Operator]) -> Tuple[Share, Share]:
    """The share that has a rule: of the operators that a trained block can contain, and of all.

    Parameters
    ----------
    operators : sequence of Operator
        All operators.
    """
    return share([operator for operator in operators if operator.in_blocks]), share(operators)


def _factor_text(factor: Factor) -> str:
    return factor.name + "+" * factor.is_sum + "~" * factor.has_halo + "*" * factor.has_statistics


def _cut_text(operator: Operator) -> str:
    if operator.reason is not None:
        return f"whole: {operator.reason.text}"
    return " ".join(map(_factor_text, operator.factors))


def _call_text(operator: Operator) -> str:
    if operator.shapes is None:
        return ""
    shapes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in operator.shapes)
    attributes = ", ".join(f"{name}={value}" for name, value in sorted(operator.attributes.items()))
    return "; ".join(text for text in (shapes, attributes) if text)


def _print(everything: Sequence[Operator], shown: Sequence[Operator]) -> None:
    from rich.table import Table
    from rich.text import Text

    from soybean_mx.plan_report import console

    out = console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("operator", "cut along", "in the call"):
        table.add_column(column, overflow="fold")
    for operator in shown:
        table.add_row(Text(operator.name), Text(_cut_text(operator) + (", random" if operator.draws else "")),
                      Text(_call_text(operator)))
    out.print(table)
    of_blocks, of_all = shares(everything)
    out.print("+ the outputs are sums over it (or maxima), ~ its parts need rows of their neighbours, "
              "* its parts join statistics")
    out.print(f"{of_blocks.known} of the {of_blocks.operators} operators that a trained block can contain have a rule "
              f"({of_blocks.known_percent:.1f} %), {of_blocks.cut} are cut ({of_blocks.cut_percent:.1f} %); of all "
              f"{of_all.operators}, {of_all.known} and {of_all.cut}.")


_INTRODUCTION = """# MXNet's operators

Along what each operator of MXNet 1.9.1 can be cut, or why not. This page is written by
`python -m soybean_mx operators --markdown docs/operators.md` from the rules themselves, each asked about one typical
call; `python -m soybean_mx operators NAME` shows single operators.

"""

_LEGEND = """
**Counted** are all operators that MXNet registers, by their own names, without their aliases and without those that
exist only as another's gradient (`backward` is in their names). What *a trained block can contain* are the operators
of a hybridized block of dense tensors in training: all but those of quantized numbers (`_contrib_quantize*` and the
like), with a rule or without, and those of the reasons that the last table marks so.

## Operators that are cut

*Cut along*: the factors of the rule ([design.md](design.md#words)) that have room for two parts in the call shown.
`n` is dim 0, the samples as a rule, `d1` dim 1, and so on; `+`: the outputs are sums over it (or maxima, or minima);
`~`: its parts need rows of their neighbours (a halo); `*`: its parts join a statistic that is taken over it, as the sum
of a softmax. *once*: never computed by two devices on the same elements, as it draws random numbers or makes a
gradient of its own. Attributes and shapes decide in each case, as in the rules of `csrc/rules/` (a `Deconvolution` of
images in single precision is computed whole: oneDNN takes no weight that is not a variable).

| operator | aliases | cut along | once | operands; attributes |
|---|---|---|---|---|
"""


def _code(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return f"`{escaped}`" if text else ""


def markdown(operators: Sequence[Operator]) -> str:
    """The page docs/operators.md.

    Parameters
    ----------
    operators : sequence of Operator
        All operators.
    """
    of_blocks, of_all = shares(operators)
    lines = ["| | operators | with a rule | cut |\n|---|---|---|---|\n"]
    for title, part in (("that a trained block can contain", of_blocks), ("all", of_all)):
        lines.append(f"| {title} | {part.operators} | {part.known} ({part.known_percent:.1f} %) | "
                     f"{part.cut} ({part.cut_percent:.1f} %) |\n")
    lines.append(_LEGEND)
    for operator in operators:
        if operator.is_cut:
            lines.append(f"| `{operator.name}` | {' '.join(map(_code, operator.aliases))} | {_cut_text(operator)} | "
                         f"{'once' if operator.draws else ''} | {_code(_call_text(operator))} |\n")
    lines.append("\n## Operators that are not cut\n\nThose with a rule are computed by each device that needs the "
                 "result, the others by the first device. Operators of your own, `Custom` ones among them, are cut by "
                 "the rules\nthat you register ([how_to.md](how_to.md#give-an-operator-of-your-own-a-rule)).\n\n"
                 "| reason | in a trained block | with a rule | without |\n|---|---|---|---|\n")
    for reason in Reason:
        names = [[_code(operator.name) for operator in operators if operator.reason is reason and
                  operator.has_rule is has_rule] for has_rule in (True, False)]
        if any(names):
            lines.append(f"| {reason.text} | {'yes' if reason.in_blocks else 'no'} | {', '.join(names[0])} | "
                         f"{', '.join(names[1])} |\n")
    return _INTRODUCTION + "".join(lines)
