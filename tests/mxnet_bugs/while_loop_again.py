"""A ``contrib.while_loop`` in an executor that has an iteration after a run without any.

What: ``bind``, a forward and backward pass in which the condition is false at once, and one in which it is not.

Expected: the gradients of each run.

Seen: the second backward pass fails or crashes ("Incompatible attr in node sum_grad"), and reads freed memory at times.
Where the condition reads what the body does not, no backward pass works (``outputs.size() == num_forward_outputs``).

How the project avoids it: an executor with such a loop is used once (``is_used_once``, soybean_mx/control_flow.py), and
all that the condition reads is a variable of the loop.
"""
import subprocess
import sys

PROGRAM = """
import sys
import mxnet as mx
x, limit = mx.sym.var("x"), mx.sym.var("limit")
state = mx.sym.tanh(x)
_, (count, last, _) = mx.sym.contrib.while_loop(
    lambda count, state, limit: mx.sym.broadcast_lesser(count, limit),
    lambda count, state, limit: (state, [count + 1, mx.sym.tanh(state), mx.sym.identity(limit)]),
    [mx.sym.zeros_like(limit), state, limit], max_iterations=4)
net = mx.sym.Group([last, last * 2, state])
gradients = {"x": mx.nd.zeros((4, 3)), "limit": mx.nd.zeros((1,))}
arrays = {"x": mx.nd.ones((4, 3)), "limit": mx.nd.zeros((1,))}
executor = net.bind(mx.cpu(), arrays, gradients)
for iterations in map(int, sys.argv[1:]):
    arrays["limit"][:] = iterations
    executor.forward(is_train=True)
    executor.backward([mx.nd.ones((4, 3))] * 3)
    print(iterations, "iterations: gradient", gradients["x"][0, 0].asscalar(), flush=True)
"""

for runs in (["1", "2"], ["0", "0"], ["0", "1"]):
    print("numbers of iterations:", *runs)
    status = subprocess.run([sys.executable, "-c", PROGRAM, *runs], stderr=subprocess.DEVNULL).returncode
    print("status", status)
