"""Values in buffers, lists that go on after an error, keys of any length, lists in the background, and closing meanwhile."""

import hashlib
import random
import select
import threading
import time

import kvdrive as kv
import pytest

MIB = 1 << 20
NAME = b"model@0000abcd@0@" + b"0123456789abcdef" * 4


@pytest.fixture
def drive():
    # So that a fault rule for Store matches stores of every size.
    with kv.open(transfer="prp") as drive:
        yield drive


def digest(name):
    return hashlib.sha256(name).digest()[:16]


def test_a_value_is_any_c_contiguous_buffer_and_others_are_refused_by_name(drive):
    numpy = pytest.importorskip("numpy")
    floats = numpy.arange(300, dtype="float32").reshape(10, 30)
    given = [b"bytes", bytearray(b"array"), memoryview(b"a view")[2:], floats, memoryview(floats), numpy.zeros(0, "int16")]
    keys = [b"%d" % place for place in range(len(given))]
    drive.store_many(keys, given)
    expected = [memoryview(value).tobytes() for value in given]
    assert drive.retrieve_many(keys) == expected
    for key, value, bytes_of in zip(keys, given, expected, strict=True):
        drive[key] = value
        assert drive[key] == bytes_of
    for value, told, kind in [
        (floats.T, r"numpy\.ndarray is not C-contiguous", ValueError),
        (memoryview(b"abcd")[::2], "memoryview is not C-contiguous", ValueError),
        ("text", r"str has no bytes in place.*torch\.uint8", TypeError),
        ([1], "list has no bytes in place", TypeError),
    ]:
        with pytest.raises(kind, match=told):
            drive.store_many([b"key"], [value])
        with pytest.raises(kind, match=told):
            drive[b"key"] = value
    assert b"key" not in drive


def test_values_go_into_buffers_of_the_caller(drive):
    drive.update({b"a": b"value", b"b": b"", b"large": random.Random(1).randbytes(3 * MIB)})
    rooms = [bytearray(b"-" * 8), bytearray(b"-"), bytearray(3 * MIB), bytearray(b"-")]
    assert drive.retrieve_many_into([b"a", b"b", b"large", b"none"], rooms) == [5, 0, 3 * MIB, None]
    assert (rooms[0], rooms[1], rooms[3]) == (b"value---", b"-", b"-") and rooms[2] == drive[b"large"]
    assert drive.retrieve_into(b"a", memoryview(rooms[0])[3:]) == 5 and rooms[0] == b"valvalue"
    with pytest.raises(KeyError):
        drive.retrieve_into(b"none", rooms[0])
    with pytest.raises(kv.SizeError, match="room for 4 bytes, and the value has 5") as small:
        drive.retrieve_many_into([b"b", b"a", b"large"], [bytearray(1), room := bytearray(4), large := bytearray(3 * MIB)])
    assert (small.value.index, small.value.key, room) == (1, b"a", bytes(4)) and large == drive[b"large"]
    with pytest.raises(TypeError, match="bytes is read-only"):
        drive.retrieve_into(b"a", b"     ")
    with pytest.raises(ValueError, match="1 keys and 0 buffers"):
        drive.retrieve_many_into([b"a"], [])


def test_a_list_goes_on_after_an_error_and_says_which_key_failed(drive):
    keys = [b"%03d" % number for number in range(200)]
    values = [b"v" * number for number in range(200)]
    drive.store_many(keys, values)
    for place in (7, 150):
        drive.inject("status", opcode="retrieve", status="88h", key=keys[place])
        drive.inject("status", opcode="store", status="81h", key=keys[place])
    found = drive.retrieve_many(keys, errors="return")
    rooms = [bytearray(200) for _ in keys]
    sizes = drive.retrieve_many_into(keys, rooms, errors="return")
    stored = drive.store_many([*keys, b""], [b"new"] * 201, errors="return")
    for results in (found, sizes, stored):
        failed = {place: one for place, one in enumerate(results) if isinstance(one, kv.DriveError)}
        assert failed.keys() == ({7, 150, 200} if results is stored else {7, 150})
        assert [(failed[place].index, failed[place].key) for place in (7, 150)] == [(7, keys[7]), (150, keys[150])]
    assert isinstance(stored[200], kv.SizeError) and stored[0] is None
    assert [one for place, one in enumerate(found) if place not in (7, 150)] == values[:7] + values[8:150] + values[151:]
    drive.clear_faults()
    assert drive.retrieve_many([keys[6], keys[7], keys[151]]) == [b"new", values[7], b"new"]
    drive.inject("status", opcode="retrieve", status="88h", key=keys[7])
    with pytest.raises(kv.DriveError) as error:
        drive.retrieve_many_into(keys, rooms)
    assert error.value.index == 7
    with pytest.raises(ValueError, match="allowed: 'raise', 'return'"):
        drive.exist_many(keys, errors="ignore")


def test_pairs_are_looked_for_and_removed_in_lists(drive):
    keys = [b"%03d" % number for number in range(300)]
    drive.store_many(keys[::2], [b""] * 150)
    assert drive.exist_many(keys) == [True, False] * 150
    assert drive.delete_many(keys[:100]) == [True, False] * 50
    assert drive.exist_many(keys) == [False] * 100 + [True, False] * 100
    drive.power_cut()
    with pytest.raises(kv.DriveOff):
        drive.exist_many(keys)


@pytest.mark.parametrize("engine", ["lsm", "plus", "hashlog"])
def test_keys_have_any_length(engine):
    names = [NAME, NAME + b"@salt", bytes(17), b"n" * 65_535, b"short"]
    with kv.open(engine=engine) as drive:
        drive.update({name: b"%d" % place for place, name in enumerate(names)})
        assert dict(drive.items()) == {name: b"%d" % place for place, name in enumerate(names)}
        assert drive.retrieve_many(names) == [drive[name] for name in names] == [b"0", b"1", b"2", b"3", b"4"]
        assert set(drive.keys()) == {b"short", *map(digest, names[:4])}
        drive.update({NAME: b"replaced"})
        drive[names[1]] = b"as well"
        room = bytearray(8)
        assert (drive.retrieve_into(NAME, room), room) == (8, b"replaced")
        assert (drive.retrieve_part(names[1], 3, 2), drive.size(names[1])) == (b"we", 7)
        assert drive.exist_many([*names, NAME + b"-"]) == [True] * 5 + [False]
        assert drive.delete_many([NAME, NAME + b"-"]) == [True, False]
        del drive[names[1]]
        drive.discard(names[1])
        assert NAME not in drive and drive.get(names[1]) is None
        for wrong in (b"", bytes(65_536)):
            with pytest.raises(kv.SizeError, match="65535"):
                drive[wrong] = b""


def test_a_pair_of_another_name_is_never_returned_replaced_or_removed(drive):
    """Whatever stands under the digest of a name: here a pair of the digest itself, and one of another name."""
    other = b"kvN1" + len(NAME).to_bytes(4, "little") + NAME[:-1] + b"!" + b"value"
    for there in (b"a value", other, b""):
        drive[digest(NAME)] = there
        calls = [
            lambda: drive[NAME],
            lambda: drive.__setitem__(NAME, b"mine"),
            lambda: drive.__delitem__(NAME),
            lambda: drive.discard(NAME),
            lambda: drive.retrieve_many([NAME]),
            lambda: drive.retrieve_into(NAME, bytearray(1000)),
            lambda: drive.store_many([NAME], [b"mine"]),
            lambda: drive.delete_many([NAME]),
            lambda: drive.retrieve_part(NAME, 0, 1),
        ]
        for call in calls:
            with pytest.raises(kv.DriveError, match="the pair there belongs to another name") as error:
                call()
            assert error.value.key == digest(NAME)
        assert drive[digest(NAME)] == there


def test_a_queue_says_by_its_descriptor_that_a_list_has_ended(drive):
    keys = [b"%d" % number for number in range(50)]
    with drive.queue() as queue:
        poll = select.poll()
        poll.register(queue.fileno(), select.POLLIN)
        assert poll.poll(0) == [] and queue.wait() == [] and queue.finished() == []
        rooms = [bytearray(8) for _ in keys]
        tasks = [queue.store(keys, keys), queue.exist([*keys, b"none"]), queue.retrieve(keys, rooms), queue.delete(keys[:2])]
        ended = {}
        while len(ended) < 4:
            assert poll.poll(20_000)
            ended.update(queue.finished())
        assert poll.poll(0) == [] and tasks == [0, 1, 2, 3]
        assert ended[0] == [None] * 50 and ended[1] == [True] * 50 + [False]
        assert ended[2] == [len(key) for key in keys] and all(room.startswith(key) for room, key in zip(rooms, keys, strict=True))
        assert ended[3] == [True, True] and b"0" not in drive
        queue.store(keys, keys)
        assert queue.drain(20) and len(queue.finished()) == 1
        drive.power_cut()
        queue.exist(keys[:3])
        ((_, results),) = queue.wait(20)
        assert [type(one) for one in results] == [kv.DriveOff] * 3
        queue.store([b"key"], [["no buffer"]])
        assert isinstance(queue.wait(20)[0].results[0], TypeError)
        queue.exist(keys)
    queue.close()
    with pytest.raises(kv.DriveError, match="queue: it is closed"):
        queue.exist(keys)


def test_a_drive_is_closed_while_threads_use_it():
    for _ in range(3):
        drive, stored, failures = kv.open(), [0] * 4, []

        def work(number, drive=drive, stored=stored, failures=failures):
            room = bytearray(2000)
            try:
                while True:
                    drive.store_many([b"%d-%d" % (number, key) for key in range(40)], [bytes(2000)] * 40)
                    drive.retrieve_into(b"%d-1" % number, room)
                    stored[number] += 1
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while not all(stored):
            time.sleep(0.001)
        closers = [threading.Thread(target=drive.close) for _ in range(2)]
        for thread in closers:
            thread.start()
        for thread in threads + closers:
            thread.join(60)
            assert not thread.is_alive()
        assert [type(error) for error in failures] == [kv.DriveOff] * 4


def test_several_drives_take_the_same_lists():
    with kv.open(["cosmos-plus"] * 3) as drives:
        names = [NAME + b"%d" % number for number in range(60)]
        assert drives.store_many(names, names, errors="return") == [None] * 60
        rooms = [bytearray(200) for _ in names]
        assert drives.retrieve_many_into(names, rooms) == [len(name) for name in names]
        assert all(room.startswith(name) for room, name in zip(rooms, names, strict=True))
        lost = drives.drives.index(drives.drive(names[0]))
        drives.drives[lost].power_cut()
        found = drives.exist_many(names, errors="return")
        is_lost = [drives.drive(name) is drives.drives[lost] for name in names]
        assert [one is True for one in found] == [not one for one in is_lost] and any(found) and any(is_lost)
        drives.drives[lost].power_on()
        assert drives.delete_many(names) == [True] * 60
