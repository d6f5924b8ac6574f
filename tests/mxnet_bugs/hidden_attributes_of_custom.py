"""An operator written in Python, placed on a device of a group.

What: a ``Custom`` operator within ``AttrScope(ctx_group=...)``, as an executor over several devices has it.

Expected: the operator's properties are made of the operator's own attributes.

Seen: MXNet hands the graph's attribute ``__ctx_group__`` to the properties' class too, which takes no such argument.
The error is printed and forgotten, and the process ends by a segmentation fault. Any other attribute of a scope does
the same.

How the project avoids it: the lowered graph gives such an operator no attributes but its own; MXNet then places it on
the device of its first input, which is on the right one (``takes_hidden_attributes``, csrc/rules/gradient.cc).
"""
import mxnet as mx


class Twice(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], 2 * in_data[0])


@mx.operator.register("twice")
class TwiceProperties(mx.operator.CustomOpProp):
    def create_operator(self, context, shapes, types):
        return Twice()


with mx.AttrScope(ctx_group="here"):
    symbol = mx.sym.Custom(mx.sym.var("x"), op_type="twice")
print(symbol.bind(mx.cpu(0), {"x": mx.nd.ones((2,))}, group2ctx={"here": mx.cpu(1)}).forward()[0].asnumpy())
