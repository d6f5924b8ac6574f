"""ROIAlign of regions whose image's index is negative.

What: ``contrib.ROIAlign`` where a region's first number, the image that it is in, is below 0: GluonCV marks so the
regions that another level of a feature pyramid takes.

Expected: zeros for such a region, as on GPUs.

Seen: on CPUs a single 0 is written, into the output of another region, and the region's own is left as the memory was.

How the project avoids it: it does not change what the operator computes; the sweep of the zoos trains these models with
an operator that gives zeros (``aligned_regions``, scripts/sweep_contender.py), on one device as on many.
"""
import mxnet as mx

data, regions = mx.nd.ones((1, 2, 8, 8)), mx.nd.array([[0, 0, 0, 4, 4], [-1, 0, 0, 4, 4]])
out = mx.nd.full((2, 2, 2, 2), 7)
mx.nd.contrib.ROIAlign(data, regions, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=2, out=out)
for index, expected in enumerate((1.0, 0.0)):
    print(f"region {index}: {out[index].asnumpy().ravel().tolist()}, expected {expected} everywhere")
