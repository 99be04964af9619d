"""A drive that `kvdrive serve` has, through the same class."""

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import kvdrive as kv
import pytest
from test_calls import CHILD

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def served(tmp_path):
    """Starts drives, and returns their addresses. Any build of the command will do."""
    built = [ROOT / "target" / profile / "kvdrive" for profile in ("debug", "release")]
    command = os.environ.get("KVDRIVE") or next((path for path in built if path.exists()), None)
    if command is None:
        pytest.skip("no command in target: cargo build; or set KVDRIVE")
    programs = []

    def serve(*more):
        folder = tmp_path / str(len(programs))
        folder.mkdir()
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        arguments = [command, "serve", "--listen", "tcp://127.0.0.1:0", "--pace", "off", *more]
        program = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)
        programs.append(program)
        words = []
        while "ready" not in words[-1:]:
            line = program.stdout.readline()
            assert line, "it ended"
            words += line.split()
        return words[words.index("listening") + 1]

    serve.programs = programs
    yield serve
    for program in programs:
        program.kill()
        program.wait()
        program.stdout.close()


def test_a_drive_on_a_network_is_a_mapping_too(served):
    at = served()
    oracle = {b"key%03d" % number: bytes([number]) * 50 * number for number in range(200)}
    with kv.open(at) as drive:
        drive.update(oracle)
        drive[b"large"] = oracle[b"large"] = b"x" * 300_000
        del drive[b"key007"], oracle[b"key007"]
        assert b"key007" not in drive and drive.get(b"key007") is None
        assert drive.retrieve_many([*oracle, b"none"]) == [*oracle.values(), None]
        assert dict(drive.items()) == oracle
        assert sorted(drive.keys(b"key01")) == [b"key%03d" % number for number in range(10, 20)]
        threads = [
            threading.Thread(target=lambda n=n: [drive.__setitem__(b"%d-%d" % (n, m), b"v") for m in range(50)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(drive.count(b"%d-" % number) for number in range(4)) == 200
        assert drive.retrieve_part(b"large", 299_990, 100) == b"x" * 10 and drive.size(b"large") == 300_000
        room = drive.namespace()
        # A command of an earlier revision does not say that its keys are in order.
        assert room["used_bytes"] > 300_000 and drive.is_ordered == room["is_ordered"] == room["delete_says"]
        with pytest.raises(KeyError):
            del drive[b"key007"]
        for call in (drive.numbers, drive.power_cut, lambda: drive.inject("read-error"), drive.write_failure):
            with pytest.raises(kv.DriveError, match="kvdrive ctl"):
                call()
        assert drive[b"large"] == oracle[b"large"]
        assert drive.close()["lasting"] == "elsewhere"
        with pytest.raises(kv.DriveOff):
            drive[b"large"]
    with kv.open(at) as drive:
        assert drive[b"large"] == oracle[b"large"]


def test_a_drive_of_blocks_is_refused_and_what_to_do_is_said(served):
    at = served("--engine", "block")
    with pytest.raises(kv.DriveError, match="it has blocks, in which a store on the host keeps pairs"):
        kv.open(at)


def test_saker_stands_in_front_of_a_drive_on_a_network(served):
    at = served()
    with kv.open(at) as drive:
        saker = drive.saker(batch=16, cache_bytes="64KiB")
        keys = [b"%d" % number for number in range(300)]

        def work(number):
            saker.store_many(keys[number::3], keys[number::3])
            saker.sync()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert drive.retrieve_many(keys) == keys and 300 / 16 <= saker.numbers()["batches"] < 60
        saker[b"1"] = b"pending"
        assert (saker.unsynced(), saker[b"1"], drive[b"1"]) == (1, b"pending", b"1")
        saker.close()
        assert drive[b"1"] == b"pending"
        with pytest.raises(kv.ConfigurationError, match="container_bytes"):
            drive.saker(container_bytes="1GiB")
    with kv.open(at) as drive:
        assert drive[b"1"] == b"pending" and drive.count() == 300


def test_awaited_calls_leave_the_loop_to_others_while_the_network_is_silent(served):
    async def ticks(span):
        """How often the loop comes round meanwhile."""
        end, number = asyncio.get_running_loop().time() + span, 0
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.005)
            number += 1
        return number

    async def work(at):
        async with await kv.open_async(at) as drive, await drive.saker(batch=8) as saker:
            await drive.store(b"key", b"value")
            for number in range(4):
                await saker.store(b"%d" % number, b"small")
            program = served.programs[0]
            program.send_signal(signal.SIGSTOP)
            try:
                calls = [
                    asyncio.ensure_future(call)
                    for call in (
                        drive.get(b"key"),
                        drive.exist(b"none"),
                        drive.store_many([b"a", b"b"], [b"1", b"2"]),
                        drive.retrieve_many([b"key", b"none"]),
                        anext(drive.items(b"key")),
                        saker.sync(),
                    )
                ]
                assert await ticks(0.5) >= 20 and not any(call.done() for call in calls)
            finally:
                program.send_signal(signal.SIGCONT)
            answers = await asyncio.gather(*calls)
            assert answers == [b"value", False, None, [b"value", None], (b"key", b"value"), None]
            assert await drive.get(b"3") == b"small" and await saker.exist(b"3")

    asyncio.run(asyncio.wait_for(work(served()), 60))


@pytest.mark.skipif(sys.platform != "linux", reason="a device of Linux")
def test_a_device_of_linux_is_a_drive_too(command):
    program = """if True:
        import kvdrive as kv
        with kv.open("/dev/ng0n1") as drive:
            drive.update({b"a": b"1", b"long": b"x" * 100_000})
            with drive.saker(batch=8) as saker:
                saker.update({b"%d" % number: b"small" for number in range(20)})
            print(drive[b"a"], drive.size(b"long"), drive.count(), sorted(drive.keys(b"1"))[:2])
        with kv.open(["/dev/ng0n1", "/dev/ng1n1"]) as drives:
            drives[b"spread"] = b"value"
            print(drives[b"spread"], drives.names)
        for at in ("/dev/ng7n1", "/dev/null"):
            try:
                kv.open(at)
            except kv.DriveError as error:
                print(error)
    """
    nodes = [f"--node=/dev/ng{number}n1=kvdrive:cosmos-plus" for number in range(2)]
    run = [command, "ng", "--by", "seccomp", *nodes, "--", sys.executable, "-c", program]
    said = subprocess.run(run, capture_output=True, text=True, timeout=120)
    lines = said.stdout.splitlines()
    assert lines[:2] == [
        "b'1' 100000 22 [b'1', b'10']",
        "b'value' ('/dev/ng0n1', '/dev/ng1n1')",
    ], said.stderr
    assert lines[2].startswith("/dev/ng7n1: no such device; `ls /dev/ng*`")
    assert lines[3].startswith("/dev/null: it is no device of an NVMe namespace")


def test_keys_are_spread_over_drives_on_a_network(served, command):
    at = [served() for _ in range(3)]
    oracle = {b"key%d" % number: b"value" for number in range(300)}
    with kv.open(at) as drives:
        drives.update(oracle)
        assert dict(drives.items()) == oracle
    # Their order does not matter.
    with kv.open(at[::-1]) as drives:
        assert drives.retrieve_many(list(oracle)) == [b"value"] * 300
        assert all(drive.count() > 60 for drive in drives.drives)
        before = drives.count()
    run = [command, "run", "--connect", ",".join(at), "--workload", "fillseq", "--ops", "500", "--json", "-"]
    report = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    with kv.open(at) as drives:
        assert drives.count() - before == 500 == sum(target["share"]["stores"] for target in report["targets"])
        for drive in drives.drives:
            assert all(drives.drive(key) is drive for key in drive.keys()), "the command spreads keys alike"
    with pytest.raises(kv.ConfigurationError, match="named twice"):
        kv.open([at[0], at[0]])


def test_a_drive_that_is_lost_takes_its_keys_alone(served):
    at = [served() for _ in range(2)]
    keys = [b"key%d" % number for number in range(100)]
    with kv.open(at) as drives:
        drives.store_many(keys, keys)
        gone = drives.drive(keys[0])
        served.programs[drives.drives.index(gone)].kill()
        served.programs[drives.drives.index(gone)].wait()
        left = [key for key in keys if drives.drive(key) is not gone]
        with pytest.raises(kv.DriveError) as error:
            drives.store_many(keys, [b"new"] * 100)
        assert error.value.__notes__ == [f"drive {at[drives.drives.index(gone)]}"]
        with pytest.raises(kv.DriveError):
            drives[keys[0]]
        assert drives.retrieve_many(left) == [b"new"] * len(left)
        with pytest.raises(kv.DriveError, match="closed the connection"):
            drives.close()
        with pytest.raises(kv.DriveOff):
            drives[left[0]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_does_not_use_the_connection_of_its_parent(served):
    out = subprocess.run([sys.executable, "-c", CHILD.format(at=repr(served()))], capture_output=True, text=True, timeout=60)
    assert (out.stdout, out.stderr) == ("7 b'value' 0\n", "")


def test_what_cannot_be_reached_is_told_in_one_line():
    for at, settings, line in [
        ("tcp://", {}, "allowed: tcp://HOST:PORT"),
        ("tcp://127.0.0.1:1", {}, "tcp://127.0.0.1:1: "),
        ("tcp://127.0.0.1:1", {"depth": 4}, "depth: the drive at tcp://127.0.0.1:1 is configured by its server"),
    ]:
        with pytest.raises(kv.DriveError, match=line) as error:
            kv.open(at, **settings)
        assert "\n" not in str(error.value)
