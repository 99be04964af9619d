"""The examples for vLLM and SGLang on small stand-ins of the classes that they inherit from, with a drive that fails. The
wheels themselves: scripts/with-lmcache --only vllm sglang.
"""

import abc
import enum
import importlib.util
import pathlib
import random
import sys
import time
import types
from dataclasses import dataclass, field
from typing import Any

import pytest

numpy = pytest.importorskip("numpy")
EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
CHUNK = 8192


def example(monkeypatch, name, **modules):
    for path, members in modules.items():
        parts = path.split("__")
        for end in range(1, len(parts) + 1):
            module = types.ModuleType(".".join(parts[:end]))
            monkeypatch.setitem(sys.modules, module.__name__, sys.modules.get(module.__name__, module))
        sys.modules[".".join(parts)].__dict__.update(members)
    spec = importlib.util.spec_from_file_location(f"kvdrive_{name}", EXAMPLES / name / f"kvdrive_{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- vLLM


class LookupResult(enum.Enum):
    MISS, HIT, HIT_PENDING, RETRY = range(4)


class Lookups(abc.ABC):
    """Answers at once, where vLLM's asks on a thread."""

    def __init__(self, tier_type):
        self.missing = set()

    def lookup(self, key, context):
        return key not in self.missing and next(iter(self.batch_lookup([key], context)))

    def mark_miss(self, keys):
        self.missing.update(keys)

    def flush(self): ...
    def cleanup(self, request): ...
    def shutdown(self): ...


class Tier:
    def __init__(self, spec, view, tier_type, detector):
        self.block_size_bytes = view.strides[0]


@dataclass
class Job:
    job_id: int
    keys: list
    chunk_ids: Any
    is_promotion: bool
    req_context: Any = None
    submit_time: float = field(default_factory=time.monotonic)


@dataclass
class Result:
    job_id: int
    success: bool
    successful_keys: Any = None
    transfer_time: Any = None
    transfer_bytes: Any = None


def spec_of(**model):
    config = types.SimpleNamespace(
        model=types.SimpleNamespace(**{"name": "model", "dtype": "float16", **model}),
        cache=types.SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=types.SimpleNamespace(world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1),
        groups=[types.SimpleNamespace(group_id=0, tokens_per_block=16, layer_names=("a", "b"))],
        kv_cache_layout="NHD", canonical_layout=False, replicated_layout=False, worker_kv_bytes_per_block=CHUNK,
    )
    return types.SimpleNamespace(config=config)


@pytest.fixture
def vllm(monkeypatch):
    return example(
        monkeypatch,
        "vllm",
        vllm__v1__kv_offload__base={
            "LookupResult": LookupResult,
            "Medium": types.SimpleNamespace(STORAGE="storage"),
            "RequestOffloadingContext": object,
        },
        vllm__v1__kv_offload__tiering__async_lookup={"AsyncLookupManager": Lookups},
        vllm__v1__kv_offload__tiering__base={"JobResult": Result, "SecondaryTierManager": Tier, "TransferJob": Job},
    )


def ended(tier, count=1):
    results, end = [], time.monotonic() + 30
    while len(results) < count:
        assert time.monotonic() < end, "a job does not end"
        results += tier.get_finished_jobs()
    return results


def test_vllm_gets_back_its_chunks_and_misses_those_that_cannot_be_read(vllm, kvdrive_drive):
    memory = numpy.zeros((16, CHUNK), numpy.int8)
    memory[:] = numpy.random.default_rng(1).integers(-128, 128, memory.shape, dtype=numpy.int8)
    expected = memory.copy()
    tier = vllm.KvdriveTier(spec_of(), memoryview(memory), "kvdrive", **kvdrive_drive.spec)
    keys = [bytes([number]) * 32 + bytes(4) for number in range(16)]
    tier.submit_store(Job(1, keys, numpy.arange(16), is_promotion=False))
    assert tier.has_pending_work()
    tier.drain_jobs()
    (stored,) = ended(tier)
    assert (stored.success, stored.transfer_bytes, tier.has_pending_work()) == (True, 16 * CHUNK, False)
    assert [tier.lookup(key, None) for key in (keys[0], b"x" * 36)] == [LookupResult.HIT, LookupResult.MISS]

    memory[:] = 0
    kvdrive_drive.read_errors(every=5)
    # To other places than they came from.
    tier.submit_load(Job(2, keys, numpy.arange(16)[::-1], is_promotion=True))
    (loaded,) = ended(tier)
    assert not loaded.success and len(loaded.successful_keys) == 13
    for number, key in enumerate(keys):
        is_right = (memory[15 - number] == expected[number]).all()
        assert is_right == (key in loaded.successful_keys)
        assert tier.lookup(key, None) is (LookupResult.HIT if is_right else LookupResult.MISS), "it is not asked for for ever"
    kvdrive_drive.recover()
    kvdrive_drive.full()
    tier.submit_store(Job(3, keys[:2], numpy.arange(2), is_promotion=False))
    assert [one.success for one in ended(tier)] == [False]
    kvdrive_drive.recover()

    other = vllm.KvdriveTier(spec_of(dtype="float8"), memoryview(memory), "kvdrive", **kvdrive_drive.spec)
    assert other.lookup(keys[0], None) is LookupResult.MISS, "other bytes under the same key"
    other.shutdown()
    tier.shutdown()


# ---------------------------------------------------------------- SGLang


class Tensor:
    """As much of a tensor of torch as the example uses."""

    def __init__(self, array):
        self.array = array

    def view(self, dtype):
        return Tensor(self.array.view(dtype))

    def numpy(self):
        return self.array


class Pool:
    """The host's pages in two parts, keys and values, as SGLang's pools with layout `page_first` tell them."""

    def __init__(self, pages):
        self.parts = [numpy.zeros((pages, CHUNK), numpy.uint8) for _ in range(2)]

    def get_page_buffer_meta(self, pages):
        addresses = [part[page].ctypes.data for page in pages for part in self.parts]
        return addresses, [CHUNK] * len(addresses)


def config(drive, **more):
    facts = {"tp_rank": 0, "tp_size": 2, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1, "dcp_rank": 0}
    facts |= {"dcp_size": 1, "is_mla_model": False, "model_name": "model", "is_storage_writer": True}
    extra = {"backend_name": "kvdrive", "module_path": "kvdrive_sglang", "class_name": "KvdriveHiCache", "interface_v1": 1}
    return types.SimpleNamespace(**{**facts, "extra_config": {**extra, **drive.spec}, **more})


@pytest.fixture
def sglang(monkeypatch):
    storage = type("HiCacheStorage", (), {"register_mem_pool_host": lambda self, pool: setattr(self, "mem_pool_host", pool)})
    return example(
        monkeypatch,
        "sglang",
        torch={"uint8": numpy.uint8, "Tensor": Tensor},
        sglang__srt__mem_cache__hicache_storage={"HiCacheStorage": storage},
    )


def hashes(count):
    return [random.Random(number).randbytes(32).hex() for number in range(count)]


def test_sglang_gets_back_its_pages_where_they_are(sglang, kvdrive_drive):
    backend, pool, pages = sglang.KvdriveHiCache(config(kvdrive_drive), {}), Pool(12), list(range(12))
    backend.register_mem_pool_host(pool)
    for part in pool.parts:
        part[:] = numpy.random.default_rng(id(part)).integers(0, 256, part.shape, dtype=numpy.uint8)
    expected = [part.copy() for part in pool.parts]
    keys = hashes(13)
    assert backend.batch_set_v1(keys[:12], pages) == [True] * 12
    assert backend.batch_exists(keys) == 12 and backend.batch_exists(keys[12:]) == 0
    for part in pool.parts:
        part[:] = 0
    kvdrive_drive.read_errors(nth=5)
    got = backend.batch_get_v1(keys[:12], pages)
    assert got == [True] * 2 + [False] + [True] * 9, "the fifth part is of the third page"
    assert all((part[page] == whole[page]).all() for part, whole in zip(pool.parts, expected, strict=True) for page in pages if got[page])
    kvdrive_drive.recover()
    assert all(backend.batch_get_v1(keys[:12], pages))
    other = sglang.KvdriveHiCache(config(kvdrive_drive, tp_rank=1), {})
    assert other.batch_exists(keys) == 0, "pages of another rank"
    backend.clear()
    assert backend.batch_exists(keys) == 0


def test_sglang_gets_back_pages_as_tensors_and_a_full_drive_stores_none(sglang, kvdrive_drive):
    facts = config(kvdrive_drive)
    del facts.extra_config["interface_v1"]
    backend, keys = sglang.KvdriveHiCache(facts), hashes(4)
    values = [Tensor(numpy.random.default_rng(number).random(1000, dtype="float32")) for number in range(4)]
    kvdrive_drive.full()
    assert not backend.batch_set(keys, values) and backend.batch_exists(keys) == 0
    kvdrive_drive.recover()
    assert backend.batch_set(keys, values) and backend.exists(keys[3]) and backend.batch_exists(keys) == 4
    rooms = [Tensor(numpy.zeros(size, "float32")) for size in (1000, 1000, 1000, 999)]
    found = backend.batch_get(keys, rooms)
    assert found == [*rooms[:3], None], "a page of another size is none"
    assert all((room.array == value.array).all() for room, value in zip(rooms[:3], values, strict=False))
    assert backend.get("none", rooms[0]) is None
    backend.close()


def test_only_one_replica_of_an_mla_model_writes(sglang, kvdrive_drive):
    replica = sglang.KvdriveHiCache(config(kvdrive_drive, is_mla_model=True, tp_rank=1, is_storage_writer=False))
    writer = sglang.KvdriveHiCache(config(kvdrive_drive, is_mla_model=True))
    for backend in (replica, writer):
        backend.register_mem_pool_host(Pool(1))
    assert replica.batch_set_v1(["ab"], [0]) == [True] and not writer.exists("ab")
    assert writer.batch_set_v1(["ab"], [0]) == [True] and replica.exists("ab")
