"""Objects on drives, and what plugins of cache software make of a drive that fails. The software itself: scripts/with-lmcache."""

import os
import random
import select
import subprocess
import sys
import threading
import time

import kvdrive as kv
import kvdrive.lmcache
import pytest

# A drive whose largest value is far smaller than the objects.
SMALL_VALUES = {"controller.max_value_bytes": "64KiB"}
KIB = 1 << 10


def contents(sizes, seed=1):
    return [random.Random(f"{seed} {size}").randbytes(size) for size in sizes]


def named(number):
    return f"org/model@01000000@0@{number:064x}@salt".encode()


def loaded(objects, names, values):
    rooms = [bytearray(len(value)) for value in values]
    return [room if size == len(room) else size for size, room in zip(objects.retrieve_many_into(names, rooms), rooms, strict=True)]


@pytest.mark.parametrize("drive", ["cosmos-plus", ["cosmos-plus"] * 3])
def test_objects_of_any_size_come_back_whole(drive):
    values = contents([0, 1, 48, 64 * KIB - 94, 64 * KIB - 93, 64 * KIB, 200 * KIB, 1000 * KIB])
    names = [named(number) for number in range(len(values) - 1)] + [b"a short name"]
    with kv.Objects.open(drive, **SMALL_VALUES) as objects:
        assert objects.store_many(names, values) == [None] * 8
        assert loaded(objects, names, values) == values
        assert objects.exist_many([*names, b"none"]) == [True] * 8 + [False]
        # Buffers of other sizes: the true size is told, and no object is taken for another.
        assert objects.retrieve_many_into(names[6:7], [bytearray(64)]) == [200 * KIB]
        used, capacity = objects.usage()
        assert 0 < sum(map(len, values)) <= used < capacity
        changed = contents(map(len, values), seed=2)
        assert objects.store_many(names, changed) == [None] * 8
        assert loaded(objects, names, changed) == changed
        assert objects.delete_many([*names, b"none"]) == [True] * 8 + [False]
        assert objects.exist_many(names) == [False] * 8
        drives = getattr(objects.drive, "drives", [objects.drive])
        assert [one.count() for one in drives] == [0] * len(drives), "no part is left"


def test_a_large_object_is_whole_or_absent_whatever_fails():
    (value, other) = contents([300 * KIB], 1) + contents([300 * KIB], 2)
    with kv.Objects.open(**SMALL_VALUES) as objects:
        for nth in range(1, 7):
            objects.drive.inject("status", opcode="store", status="81h", nth=nth)
            (error,) = objects.store_many([named(1)], [value])
            assert error.name == "capacity exceeded", "five parts and a manifest"
            objects.drive.clear_faults()
            assert loaded(objects, [named(1)], [value]) == [None] and objects.drive.count() == 0
        assert objects.store_many([named(1)], [value]) == [None]
        for nth in range(1, 7):
            objects.drive.inject("status", opcode="store", status="81h", nth=nth)
            assert objects.store_many([named(1)], [other]) != [None]
            objects.drive.clear_faults()
            assert loaded(objects, [named(1)], [value]) == [value] and objects.drive.count() == 6
            objects.drive.inject("status", opcode="retrieve", status="88h", nth=nth)
            (found,) = loaded(objects, [named(1)], [value])
            assert found.name == "unrecovered error"
            objects.drive.clear_faults()
        for part in [key for key in objects.drive.keys() if len(key) == 16 and objects.drive.size(key) > 48][:1]:
            del objects.drive[part]
            assert loaded(objects, [named(1)], [value]) == [None]


def test_objects_outlast_the_program(tmp_path):
    values = contents([10, 100 * KIB])
    names = [named(number) for number in range(2)]
    for _ in range(2):
        with kv.Objects.open(media="file", path=str(tmp_path / "d.img"), **SMALL_VALUES) as objects:
            if not any(objects.exist_many(names)):
                objects.store_many(names, values)
                continue
            assert loaded(objects, names, values) == values


class Cache:
    """LMCache's adapter of type `native_plugin`, as far as a drive can see it: it polls the descriptor and drains."""

    def __init__(self, **parameters):
        self.connector = kvdrive.lmcache.KvdriveConnector(**parameters)
        self.ended = {}

    def wait(self, task, seconds=30):
        end = time.monotonic() + seconds
        while task not in self.ended:
            assert select.select([self.connector.event_fd()], [], [], max(0, end - time.monotonic()))[0], "no answer"
            self.ended.update((one[0], one[1:]) for one in self.connector.drain_completions())
        return self.ended.pop(task)

    def put(self, values):
        views = [memoryview(value) for value in values]
        return self.wait(self.connector.submit_batch_set([key(number) for number in range(len(values))], views))

    def get(self, values):
        rooms = [bytearray(len(value)) for value in values]
        views = [memoryview(room) for room in rooms]
        _, _, flags = self.wait(self.connector.submit_batch_get([key(number) for number in range(len(values))], views))
        return [room if flag else None for room, flag in zip(rooms, flags, strict=True)]

    def has(self, count):
        return self.wait(self.connector.submit_batch_exists([key(number) for number in range(count)]))[2]


def key(number):
    return named(number).decode()


@pytest.fixture
def cache(kvdrive_drive):
    cache = Cache(**kvdrive_drive.spec)
    yield cache
    cache.connector.close()


VALUES = contents([64 * KIB + number for number in range(16)])


def test_a_cache_gets_back_what_it_put(cache):
    assert cache.put(VALUES) == (True, "", None)
    assert cache.get(VALUES) == VALUES and cache.has(17) == [True] * 16 + [False]
    assert cache.get([b"other size"]) == [None]
    assert cache.wait(cache.connector.submit_batch_delete([key(0), key(99)])) == (True, "", [True, False])
    assert cache.has(2) == [False, True]
    used, capacity = cache.connector.usage()
    assert 15 * 64 * KIB <= used < capacity


def test_a_block_that_cannot_be_read_is_a_miss_and_the_others_are_right(cache, kvdrive_drive):
    cache.put(VALUES)
    kvdrive_drive.read_errors(every=5)
    found = cache.get(VALUES)
    assert found.count(None) == 3 and all(one in (None, value) for one, value in zip(found, VALUES, strict=True))
    kvdrive_drive.recover()
    assert cache.get(VALUES) == VALUES


def test_a_full_or_read_only_drive_refuses_and_keeps_what_it_has(cache, kvdrive_drive):
    cache.put(VALUES)
    for fail in (kvdrive_drive.full, kvdrive_drive.read_only):
        fail()
        is_stored, error, _ = cache.put(contents(map(len, VALUES), seed=2))
        assert not is_stored and error
        assert cache.get(VALUES) == VALUES
        kvdrive_drive.recover()
    assert cache.put(VALUES)[0]


def test_a_slow_drive_is_slow_and_right(cache, kvdrive_drive):
    cache.put(VALUES)
    kvdrive_drive.slow(0.3, opcode="retrieve", times=1)
    began = time.monotonic()
    assert cache.get(VALUES) == VALUES
    assert time.monotonic() - began >= 0.3


def test_a_wedged_drive_answers_after_its_power_was_cut(cache, kvdrive_drive):
    cache.put(VALUES)
    kvdrive_drive.wedged(opcode="retrieve", nth=3)
    rooms = [bytearray(len(value)) for value in VALUES]
    task = cache.connector.submit_batch_get([key(n) for n in range(16)], [memoryview(room) for room in rooms])
    assert not select.select([cache.connector.event_fd()], [], [], 0.5)[0], "it waits"
    kvdrive_drive.recover()
    _, _, flags = cache.wait(task)
    assert not all(flags) and all(room == value for room, value, flag in zip(rooms, VALUES, flags, strict=True) if flag)
    assert cache.get(VALUES) == VALUES


@pytest.mark.parametrize("at", ["command", "program"])
def test_a_power_cut_in_the_middle_of_a_store_leaves_whole_objects_or_none(cache, kvdrive_drive, at):
    # Large enough to be programmed while they are stored.
    values = contents([KIB * KIB + number for number in range(16)])
    cache.put(values[:4])
    kvdrive_drive.cut_power_in_store(nth=6 if at == "command" else 1, at=at)
    is_stored, error, _ = cache.put(values)
    assert not is_stored and "off" in error
    assert cache.get(values) == [None] * 16, "misses while it is off"
    kvdrive_drive.recover()
    found = cache.get(values)
    assert found[:4] == values[:4] and all(one in (None, value) for one, value in zip(found, values, strict=True))
    assert cache.put(values)[0] and cache.get(values) == values


def test_many_threads_share_a_connector(cache):
    def work(base):
        own = contents([5000] * 1, seed=base) * 8
        names = [key(100 * base + number) for number in range(8)]
        for _ in range(5):
            tasks.append((cache.connector.submit_batch_set(names, [memoryview(value) for value in own]), 8))

    tasks = []
    threads = [threading.Thread(target=work, args=(base,)) for base in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({task for task, _ in tasks}) == 25
    assert all(cache.wait(task)[0] for task, _ in tasks)


def serve(command, address, folder):
    words = ["--listen", address, "--pace", "off", "--media", "file", "--set", f"media.path={folder}/d.img"]
    return subprocess.Popen([command, "serve", *words], stdout=subprocess.PIPE, text=True)


def test_a_server_that_goes_away_is_misses_and_is_used_again_when_it_is_back(command, tmp_path):
    with serve(command, "tcp://127.0.0.1:0", tmp_path) as server:
        address = next(word for line in server.stdout for word in line.split() if word.startswith("tcp://"))
        cache = Cache(drive=address)
        assert cache.put(VALUES)[0] and cache.get(VALUES) == VALUES
        server.kill()
    is_stored, error, _ = cache.put(VALUES)
    assert not is_stored and error
    assert cache.get(VALUES) == [None] * 16 and cache.has(2) == [False, False]
    with serve(command, address, tmp_path) as server:
        next(server.stdout)
        end = time.monotonic() + 30
        while cache.get(VALUES) != VALUES:
            assert time.monotonic() < end, "the drive is back, and not used"
            time.sleep(0.1)
        assert cache.put(VALUES)[0]
        server.kill()
    cache.connector.close()


def test_a_shared_drive_has_to_be_there():
    with pytest.raises(kv.ConfigurationError, match="no drive of that name is shared here"):
        kvdrive.lmcache.KvdriveConnector("shared:none")
    with kv.open() as drive:
        kv.share("one", drive)
        with pytest.raises(kv.ConfigurationError, match="leave settings out"):
            kvdrive.lmcache.KvdriveConnector("shared:one", pace="off")
        kv.share("one", None)


def test_the_plugin_imports_nothing_of_its_host():
    code = "import sys, kvdrive.lmcache; assert not {'lmcache', 'torch', 'numpy', 'pytest'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
