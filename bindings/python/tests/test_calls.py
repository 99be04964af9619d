"""Keys without values, parts of values, removals that report, the namespace, parts of errors, SAKER, forked children."""

import asyncio
import os
import pickle
import subprocess
import sys
import threading

import kvdrive as kv
import pytest

SMALL = {"flash.blocks_per_die": 64, "flash.spare_blocks": 0}


@pytest.fixture(params=["lsm", "plus", "hashlog"])
def drive(request):
    with kv.open(engine=request.param, **SMALL) as drive:
        yield drive


def test_keys_and_pairs_with_a_prefix_are_those_of_a_dictionary(drive):
    oracle = {b"%s-%04d" % ([b"a", b"ab", b"b"][n % 3], n): b"%d" % n for n in range(5000)}
    drive.update(oracle)
    for prefix in (b"", b"a", b"ab-00", b"c"):
        expected = sorted(key for key in oracle if key.startswith(prefix))
        assert sorted(drive.keys(prefix)) == expected
        assert dict(drive.items(prefix)) == {key: oracle[key] for key in expected}
        assert drive.count(prefix) == len(expected)
        assert sorted(drive.values(prefix)) == sorted(oracle[key] for key in expected)
    if drive.is_ordered:
        assert list(drive) == sorted(oracle)
    with pytest.raises(kv.SizeError):
        drive.keys(b"x" * 17)


def test_keys_alone_bring_no_values():
    with kv.open("cosmos-plus") as drive:
        drive.store_many([b"%03d" % n for n in range(200)], [b"x" * 4096] * 200)
        before = drive.numbers()["traffic"]["payload_bytes"]["total"]
        assert len(list(drive.keys())) == drive.count() == 200
        assert drive.numbers()["traffic"]["payload_bytes"]["total"] - before < 20_000
        assert len(list(drive.items())) == 200
        assert drive.numbers()["traffic"]["payload_bytes"]["total"] - before > 200 * 4096


def test_of_threads_that_delete_a_pair_one_succeeds(drive):
    keys, deleted = [b"%d" % n for n in range(300)], []
    drive.store_many(keys, keys)

    def work():
        for key in keys:
            try:
                del drive[key]
                deleted.append(key)
            except KeyError as error:
                assert error.args == (key,)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(deleted) == sorted(keys) and drive.count() == 0


def test_a_part_of_a_value_has_the_bytes_of_its_place(drive):
    value = os.urandom(70_000)
    drive[b"key"] = value
    for at, size in [(0, 10), (1, 4096), (69_999, 1), (60_000, 20_000), (70_000, 1), (5, 0)]:
        assert drive.retrieve_part(b"key", at, size) == value[at : at + size]
    assert drive.size(b"key") == 70_000
    for call in (lambda: drive.retrieve_part(b"none", 0, 1), lambda: drive.size(b"none")):
        with pytest.raises(KeyError):
            call()
    with pytest.raises(kv.DriveError) as error:
        drive.retrieve_part(b"key", 70_001, 1)
    assert (error.value.status, error.value.call, error.value.key) == (0x02, "get part", b"key")


def test_a_namespace_says_what_fits_and_what_is_there():
    with kv.open("cosmos-plus") as drive:
        empty = drive.namespace()
        assert empty["is_ordered"] and empty["capacity_bytes"] > 1 << 30 and empty["keys_max"] is None
        drive.store_many([b"%d" % n for n in range(100)], [b"x" * 1000] * 100)
        assert drive.namespace()["used_bytes"] == 100_000
    with kv.open(["cosmos-plus"] * 2) as drives:
        drives[b"key"] = b"value"
        assert sum(one["used_bytes"] for one in drives.namespace()) == 5
        assert drives.retrieve_part(b"key", 1, 2) == b"al" and drives.size(b"key") == 5


def test_an_error_has_its_parts_and_can_be_pickled():
    with kv.open("cosmos-plus") as drive:
        drive[b"key"] = b"value"
        drive.inject("read-error", key=b"key")
        with pytest.raises(kv.DriveError) as error:
            drive[b"key"]
    parts = ("status", "name", "call", "key", "setting", "allowed", "index")
    expected = (0x88, "unrecovered error", "get", b"key", None, None, None)
    assert tuple(getattr(error.value, part) for part in parts) == expected
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value) and again.key == b"key"
    for settings, setting, allowed in [
        ({"packing": "none"}, "packing.policy", "backfill"),
        ({"flash.channels": 1000}, "flash.channels", "1 to 256"),
        ({"seed": [1, 2], "workload": "w-a"}, "seed", "0 to"),
    ]:
        with pytest.raises(kv.ConfigurationError) as error:
            kv.run(**settings) if "workload" in settings else kv.open(**settings)
        assert error.value.setting == setting and allowed in error.value.allowed, str(error.value)
    with pytest.raises(kv.ConfigurationError) as error:
        kv.open("none")
    assert (error.value.setting, error.value.allowed) == ("none", None)


def test_async_calls_have_keys_and_parts():
    async def work():
        async with await kv.open_async() as drive:
            await drive.store_many([b"a1", b"a2", b"b1"], [b"one", b"two", b"three"])
            assert [key async for key in drive.keys(b"a")] == [b"a1", b"a2"]
            assert await drive.count() == 3
            return await drive.retrieve_part(b"b1", 2, 2)

    assert asyncio.run(work()) == b"re"


def test_saker_sends_writes_together_and_says_what_it_did():
    with kv.open("cosmos-plus") as drive:
        saker = drive.saker(batch=16, cache_bytes="64KiB")
        with pytest.raises(kv.DriveError, match="has one already"):
            drive.saker()

        def work(number):
            for n in range(100):
                saker[b"%d-%d" % (number, n)] = b"small"
            saker.sync()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert drive.count() == 300
        assert saker[b"1-1"] == saker.get(b"1-1") == b"small" and b"1-1" in saker
        saker[b"1-1"] = b"pending"
        assert (saker.unsynced(), saker[b"1-1"], drive[b"1-1"]) == (1, b"pending", b"small")
        saker.discard(b"2-2")
        saker.update({b"late": b"value"})
        numbers = saker.numbers()
        assert numbers["batches"] >= 300 / 16 and numbers["pending_bytes"] > 0
        saker.close()
        assert drive[b"1-1"] == b"pending" and b"2-2" not in drive and drive[b"late"] == b"value"
        with pytest.raises(ValueError, match="closed"):
            saker[b"1-1"]
        with pytest.raises(kv.ConfigurationError) as error:
            drive.saker(batch="many")
        assert error.value.setting == "saker.batch"
        with drive.saker(batch="8") as another:
            another[b"key"] = b"value"
        assert drive[b"key"] == b"value"


CHILD = """
import os, kvdrive as kv
with kv.open({at}) as drive:
    drive[b"key"] = b"value"
    pairs, keys = drive.items(), drive.keys()
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(20)
        refused = 0
        for call in (lambda: drive[b"key"], lambda: drive.store_many([b"a"], [b"b"]), lambda: next(pairs),
                     lambda: next(keys), lambda: drive.size(b"key"), drive.close, lambda: drive.count()):
            try:
                call()
            except kv.DriveError as error:
                refused += "forked off" in str(error)
        del pairs, keys, drive
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), drive[b"key"], drive.close()["unanswered"])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_is_told_and_does_not_wait():
    out = subprocess.run([sys.executable, "-c", CHILD.format(at="")], capture_output=True, text=True, timeout=60)
    # The drive says its capacity, because it takes a part of the memory only.
    told = [line for line in out.stderr.splitlines() if not line.startswith("capacity ")]
    assert (out.stdout, told) == ("7 b'value' 0\n", [])


def test_a_drive_has_the_capacity_that_was_given_or_says_what_it_has(caplog):
    with kv.open(capacity="2GiB") as drive:
        assert 1 << 30 < drive.namespace()["capacity_bytes"] < 2 << 30 and drive.capacity_note is None
    assert not caplog.records
    with kv.open() as drive:
        notes = [record.getMessage() for record in caplog.records if record.name == "kvdrive"]
        assert notes == ([drive.capacity_note] if drive.capacity_note else [])
    with pytest.raises(kv.ConfigurationError, match="1MiB; allowed with engine.name"):
        kv.open(capacity="1MiB")
    report = kv.run(workload="fillseq", ops=10, capacity="1GiB")
    assert report["config"]["flash"]["blocks_per_die"] == 16


def test_what_is_awaited_may_be_closed_twice():
    async def work():
        async with await kv.open_async() as drive:
            async with await drive.saker(batch=8) as saker:
                await saker.store(b"key", b"value")
                await saker.close()
            assert await drive.get(b"key") == b"value"

    asyncio.run(work())
