"""Gradients of a tensor with eight users and more.

What: a tensor that many operators use, on one context (here) or on several.

Expected: its gradient is the sum of all users'.

Seen: from 8 users on (``MXNET_EXEC_INPLACE_GRAD_SUM_CAP``) MXNet adds them one by one in place, and some are lost;
across contexts nearly always, on one context now and then. No error is reported. (Issue 10455 of apache/mxnet.)

How the project avoids it: the lowering gives no tensor more than 4 users (csrc/lower/parallel_graph.cc), and a bound
executor with such a chain of sums is refused (soybean_mx/executor.py).
"""
import mxnet as mx

x = mx.sym.Variable("x")
e = mx.sym.expand_dims(x, axis=2)
heads = [mx.sym.add_n(*[e * float(i) for i in range(8)]), mx.sym.reverse(e, axis=2), mx.sym.Reshape(e, shape=(6, 2, 1))]
executor = mx.sym.Group(heads).simple_bind(mx.cpu(), x=(6, 2))
executor.forward(is_train=True)
executor.backward([mx.nd.ones(o.shape) for o in executor.outputs])
print(f"gradient {executor.grad_dict['x'].asnumpy()[0, 0]}, expected 30.0")
