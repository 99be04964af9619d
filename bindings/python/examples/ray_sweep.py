"""A sweep on Ray: ``pip install ray``, then ``python examples/ray_sweep.py``; on a cluster, ``ray.init("auto")``.

Ray has no executor of ``concurrent.futures``; the class below is one. Its workers need this package of the same revision.
"""

import concurrent.futures
import sys

import kvdrive as kv
import ray


class RayExecutor(concurrent.futures.Executor):
    """Each call is a task of Ray, on any free worker."""

    def __init__(self):
        self._call = ray.remote(lambda call, *arguments: call(*arguments))

    def submit(self, call, /, *arguments):
        return self._call.remote(call, *arguments).future()


if __name__ == "__main__":
    out = sys.argv[1] if len(sys.argv) > 1 else "ray_sweep.jsonl"
    ray.init(num_cpus=2, include_dashboard=False)
    grid = {"value_size": [32, 4096], "transfer": ["prp", "piggyback"]}
    with RayExecutor() as pool:
        swept = kv.sweep(grid, executor=pool, out=out, workload="w-a", ops=2000)
    for row in swept:
        print(row["workload.value_size"], row["host.transfer"], row["throughput_ops_per_s"])
    ray.shutdown()
