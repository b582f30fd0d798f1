"""Kills, stops and replaces workers and servers while trees work."""
import random, signal, subprocess, time

from bed import check, result, wait_until
from judge import judge, judge_asks, judge_limits

# The cost limit of some trees, in dollars: enough for a tree of which few calls are interrupted.
TIGHT = 0.012

# Makes the server pause what failed three times, unless a service says otherwise.
IMPATIENT = """[default-retry-policy]
initial-interval = "50ms"
max-interval = "100ms"
max-attempts = 3
"""

# Makes the server notice a worker that does not answer after 4 s instead of 60 s.
KEEP_ALIVE = """[worker.invoker]
http2-keep-alive-interval = "2s"
http2-keep-alive-timeout = "2s"
"""


def fresh(prefix):
    return f"{prefix}{random.getrandbits(40):x}"


def is_working(bed, names):
    return any(line.split(".")[0] in names for line in bed.lines("effects.log"))


class Trees:
    """Trees of depth 3, each fourth with a small limit."""

    def __init__(self, bed):
        self.bed, self.usual, self.tight = bed, {}, {}

    def start(self):
        name = fresh("k")
        is_tight = (len(self.usual) + len(self.tight)) % 4 == 3
        flags = ["--max-cost", str(TIGHT)] if is_tight else []
        (self.tight if is_tight else self.usual)[name] = self.bed.run("lead", f"do {name}", *flags)

    def in_progress(self):
        return sum(child.poll() is None for child in [*self.usual.values(), *self.tight.values()])

    def judge(self, what, is_zombie=False):
        usual = [result(child, 900) for child in self.usual.values()]
        tight = [result(child, 900) for child in self.tight.values()]
        judge(self.bed, usual, list(self.usual), what)
        if tight:
            judge(self.bed, tight, list(self.tight), what + ", small limits", may_exhaust=True)
            judge_limits(tight, TIGHT, what)
        judge_asks(self.bed, usual + tight, what, is_zombie)


def kills(bed, wanted, at_once):
    """Kills workers at random times while `at_once` trees are in progress. A replacement is there before the next kill."""
    trees, killed, began = Trees(bed), 0, time.monotonic()
    while killed < wanted:
        while trees.in_progress() < at_once:
            trees.start()
        time.sleep(random.uniform(0.2, 1.5))
        for number in random.sample(list(bed.workers), 2 if random.random() < 0.1 else 1):
            bed.kill_worker(number)
            killed += 1
        bed.start_workers(3 - len(bed.workers))
    count = len(trees.usual) + len(trees.tight)
    print(f"  {killed} kills in {time.monotonic() - began:.0f} s, {count} trees of 10 runs", flush=True)
    trees.judge(f"{killed} kills of workers")


def server_restart(bed):
    names = [fresh("s") for _ in range(3)]
    children = [bed.run("lead", f"do {name}") for name in names]
    wait_until(lambda: is_working(bed, names), "the trees work")
    bed.server.kill()
    bed.server.wait()
    bed.start_server()
    envelopes = [result(child, 300) for child in children]
    judge(bed, envelopes, names, "the server was killed and restarted")
    judge_asks(bed, envelopes, "the server was killed and restarted")


def stolen_claim(bed):
    """A worker that was stopped may claim a run that another one has by then, and die. The other one must not wait for ever."""
    name = fresh("c")
    child = bed.run("listener", f"do {name}")
    wait_until(lambda: is_working(bed, [name]), "the run works")
    tree = bed.query("SELECT target_service_key AS run FROM sys_invocation WHERE target_service_name = 'HomingRun' "
                     "AND target_handler_name = 'run' AND status = 'running'")[0]["run"]
    bed.ask_handler(f"HomingTree/{tree}/claim", tree)
    envelope = result(child, 60)
    check(envelope["status"] == "done" and bed.lines("effects.log").count(name) == 1,
          f"a run whose claim was taken by a worker that is gone ends ({envelope['status']})")


def no_workers(bed, pause):
    """Trees continue when workers come back, however often the server tried in vain. The server of the test gives up after three attempts,
    unless a service says otherwise."""
    names = [fresh("n") for _ in range(2)]
    children = [bed.run("lead", f"do {name}") for name in names]
    wait_until(lambda: is_working(bed, names), "the trees work")
    for number in list(bed.workers):
        bed.kill_worker(number)
    time.sleep(pause)
    bed.start_workers(3)
    envelopes = [result(child, 300) for child in children]
    judge(bed, envelopes, names, f"no worker for {pause} s")
    judge_asks(bed, envelopes, f"no worker for {pause} s")


def continued(bed):
    """Exhausted trees are given more budget, and all workers die while they take them: each gets it once, and ends."""
    trees = [bed.run("step", f"do {fresh('m')}", "--max-turns", "1") for _ in range(6)]
    trees = [result(child) for child in trees]
    resumed = [bed.start([bed.homing, "resume", "--json", "--max-turns", "4", tree["run"]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for tree in trees]
    for _ in range(2):
        time.sleep(random.uniform(0.2, 0.8))
        for number in list(bed.workers):
            bed.kill_worker(number)
        bed.start_workers(3)
    ends = [result(child) for child in resumed]
    raised = bed.records("extended", ends)
    statuses = [tree["status"] for tree in trees], [end["status"] for end in ends]
    check(statuses == (["exhausted"] * 6, ["done"] * 6) and len(raised) == 6,
          f"more budget for 6 trees while all workers die twice: {len(raised)} were raised ({statuses[1]})")
    judge_asks(bed, ends, "more budget while workers die")


def hang(bed, rounds):
    """Stops a worker, lets others take its runs over, and lets it continue: it must do nothing more with them."""
    for number in range(rounds):
        trees = Trees(bed)
        for _ in range(4):
            trees.start()
        wait_until(lambda: is_working(bed, [*trees.usual, *trees.tight]), "the trees work", 60)
        time.sleep(random.uniform(0, 1))
        worker = random.choice(list(bed.workers.values()))[0]
        began = time.monotonic()
        worker.send_signal(signal.SIGSTOP)
        # In every other round the worker continues before all of its runs are taken over.
        pause = 60 if number % 2 == 0 else random.uniform(3, 6)
        while trees.in_progress() and time.monotonic() - began < pause:
            time.sleep(0.1)
        took = time.monotonic() - began
        left = trees.in_progress()
        worker.send_signal(signal.SIGCONT)
        trees.judge(f"a worker hung for {took:.1f} s ({left} trees were left)", is_zombie=True)
        check(worker.poll() is None, "a worker that hung goes on")
    envelope = result(bed.run("lead", f"do {fresh('h')}"))
    check(envelope["status"] == "done", "workers that hung take new trees")


def versions(bed, other):
    """Replaces workers one by one by those of another version, in both directions, while trees work."""
    trees = Trees(bed)
    for binary in (other, None, other):
        for number in list(bed.workers):
            while trees.in_progress() < 3:
                trees.start()
            time.sleep(1)
            worker, _ = bed.workers.pop(number)
            bed.wait_for_worker(bed.start_worker(binary))
            worker.terminate()
            code = worker.wait(timeout=120)
            check(code == 0, f"a replaced worker drains ({code})")
    trees.judge("workers of two versions")
