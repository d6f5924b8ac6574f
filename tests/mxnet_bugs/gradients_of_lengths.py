"""Gradients of lengths, labels and indices.

What: the second input of SequenceMask, SequenceLast, SequenceReverse, CTCLoss, SoftmaxOutput, SVMOutput, the regression
outputs, boolean_mask and index_copy, where it is computed from something that is trained.

Expected: 0.

Seen: it is not written; what was in the memory is added to the gradients of the other uses. Embedding and
softmax_cross_entropy refuse instead ("Embedding layer doesn't support calculate data gradient").

How the project avoids it: such inputs are given to the operator behind a BlockGrad (``has_gradient``,
csrc/rules/gradient.cc).
"""
import mxnet as mx

x, lengths = mx.sym.var("x"), mx.sym.var("lengths")
for operator in ("SequenceMask", "SequenceLast", "SequenceReverse"):
    net = getattr(mx.sym, operator)(mx.sym.identity(x), lengths, use_sequence_length=True)
    gradients = {"x": mx.nd.zeros((4, 3, 2)), "lengths": mx.nd.full((3,), 7)}
    executor = net.bind(mx.cpu(), {"x": mx.nd.ones((4, 3, 2)), "lengths": mx.nd.array([1, 2, 3])}, gradients)
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones(executor.outputs[0].shape))
    print(operator, "gradient of the lengths, 7 before:", gradients["lengths"].asnumpy())

scores, label = mx.nd.ones((2, 3)), mx.nd.zeros((2, 3))
for array in (scores, label):
    array.attach_grad()
label.grad[:] = 7
with mx.autograd.record():
    loss = mx.nd.LinearRegressionOutput(scores, label)
loss.backward()
print("LinearRegressionOutput gradient of the label, 7 before:", label.grad.asnumpy().ravel())
