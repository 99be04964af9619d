"""Drives against a dictionary, and their errors."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import kvdrive as kv
import pytest


@pytest.fixture
def drive():
    with kv.open(profile="cosmos-plus") as drive:
        yield drive


def test_a_drive_with_threads_holds_what_a_dictionary_holds(drive):
    """Each thread has keys of its own, and checks every answer against a dictionary of its own."""
    oracles, failures = [{} for _ in range(4)], []

    def work(thread):
        draw, oracle = random.Random(thread), oracles[thread]
        keys = [b"%d-%03d" % (thread, number) for number in range(100)]
        try:
            for _ in range(1500):
                key, call = draw.choice(keys), draw.randrange(6)
                if call == 0:
                    drive[key] = oracle[key] = draw.randbytes(draw.randrange(5000))
                elif call == 1:
                    some = draw.choices(keys, k=20)
                    values = [draw.randbytes(draw.randrange(300)) for _ in some]
                    drive.store_many(some, values)
                    oracle.update(zip(some, values))
                elif call == 2 and key in oracle:
                    del drive[key], oracle[key]
                elif call == 3:
                    assert drive.get(key) == oracle.get(key)
                elif call == 4:
                    some = draw.choices(keys, k=20)
                    assert drive.retrieve_many(some) == [oracle.get(key) for key in some]
                else:
                    assert (key in drive) == (key in oracle)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    everything = {key: value for oracle in oracles for key, value in oracle.items()}
    assert list(drive.items()) == sorted(everything.items())
    assert list(drive) == list(drive.keys()) == sorted(everything)
    assert list(drive.items(b"2-")) == sorted(oracles[2].items())
    assert drive.count() == len(everything)
    drive.power_cut()
    drive.power_on()
    assert list(drive.items()) == sorted(everything.items())


def test_a_key_that_is_not_there_is_a_key_error(drive):
    for call in (drive.__getitem__, drive.__delitem__):
        with pytest.raises(KeyError) as error:
            call(b"none")
        assert error.value.args == (b"none",)
    drive.discard(b"none")
    assert drive.get(b"none") is None and drive.get(b"none", b"else") == b"else"


def test_a_drive_has_the_methods_that_a_mapping_has(drive):
    drive[b"a"] = b"1"
    assert (drive.pop(b"a"), drive.pop(b"a", None), b"a" in drive) == (b"1", None, False)
    with pytest.raises(KeyError):
        drive.pop(b"a")
    assert (drive.setdefault(b"b", b""), drive.setdefault(b"b", b"2"), drive[b"b"]) == (b"", b"", b"")
    drive[b"b"] = bytes(500)
    assert repr(drive).startswith("<Drive with 500 of ") and repr(drive).endswith(" bytes of values>")
    drive.close()
    assert repr(drive).startswith("<Drive: ")


def test_the_package_says_its_version_and_what_was_meant():
    assert kv.__version__.count(".") >= 2
    for name, meant in [("transfr", "transfer"), ("chanels", "channels"), ("flash.chanels", "flash.channels")]:
        with pytest.raises(kv.ConfigurationError, match=f"did you mean {meant}"):
            kv.open(**{name: 8})


def test_of_a_key_that_is_stored_twice_in_a_list_the_last_value_stays(drive):
    drive.store_many([b"key"] * 50, [b"%d" % number for number in range(50)])
    assert drive[b"key"] == b"49"


def test_a_hash_engine_finds_prefixes_though_it_has_no_order():
    with kv.open(engine="plus", media="ram", **{"hash.dram_bytes": "16MiB"}) as drive:
        drive.store_many([b"%04d" % number for number in range(500)], [b"value"] * 500)
        assert sorted(drive.keys(b"012")) == [b"012%d" % number for number in range(10)]


def test_iterators_that_are_left_early_are_given_back(drive):
    drive.store_many([b"a", b"b"], [b"1", b"2"])
    for _ in range(200):
        assert next(iter(drive)) == b"a"


def test_a_wrong_size_is_told_with_the_place_in_the_list_and_the_drive_goes_on(drive):
    for key in (b"", b"x" * 65_536):
        with pytest.raises(kv.SizeError, match="1 to 65535 bytes"):
            drive[key]
        with pytest.raises(ValueError):
            drive[key] = b"value"
    with pytest.raises(kv.SizeError) as error:
        drive.store_many([b"a", b"b", b""], [b"1"] * 3)
    assert error.value.index == 2
    assert drive.retrieve_many([b"a", b"b"]) == [b"1", b"1"]
    with pytest.raises(ValueError, match="1 keys and 2 values"):
        drive.store_many([b"a"], [b"1", b"2"])
    with pytest.raises(TypeError):
        drive["text"]


def test_an_answer_of_the_drive_has_number_and_name(drive):
    drive.store_many([b"key", b"other"], [b"value"] * 2)
    names = drive.inject('[[rule]]\nfault = "status"\nopcode = "retrieve"\nstatus = "88h"\n')
    with pytest.raises(kv.DriveError) as error:
        drive[b"key"]
    assert (error.value.status, error.value.name, error.value.index) == (0x88, "unrecovered error", None)
    with pytest.raises(kv.DriveError) as error:
        drive.retrieve_many([b"key", b"other"])
    assert (error.value.status, error.value.index) == (0x88, 0)
    drive.clear_faults(names[0])
    assert drive[b"key"] == b"value"
    with pytest.raises(kv.DriveError, match=names[0]):
        drive.clear_faults(names[0])


def test_a_drive_without_power_says_so_and_keeps_what_was_acknowledged(drive):
    drive[b"key"] = b"value"
    pairs = drive.items()
    drive.power_cut()
    assert not drive.has_power
    for call in (lambda: drive[b"key"], lambda: drive.retrieve_many([b"key"]), drive.numbers,
                 drive.power_cut, lambda: list(pairs), lambda: list(drive)):
        with pytest.raises(kv.DriveOff, match="the drive is off"):
            call()
    drive.power_on()
    assert drive[b"key"] == b"value"
    with pytest.raises(kv.DriveError, match="has power"):
        drive.power_on()


def test_power_may_be_cut_while_other_threads_store(drive):
    acknowledged = [[] for _ in range(3)]

    def work(thread):
        try:
            for number in range(10**9):
                key = b"%d-%08d" % (thread, number)
                drive[key] = key
                acknowledged[thread].append(key)
        except kv.DriveOff:
            return

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()
    while not all(acknowledged):
        time.sleep(0.01)
    drive.power_cut(torn=True)
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    drive.power_on()
    for keys in acknowledged:
        assert drive.retrieve_many(keys) == keys


def test_a_drive_on_a_file_is_there_again(tmp_path):
    image = tmp_path / "d.img"
    with kv.open(media="file", path=image) as drive:
        drive[b"key"] = b"value"
        assert drive.close()["lasting"] == "program"
    with kv.open(media="file", path=image) as drive:
        assert dict(drive.items()) == {b"key": b"value"}
        with pytest.raises(kv.DriveError):
            kv.open(media="file", path=image)


def test_a_setting_that_cannot_be_is_refused_in_one_line():
    for settings, line in [
        ({"transfer": "post"}, "host.transfer"),
        ({"tranfer": "prp"}, "tranfer: no such option"),
        ({"policy": "all", "name": "lsm"}, "several keys end in it"),
        ({"path": "d.img"}, 'media.path: "d.img"; medium tags has no file'),
        ({"media": "ram", "sync": True}, "media.sync: true; medium ram has no file"),
        ({"profile": "none"}, "none"),
        ({"pace": "fast"}, "pace"),
        ({"workload": "w-m"}, "workload: the program itself is host and work"),
        ({"saker": True}, "saker: the program itself is host and work"),
        ({"verify": "off"}, "verify: it is True or False"),
        ({"config": "none.toml"}, "none.toml: "),
        ({"path": ["a", "b"]}, "path: it takes one value, and no list"),
        ({"transfer": ["prp", "sgl"]}, "sgl"),
        ({"depth": []}, "depth: the list is empty"),
    ]:
        with pytest.raises(kv.ConfigurationError, match=line) as error:
            kv.open(**settings)
        assert "\n" not in str(error.value)
    with pytest.raises(TypeError, match="a setting is a number"):
        kv.open(transfer=print)


def test_a_file_of_keys_is_laid_over_the_profile(tmp_path):
    keys = tmp_path / "drive.toml"
    keys.write_text('engine.name = "plus2"\n')
    with kv.open(config=keys, **{"hash.dram_bytes": "16MiB"}) as drive:
        drive[b"key"] = b"value"
        assert drive.close()["report"]["config"]["engine"]["name"] == "plus2"


def test_other_threads_run_while_a_call_waits():
    """At the pace of the model a list of stores takes long; a counter of Python continues meanwhile."""
    with kv.open(profile="cosmos-plus", pace="model", depth=1) as drive:
        storing = threading.Thread(target=drive.store_many, args=([b"%d" % n for n in range(2000)], [b"x"] * 2000))
        storing.start()
        counted = 0
        while storing.is_alive():
            counted += 1
        storing.join()
        assert counted > 1000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_hears_that_the_drive_is_its_parents(drive):
    drive[b"key"] = b"value"
    pairs, into, out = drive.items(), *os.pipe()[::-1]
    child = os.fork()
    if child == 0:
        told = 0
        for call in (lambda: drive[b"key"], lambda: drive.store_many([b"k"], [b"v"]), lambda: next(pairs), drive.close):
            try:
                call()
            except kv.DriveError as error:
                told += "parent" in str(error)
        os.write(into, b"%d" % told)
        os._exit(0)
    assert os.read(out, 1) == b"4"
    os.waitpid(child, 0)
    assert drive[b"key"] == b"value"


@pytest.mark.parametrize(
    "call",
    [
        "kv.run(workload='fillrandom', ops=10**9)",
        "d = kv.open(); keys = [b'%d' % n for n in range(1000)] * 2\nwhile True: d.store_many(keys, keys)",
        "d = kv.open(); keys = [b'%d' % n for n in range(3 * 10**6)]\nd.retrieve_many(keys)",
    ],
)
def test_ctrl_c_ends_a_call(call):
    # A program that was started in the background ignores the signal, and so would its child.
    program = "import signal, kvdrive as kv\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += f"print('ready', flush=True)\ntry:\n{textwrap.indent(call, '    ')}\n"
    program += "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(1.5)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (out, child.returncode) == ("interrupted\n", 0)
