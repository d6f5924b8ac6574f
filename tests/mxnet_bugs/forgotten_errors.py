"""An error of an operator, once it has been read.

What: an operator fails; its result is read, which raises the error; then something is computed from the result.

Expected: the error again, for the result has never been computed.

Seen: MXNet forgets the error when it is raised, for all arrays that it has come to: what is computed from them later
(and what was queued before and has not run yet) runs on whatever is in memory.

How the project avoids it: a pipeline's updates are behind guards, engine operations that fail unless all that came
before has been stamped as done in memory of the project's own (soybean_mx/pipeline/full_updates.py); where a batch is
flushed, its updates are queued before anybody can read its loss.
"""
import mxnet as mx


class Fails(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        raise ValueError("this operator is broken")


@mx.operator.register("fails")
class FailsProperties(mx.operator.CustomOpProp):
    def create_operator(self, context, shapes, types):
        return Fails()


result = mx.nd.Custom(mx.nd.ones((2, 2)), op_type="fails")
for what in (result, result, result + 1):
    try:
        print("no error, shape", what.asnumpy().shape)
    except mx.MXNetError:
        print("the error")
