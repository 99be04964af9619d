"""Calls on lists, arrays and buffers: the same answers for all forms of input; and no memory is leaked."""

import asyncio
import os
import random

import kvdrive as kv
import pytest

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings, strategies  # noqa: E402

KEYS = strategies.binary(min_size=1, max_size=16)
VALUES = strategies.binary(max_size=9000)


@pytest.fixture(scope="module")
def shared():
    with kv.open() as drive:
        yield drive


def in_buffer(items):
    offsets = [0]
    for item in items:
        offsets.append(offsets[-1] + len(item))
    return b"".join(items), offsets


@settings(deadline=None, max_examples=60)
@given(strategies.lists(strategies.tuples(KEYS, VALUES), max_size=40), strategies.lists(KEYS, max_size=10))
def test_a_drive_holds_what_a_dictionary_holds_in_any_form_of_list(shared, pairs, others):
    expected = dict(pairs)
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    shared.store_many(in_buffer(keys), in_buffer(values))
    asked = keys + [key for key in others if key not in expected]
    for key in others:
        if key not in expected:
            shared.discard(key)
    answers = [expected.get(key) for key in asked]
    assert shared.retrieve_many(asked) == answers
    found = shared.retrieve_many(in_buffer(asked))
    assert list(found) == answers and len(found) == len(asked)
    assert found.data == b"".join(value for value in answers if value is not None)
    assert [bool(there) for there in found.found] == [value is not None for value in answers]


@settings(deadline=None, max_examples=40)
@given(
    strategies.lists(
        strategies.one_of(
            strategies.tuples(strategies.just("store"), strategies.integers(0, 9), VALUES),
            strategies.tuples(strategies.just("delete"), strategies.integers(0, 9)),
            strategies.tuples(strategies.just("cut"), strategies.booleans()),
            strategies.tuples(strategies.just("scan")),
        ),
        max_size=25,
    )
)
def test_any_sequence_of_calls_and_power_cuts_leaves_what_a_dictionary_holds(calls):
    oracle = {}
    with kv.open() as drive:
        for call, *arguments in calls:
            if call == "store":
                drive[b"%d" % arguments[0]] = oracle[b"%d" % arguments[0]] = arguments[1]
            elif call == "delete":
                drive.discard(b"%d" % arguments[0])
                oracle.pop(b"%d" % arguments[0], None)
            elif call == "cut":
                drive.power_cut(torn=arguments[0])
                drive.power_on()
            else:
                assert list(drive.items()) == sorted(oracle.items())
        assert list(drive.items()) == sorted(oracle.items())


@given(buffer=strategies.binary(max_size=40), offsets=strategies.lists(strategies.integers(-5, 50), max_size=6))
def test_offsets_that_cannot_be_are_refused(shared, buffer, offsets):
    is_right = bool(offsets) and offsets == sorted(offsets) and offsets[0] >= 0 and offsets[-1] <= len(buffer)
    hypothesis.assume(not is_right)
    with pytest.raises(ValueError, match="offsets: expected one more than items"):
        shared.retrieve_many((buffer, offsets))


def test_arrays_are_rows_or_bytes(shared):
    numpy = pytest.importorskip("numpy")
    keys = numpy.arange(500, dtype=">u4").view(numpy.uint8).reshape(500, 4)
    values = numpy.random.default_rng(1).integers(0, 256, (500, 4096), dtype=numpy.uint8)
    shared.store_many(keys, values)
    found = shared.retrieve_many(keys)
    assert (found.to_numpy() == values).all() and found[7] == values[7].tobytes() == shared[bytes(keys[7])]
    assert found.to_numpy().base is not None
    shared.store_many(keys[::2, :], numpy.ascontiguousarray(values[::2, 100:200]))
    assert shared[bytes(keys[2])] == values[2, 100:200].tobytes()
    with pytest.raises(ValueError, match="values of one size"):
        shared.retrieve_many(keys).to_numpy()
    texts = numpy.array([b"one", b"two"])
    shared.store_many(texts, [b"1", b"2"])
    assert list(shared.retrieve_many(texts)) == [b"1", b"2"]
    shared.store_many((b"abcd", numpy.array([0, 1, 4])), (bytearray(b"12345"), [0, 2, 5]))
    assert (shared[b"a"], shared[b"bcd"]) == (b"12", b"345")
    with pytest.raises(TypeError, match="an array of bytes"):
        shared.retrieve_many(numpy.arange(4))
    with pytest.raises(ValueError, match="1 keys and 2 values"):
        shared.store_many([b"a"], values[:2])
    with pytest.raises(kv.SizeError) as error:
        shared.store_many((b"ab", [0, 1, 1, 2]), [b""] * 3)
    assert error.value.index == 1


def test_arrays_of_bytes_lose_no_zero_bytes(shared):
    numpy = pytest.importorskip("numpy")
    values = numpy.array([b"v\0\0", b"vvv"], dtype="S3")
    for keys, given in [([b"k1", b"k2"], values), (numpy.array([b"ab\0", b"abc"], dtype="S3"), [b"1", b"2"])]:
        with pytest.raises(ValueError, match="item 0 has . bytes in an array of S3"):
            shared.store_many(keys, given)
    shared.store_many([b"k1", b"k2"], values.view("uint8").reshape(-1, 3))
    assert shared.retrieve_many([b"k1", b"k2"]) == [b"v\0\0", b"vvv"]


def test_several_drives_hold_what_a_dictionary_holds():
    with kv.open(["cosmos-plus"] * 3) as drives:
        oracle = {b"key%d" % number: b"%d" % number for number in range(300)}
        drives.update(oracle)
        assert dict(drives.items()) == oracle and drives.count() == 300
        assert sorted(drives.keys(b"key1")) == sorted(key for key in oracle if key.startswith(b"key1"))
        assert min(drive.count() for drive in drives.drives) > 50
        asked = [*oracle, b"none"]
        random.Random(1).shuffle(asked)
        assert drives.retrieve_many(asked) == [oracle.get(key) for key in asked]
        found = drives.retrieve_many(in_buffer(asked))
        assert list(found) == [oracle.get(key) for key in asked]
        assert found.data == b"".join(oracle.get(key, b"") for key in asked)
        drives.store_many(in_buffer(asked[:50]), (bytes(50), list(range(51))))
        oracle.update(dict.fromkeys(asked[:50], b"\0"))
        drives.inject("read-error", key=b"key9", times=1)
        with pytest.raises(kv.DriveError) as failed:
            drives.retrieve_many([b"key8", b"key9"])
        assert (failed.value.index, failed.value.name) == (1, "unrecovered error")
        drives.power_cut(torn=True)
        drives.power_on()
        del drives[b"key7"], oracle[b"key7"]
        assert b"key7" not in drives and drives.get(b"key7") is None and drives[b"key8"] == oracle[b"key8"]
        assert dict(drives.items()) == oracle
        with pytest.raises(kv.SizeError) as error:
            drives.store_many([b"a", b"b", b"c", b""], [b"1"] * 4)
        assert error.value.index == 3
        assert len(drives.numbers()) == 3


def test_several_drives_take_arrays():
    numpy = pytest.importorskip("numpy")
    keys = numpy.arange(500, dtype=">u4").view(numpy.uint8).reshape(500, 4)
    values = numpy.random.default_rng(1).integers(0, 256, (500, 100), dtype=numpy.uint8)
    with kv.open(["cosmos-plus"] * 3) as drives:
        drives.store_many(keys, values)
        assert (drives.retrieve_many(keys).to_numpy() == values).all()
        assert list(drives.retrieve_many(numpy.array([b"none"]))) == [None]
        with pytest.raises(ValueError, match="1 keys and 2 values"):
            drives.store_many([b"a"], values[:2])
        with pytest.raises(ValueError, match="offsets: expected one more"):
            drives.retrieve_many((b"abc", [0, 9]))


def test_async_calls_are_those_of_the_drive():
    async def work():
        async with await kv.open_async(depth=8) as drive:
            keys = [b"%04d" % number for number in range(600)]
            await asyncio.gather(*(drive.store(key, key) for key in keys[:100]))
            await drive.store_many(keys[100:], keys[100:])
            assert [pair async for pair in drive.items()] == [(key, key) for key in keys]
            assert await drive.retrieve_many(keys) == keys
            await drive.delete(keys[0])
            await drive.discard(keys[0])
            with pytest.raises(KeyError):
                await drive.delete(keys[0])
            assert (await drive.exist(keys[0]), await drive.get(keys[1])) == (False, keys[1])
            # The event loop is free while a call waits.
            ticks = 0
            storing = asyncio.ensure_future(drive.store_many(keys * 20, [b"x" * 4096] * 12000))
            while not storing.done():
                ticks += 1
                await asyncio.sleep(0)
            await storing
            assert ticks > 10
            return await drive.close()

    assert asyncio.run(work())["unanswered"] == 0


def test_a_read_error_of_a_key_and_rules_of_bytes():
    with kv.open() as drive:
        drive.store_many([b"a", b"\x00\xff"], [b"1", b"2"])
        names = drive.inject("read-error", key=b"\x00\xff", times=1)
        assert drive[b"a"] == b"1"
        with pytest.raises(kv.DriveError) as error:
            drive[b"\x00\xff"]
        assert (error.value.status, error.value.name) == (0x88, "unrecovered error")
        assert drive[b"\x00\xff"] == b"2"
        drive.clear_faults(names[0])
        with pytest.raises(kv.DriveError, match="fault: no \"none\""):
            drive.inject("none")
        with pytest.raises(TypeError, match="a text has all of its rules"):
            drive.inject("[[rule]]\n", key=b"a")


def memory_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="there is no /proc here")
def test_calls_leave_no_memory_behind():
    keys, values = [b"%03d" % number for number in range(200)], [b"x" * 4096] * 200

    def work(rounds):
        for _ in range(rounds):
            drive.store_many(keys, values)
            drive.store_many(in_buffer(keys), in_buffer(values))
            assert len(drive.retrieve_many(keys)) == len(drive.retrieve_many(in_buffer(keys))) == 200
            for _ in drive.items():
                pass
            for key in keys[:20]:
                drive[key] = drive[key]
                drive.get(b"none")
            with pytest.raises(KeyError):
                drive[b"none"]
            with pytest.raises(kv.SizeError):
                drive.store_many([b""], [b""])

    with kv.open() as drive:
        work(15)
        before = memory_kib()
        work(45)
        # A leak of the values of one of these lists would be 45 times 800 KiB.
        assert memory_kib() - before < 18_000
