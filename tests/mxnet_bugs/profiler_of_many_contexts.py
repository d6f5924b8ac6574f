"""The profiler, and more CPU contexts than cores.

What: ``mx.profiler`` while operators run on ``cpu(8)``.

Expected: a row of the trace for each context.

Seen: its table of CPU contexts is as long as there are cores: on a machine with fewer than 8 cores it writes beyond
the end, which names a wrong context or ends the process.

How the project avoids it: traces and counts of memory are made on contexts of low numbers alone
(``PROFILED_CPUS`` in soybean_mx/tracing.py, ``contexts_counted`` in scripts/bench_memory.py).
"""
import os
import tempfile

import mxnet as mx

mx.profiler.set_config(filename=os.path.join(tempfile.mkdtemp(), "profile.json"), profile_all=True)
mx.profiler.set_state("run")
x = mx.nd.ones((2, 2), ctx=mx.cpu(64))
(x + x).wait_to_read()
mx.profiler.set_state("stop")
mx.profiler.dump()
print("it was not found to fail this time")
