"""A tour: a drive, a power cut, a study, and a comparison. It takes seconds.

Run it with ``python examples/tour.py``.
"""

import kvdrive as kv

# A drive is a mapping of bytes to bytes. This one is in memory; media="file", path="d.img" keeps it.
with kv.open(profile="cosmos-plus") as drive:
    drive[b"user42"] = b"some value"
    keys = [b"item%06d" % number for number in range(5000)]
    drive.store_many(keys, [key * 10 for key in keys])
    assert drive.retrieve_many(keys) == [key * 10 for key in keys]
    print("keys with prefix item00000:", drive.count(prefix=b"item00000"))

    # Acknowledged pairs survive a power cut.
    drive.power_cut()
    try:
        drive[b"user42"]
    except kv.DriveOff as error:
        print("without power:", error)
    drive.power_on()
    print("after the power cut:", drive[b"user42"])

    # Numbers are listed under the part that counts them. Times of the modelled drive are not times of this machine.
    numbers = drive.numbers()
    print("counted: ", numbers["drive"]["commands"], "commands since power-on")
    print("modelled:", numbers["drive"]["recovery_ns"] / 1e6, "ms for the recovery")

# A study runs in model time: the same settings and seed give the same report, to the last digit.
report = kv.run(workload="w-m", ops=2000, transfer="adaptive", packing="backfill", seed=1)
print("99 % of the stores took at most", report.latency.store.p99 / 1000, "us (modelled)")

# Lists are combined. The table says of each column whether it is counted or modelled.
print(kv.compare(workload="w-m", ops=2000, transfer=["prp", "piggyback", "adaptive"], seed=1))
