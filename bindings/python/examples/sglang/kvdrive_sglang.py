"""A kvdrive as the storage of SGLang's HiCache (SGLang 0.5.23, backend ``dynamic``).

    python -m sglang.launch_server --model-path MODEL --enable-hierarchical-cache --hicache-mem-layout page_first \\
        --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{"backend_name": "kvdrive",
            "module_path": "kvdrive_sglang", "class_name": "KvdriveHiCache", "interface_v1": 1,
            "drive": "tcp://127.0.0.1:4420"}'

``drive`` and further keys are those of :meth:`kvdrive.Objects.open`. This file has to be on ``PYTHONPATH``.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import kvdrive as kv
import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

#: Keys of the configuration that are SGLang's.
OF_SGLANG = {"backend_name", "module_path", "class_name", "interface_v1"}


def space(config: Any) -> bytes:
    """What a page's bytes depend on beside its key. Replicas of an MLA model have the same pages, and one of them writes."""
    tensor = (0, 1) if config.is_mla_model else (config.tp_rank, config.tp_size)
    parts = [*tensor, config.pp_rank, config.pp_size, config.attn_cp_rank, config.attn_cp_size, config.dcp_rank, config.dcp_size]
    return f"{config.model_name}@{'.'.join(map(str, parts))}@".encode()


class KvdriveHiCache(HiCacheStorage):
    """Pages of the host's cache on a drive. A page that cannot be read, or is of another size, is absent."""

    def __init__(self, storage_config: Any, kwargs: Any = None) -> None:
        drive = {key: value for key, value in (storage_config.extra_config or {}).items() if key not in OF_SGLANG}
        self._space = space(storage_config)
        self._is_writer = storage_config.is_storage_writer
        self._has_parts = (storage_config.extra_config or {}).get("interface_v1") == 1
        self.objects = kv.Objects.open(**drive)

    def _names(self, keys: Sequence[str], part: int | None = None) -> list[bytes]:
        ending = b"" if part is None else b"@%d" % part
        return [self._space + key.encode() + ending for key in keys]

    # ------------------------------------------------ pages as tensors

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> torch.Tensor | None:
        return self.batch_get([key], [target_location])[0]

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[torch.Tensor | None]:
        rooms = [_bytes(tensor) for tensor in target_locations]
        sizes = self.objects.retrieve_many_into(self._names(keys), rooms)
        return [
            tensor if size == room.nbytes else None
            for tensor, room, size in zip(target_locations, rooms, sizes, strict=True)
        ]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_set(self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None) -> bool:
        return all(self._store(self._names(keys), [_bytes(value) for value in values]))

    # ------------------------------------------------ pages where they are (`interface_v1`)

    def batch_get_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None) -> list[bool]:
        names, rooms, parts = self._places(keys, host_indices)
        sizes = self.objects.retrieve_many_into(names, rooms)
        right = [size == room.nbytes for room, size in zip(rooms, sizes, strict=True)]
        return _whole(right, parts)

    def batch_set_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None) -> list[bool]:
        names, values, parts = self._places(keys, host_indices)
        return _whole(self._store(names, values), parts)

    def _places(self, keys: list[str], host_indices: torch.Tensor) -> tuple[list[bytes], list[memoryview], int]:
        """The names and the memory of all parts of pages, page by page, and how many parts a page has."""
        addresses, sizes = self.mem_pool_host.get_page_buffer_meta(host_indices)
        parts = len(addresses) // len(keys)
        names = [name for key in keys for part in range(parts) for name in self._names([key], part)]
        return names, [_memory(*place) for place in zip(addresses, sizes, strict=True)], parts

    # ------------------------------------------------

    def _store(self, names: list[bytes], values: Sequence[Any]) -> list[bool]:
        """Stores what is not there yet: a page under its hash does not change."""
        if not self._is_writer:
            return [True] * len(names)
        there = [one is True for one in self.objects.exist_many(names)]
        new = [place for place, is_there in enumerate(there) if not is_there]
        for place, error in zip(new, self.objects.store_many([names[i] for i in new], [values[i] for i in new]), strict=True):
            there[place] = error is None
        return there

    def exists(self, key: str) -> bool:
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """How many pages are there before the first that is not. Of a page in parts the first is looked for: if another one is
        missing, its load fails.
        """
        found = self.objects.exist_many(self._names(keys, 0 if self._has_parts else None))
        there = [one is True for one in found]
        return there.index(False) if False in there else len(keys)

    def clear(self) -> None:
        drives = getattr(self.objects.drive, "drives", [self.objects.drive])
        for drive in drives:
            for name in [name for name, _ in drive.items() if name.startswith(self._space)]:
                self.objects.delete_many([name])

    def close(self) -> None:
        self.objects.close()


def _bytes(tensor: torch.Tensor) -> Any:
    return tensor.view(torch.uint8).numpy()


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def _whole(right: list[bool], parts: int) -> list[bool]:
    return [all(right[page : page + parts]) for page in range(0, len(right), parts)]
