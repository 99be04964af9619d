"""A queue of requests before a language model whose cache of prefixes is on a drive: time to first token, by drive and fill.

The simulator is SimPy (``pip install simpy``), the drive a stepped one: both clocks are the simulator's. A request reads the
blocks of its cached prefix, waits for the model, computes the rest of its prompt, and stores the new blocks. All times are
modelled; those of the model are 12 000 prompt tokens a second, one request at a time.

``python examples/serving.py`` takes some minutes.
"""

import random
import sys

import kvdrive as kv
import simpy

BLOCK_BYTES, BLOCK_TOKENS = 2 << 20, 16  # 128 KiB a token: Llama 3.1 8B.
TOKENS_PER_S = 12_000


class Disk:
    """A drive in a SimPy environment whose time is in ns."""

    def __init__(self, env, drive):
        self.env, self.drive, self.waiting, self.news = env, drive, {}, env.event()
        env.process(self.run())

    def submit(self, *command):
        """Submits a command; returns the event of its end, whose value is the status."""
        ended = self.env.event()
        self.waiting[self.drive.submit(max(self.env.now, self.drive.now_ns), *command)] = ended
        if not self.news.triggered:
            self.news.succeed()
        return ended

    def run(self):
        while True:
            if not self.waiting:
                self.news = self.env.event()
                yield self.news
            # Before the next event of the simulation no command can come, so the drive may go ahead to there.
            until = max(min(self.env.peek(), 1 << 62), self.env.now + 1)
            ended = self.drive.advance_to_next(until)
            yield self.env.timeout(self.drive.now_ns - self.env.now)
            for number, _, status in ended:
                self.waiting.pop(number).succeed(status)


def request(env, disk, model, draw, pairs, firsts):
    arrived, cached, new = env.now, draw.randrange(8, 33), draw.randrange(8, 17)
    blocks = [draw.randrange(pairs).to_bytes(8, "big") for _ in range(cached)]
    yield env.all_of([disk.submit("retrieve", block) for block in blocks])
    with model.request() as turn:
        yield turn
        yield env.timeout(new * BLOCK_TOKENS * 1_000_000_000 // TOKENS_PER_S)
    firsts.append(env.now - arrived)
    # The oldest blocks make room for the new ones.
    yield env.all_of([disk.submit("store", block, BLOCK_BYTES) for block in blocks[:new]])


def first_tokens(profile, fill, requests=40, per_s=20, seed=1):
    """Times to first token in ns, ascending."""
    drive = kv.stepped(profile, capacity="4GiB", depth=32)
    pairs, draw, firsts = drive.fill(fill, BLOCK_BYTES), random.Random(seed), []
    env = simpy.Environment()
    disk, model = Disk(env, drive), simpy.Resource(env)

    def arrivals():
        for _ in range(requests):
            env.process(request(env, disk, model, draw, pairs, firsts))
            yield env.timeout(int(draw.expovariate(per_s) * 1e9))

    env.process(arrivals())
    env.run()
    return sorted(firsts)


def main(fills=(0.1, 0.5, 0.9), profiles=("cosmos-plus", "pm983", "nvmevirt-970pro"), **load):
    print(f"{'drive':16} {'fill':>5} {'first token, ms: p50':>21} {'p99':>7}")
    for profile in profiles:
        for fill in fills:
            firsts = first_tokens(profile, fill, **load)
            p50, p99 = (firsts[int(len(firsts) * share)] / 1e6 for share in (0.5, 0.99))
            print(f"{profile:16} {fill:5.0%} {p50:21.1f} {p99:7.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
