"""Drives inside a simulator."""

import importlib.util
import pathlib
import pickle
import threading

import kvdrive as kv
import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def key(number):
    return number.to_bytes(8, "big")


@pytest.fixture
def drive():
    drive = kv.stepped("pm983", capacity="1GiB", depth=8)
    drive.fill(0.1, 4096)
    return drive


def test_commands_end_at_times_of_the_model(drive):
    assert (drive.now_ns, drive.next_event_ns, drive.under_way) == (0, None, 0)
    assert drive.submit(1000, "store", b"sized", 8192) == 0
    assert drive.submit(1000, "store", b"bytes", memoryview(b"some value")) == 1
    assert drive.next_event_ns == 1000
    assert drive.advance(500) == [] and drive.now_ns == 500 and drive.under_way == 2
    ended = drive.advance(10_000_000)
    assert sorted(number for number, _, _ in ended) == [0, 1] and all(status == 0 for _, _, status in ended)
    for op in ("retrieve", "exist", "delete", "exist"):
        drive.submit(drive.now_ns, op, b"bytes", keep=op == "retrieve")
        [(number, ended_at_ns, status)] = drive.advance_to_next(drive.now_ns + 10_000_000)
        assert ended_at_ns == drive.now_ns
        assert drive.take(number) == (b"some value" if op == "retrieve" else None)
        assert drive.take(number) is None
    assert status == 0x87
    assert drive.numbers()["drive"]["commands"] >= 6
    assert drive.namespace()["used_bytes"] > 80_000_000


def test_lists_are_the_same_as_single_calls(drive):
    numpy = pytest.importorskip("numpy")
    times, sizes = [n * 700 for n in range(300)], [100 + n for n in range(300)]
    keys = [key(n % 50) for n in range(300)]

    def ended(submit):
        image = drive.image()
        other = kv.stepped("pm983", capacity="1GiB", depth=8, image=image)
        submit(other)
        return other.advance(1_000_000_000)

    def single(other):
        for at, name, size in zip(times, keys, sizes, strict=True):
            other.submit(at, "store", name, size)
        for name in keys:
            other.submit(500_000, "retrieve", name)

    def listed(other):
        assert other.submit_many(times, "store", keys, sizes) == range(300)
        assert other.submit_many(500_000, "retrieve", keys) == range(300, 600)

    def arrays(other):
        rows = numpy.frombuffer(b"".join(keys), numpy.uint8).reshape(300, 8)
        other.submit_many(numpy.array(times), "store", rows, numpy.array(sizes))
        other.submit_many(numpy.int64(500_000), "retrieve", (b"".join(keys), range(0, 2401, 8)))

    def values(other):
        other.submit_many(times, "store", keys, [b"x" * size for size in sizes])
        other.submit_many(500_000, "retrieve", keys)

    expected = ended(single)
    assert len(expected) == 600
    assert ended(listed) == ended(arrays) == ended(values) == expected


def test_what_cannot_be_is_refused_and_changes_nothing(drive):
    drive.advance(1000)
    for wrong in (
        lambda: drive.submit(999, "exist", b"k"),
        lambda: drive.advance(999),
        lambda: drive.submit(2000, "store", b"", 3),
        lambda: drive.submit(2000, "store", b"k", 1 << 40),
        lambda: drive.load([b"k", b""], 8),
        lambda: drive.fill(1.5, 4096),
        lambda: drive.inject("no-such-fault"),
        lambda: drive.clear_faults("none"),
    ):
        with pytest.raises(kv.DriveError):
            wrong()
    for wrong in (
        lambda: drive.submit(2000, "stores", b"k", 3),
        lambda: drive.submit(2000, "store", b"k"),
        lambda: drive.submit(2000, "delete", b"k", 3),
        lambda: drive.submit(2000, "delete", b"k", keep=True),
        lambda: drive.submit_many([1, 2], "exist", [b"k"]),
        lambda: drive.submit_many(2000, "store", [b"k"], [1, 2]),
    ):
        with pytest.raises(ValueError):
            wrong()
    assert (drive.under_way, drive.now_ns) == (0, 1000)
    with pytest.raises(kv.SizeError) as refused:
        drive.submit_many(2000, "exist", [b"a", b"b", b""])
    assert (refused.value.index, drive.under_way) == (2, 2)
    with pytest.raises(kv.ConfigurationError) as refused:
        kv.stepped("pm983", media="file", path="d.img")
    assert refused.value.setting == "media.kind"
    with pytest.raises(kv.ConfigurationError):
        kv.stepped("pm983", workload="fillseq")


def test_an_image_is_opened_many_times(drive, tmp_path):
    image = drive.image()
    image.save(tmp_path / "some.image")
    again = [image, image.to_bytes(), tmp_path / "some.image", str(tmp_path / "some.image"), pickle.loads(pickle.dumps(image))]
    ends = []
    for one in again:
        other = kv.stepped("pm983", capacity="1GiB", depth=8, image=one)
        other.submit_many(0, "retrieve", [key(n) for n in range(20)])
        ends.append(other.advance(10_000_000))
    assert len(ends[0]) == 20 and all(one == ends[0] for one in ends)
    for wrong in ({"capacity": "2GiB"}, {"capacity": "1GiB", "engine": "plus"}):
        with pytest.raises(kv.DriveError):
            kv.stepped("cosmos-plus", image=image, **wrong)
    with pytest.raises(kv.DriveError, match="is no image of a stepped drive"):
        kv.stepped("pm983", image=b"nothing")
    with pytest.raises(kv.DriveError, match="none.image"):
        kv.Image.read(tmp_path / "none.image")


def test_a_drive_fails_on_command(drive):
    drive.inject("read-error", key=key(3))
    drive.submit_many(0, "retrieve", [key(n) for n in range(6)])
    assert {number: status for number, _, status in drive.advance(10_000_000)} == {0: 0, 1: 0, 2: 0, 3: 0x88, 4: 0, 5: 0}
    drive.clear_faults()
    drive.inject("power-cut", at="command", opcode="store", nth=2)
    drive.submit_many(drive.now_ns, "store", [b"a", b"b", b"c"], 100)
    assert len(drive.advance(20_000_000)) < 3
    with pytest.raises(kv.DriveOff):
        drive.advance(30_000_000)
    assert kv.stepped("pm983", capacity="1GiB", depth=8, image=drive.image()).advance(5) == []


def test_another_thread_is_refused(drive):
    problems = []

    def work():
        for call in (lambda: drive.advance(5), lambda: drive.submit(5, "exist", b"k"), drive.image, drive.numbers):
            try:
                call()
            except kv.DriveError as error:
                problems.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(problems) == 4 and "belongs to the thread that made it" in problems[0]
    assert drive.advance(5) == []


def test_a_simulator_of_serving_sees_drive_and_fill():
    pytest.importorskip("simpy")
    spec = importlib.util.spec_from_file_location("serving", EXAMPLES / "serving.py")
    serving = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(serving)
    load = {"requests": 6, "per_s": 20}
    slow, fast = (serving.first_tokens(profile, 0.1, **load) for profile in ("cosmos-plus", "nvmevirt-970pro"))
    assert len(slow) == len(fast) == 6
    assert fast[3] < slow[3], "the slower drive gives the later token"
    assert serving.first_tokens("nvmevirt-970pro", 0.1, **load) == fast
