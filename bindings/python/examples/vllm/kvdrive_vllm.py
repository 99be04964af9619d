"""A kvdrive as a secondary tier of vLLM's KV offloading (vLLM 0.33.0; that interface is experimental and changes).

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 8000000000,
            "secondary_tiers": [{"type": "KvdriveTier", "module_path": "kvdrive_vllm", "drive": "tcp://127.0.0.1:4420"}]}}'

``drive`` and further keys are those of :meth:`kvdrive.Objects.open`. This file has to be on ``PYTHONPATH``.
"""

import hashlib
import json
import time
from collections.abc import Collection, Iterable
from typing import Any

import kvdrive as kv
from vllm.v1.kv_offload.base import LookupResult, Medium, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob


def space(spec: Any) -> bytes:
    """What a chunk's bytes depend on beside its key, as a digest: model, types, layout and division over workers."""
    config = spec.config
    parallel = config.parallel
    facts = [
        [config.model.name, config.model.dtype, config.cache.tokens_per_hash, config.cache.blocks_per_chunk],
        [config.kv_cache_layout, config.canonical_layout, config.replicated_layout, config.worker_kv_bytes_per_block],
        [parallel.world_size, parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size],
        [[group.group_id, group.tokens_per_block, list(group.layer_names)] for group in config.groups],
    ]
    return hashlib.sha256(json.dumps(facts).encode()).digest()


class Lookup(AsyncLookupManager):
    """Looks for chunks on a thread of its own, since a lookup of the scheduler must not wait for a drive."""

    def __init__(self, tier_type: str, tier: "KvdriveTier") -> None:
        self._tier = tier
        super().__init__(tier_type)

    def batch_lookup(self, keys: list[bytes], req_context: Any) -> Iterable[bool]:
        return [one is True for one in self._tier.objects.exist_many(self._tier.names(keys))]


class KvdriveTier(SecondaryTierManager):
    """Chunks of the primary tier on a drive. A chunk that cannot be read, or is of another size, is a miss."""

    medium = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        threads: int = 2,
        **drive: Any,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self._space = space(offloading_spec)
        self._bytes = primary_kv_view.cast("B")
        self.objects = kv.Objects.open(**drive)
        self._queue = kv.Queue(self.objects, threads)
        self._jobs: dict[int, TransferJob] = {}
        self._lookup = Lookup(tier_type, self)

    def names(self, keys: Collection[bytes]) -> list[bytes]:
        """The names of chunks on the drive."""
        return [self._space + key for key in keys]

    def _chunks(self, job: TransferJob) -> list[memoryview]:
        size = self.block_size_bytes
        return [self._bytes[int(place) * size : (int(place) + 1) * size] for place in job.chunk_ids]

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        found = self._lookup.lookup(key, req_context)
        return LookupResult.RETRY if found is None else LookupResult.HIT if found else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        task = self._queue.store(self.names(job_metadata.keys), self._chunks(job_metadata))
        self._jobs[task] = job_metadata

    def submit_load(self, job_metadata: TransferJob) -> None:
        task = self._queue.retrieve(self.names(job_metadata.keys), self._chunks(job_metadata))
        self._jobs[task] = job_metadata

    def get_finished_jobs(self) -> Iterable[JobResult]:
        results = []
        for task, ended in self._queue.finished():
            job = self._jobs.pop(task)
            right = self.block_size_bytes if job.is_promotion else None
            done = [key for key, one in zip(job.keys, ended, strict=True) if one == right]
            success = len(done) == len(ended)
            if job.is_promotion and not success:
                # Otherwise the scheduler would ask for them for ever.
                self._lookup.mark_miss([key for key in job.keys if key not in set(done)])
            results.append(
                JobResult(
                    job.job_id,
                    success,
                    successful_keys=done if job.is_promotion else None,
                    transfer_time=time.monotonic() - job.submit_time,
                    transfer_bytes=len(done) * self.block_size_bytes,
                )
            )
        return results

    def has_pending_work(self) -> bool:
        return bool(self._jobs)

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: Any) -> None:
        self._lookup.cleanup(req_context.req_id)

    def on_schedule_end(self, context: Any) -> None:
        self._lookup.flush()

    def drain_jobs(self) -> None:
        """Waits until no job reads or writes the primary tier. Their results are still returned later."""
        self._queue.drain()

    def shutdown(self) -> None:
        self._lookup.shutdown()
        self._queue.close()
        self.objects.close()
        # The primary tier's memory is unmapped only without views of it.
        self._bytes.release()
