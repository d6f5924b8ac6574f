"""CTCLoss of samples without labels.

What: ``CTCLoss(data, label)`` in which no sample has a label (all are padding).

Expected: the same as for these samples among others: minus the log-likelihood of blanks only.

Seen: nothing is computed; loss and gradient are what was in memory. The loss of a sample so depends on the others.

How the project avoids it: CTCLoss is not cut along its samples, where a part might have no label: it is computed whole.
"""
import mxnet as mx
import numpy as np

data = mx.nd.array(np.random.RandomState(0).normal(size=(5, 2, 3)))
label = mx.nd.array([[1, 2], [0, 0]])
print("the second sample beside one with labels:", mx.nd.CTCLoss(data, label)[1].asscalar())
alone, grad = data[:, 1:], mx.nd.full((5, 1, 3), 7)
print("alone, expected the same:", mx.nd.CTCLoss(alone, label[1:]).asscalar())
