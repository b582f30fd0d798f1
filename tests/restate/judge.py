"""Judges trees by what the provider and the commands logged themselves."""
import collections, json

from bed import check, every

INPUT, OUTPUT = 100, 10  # tokens of each reply, in provider.py
COST = INPUT * 1.0 + OUTPUT * 2.0  # of each reply, in millionths of a dollar


def judge(bed, envelopes, names, what, may_exhaust=False):
    """Judges trees of `lead`, which have ten runs and six commands each. Those with a small limit may be exhausted instead of done."""
    statuses = collections.Counter(envelope["status"] for envelope in envelopes)
    good = statuses["done"] + (statuses["exhausted"] if may_exhaust else 0)
    check(good == len(envelopes), f"{what}: {good} of {len(envelopes)} trees came to an end ({dict(statuses)})")
    for envelope in envelopes:
        if envelope["status"] not in ("done", "exhausted"):
            print(json.dumps(envelope)[:800])
    expected = {f"{name}.{i}.{j}" for name in names for i in range(3) for j in range(2)}
    effects = collections.Counter(line for line in bed.lines("effects.log") if line.split(".")[0] in set(names))
    twice = [line for line, count in effects.items() if count > 1]
    check(not twice, f"{what}: no command ran twice ({len(twice)} of {len(effects)})")
    if not may_exhaust:
        missing, unknown = len(expected - set(effects)), bed.unknown_outcomes(envelopes)
        check(set(effects) <= expected and missing <= unknown,
              f"{what}: every command ran, or its outcome is reported as unknown ({missing} did not run, {unknown} unknown)")
        runs = [run for envelope in envelopes for run in every(envelope)]
        check(len(runs) == len(envelopes) * 10, f"{what}: {len(runs)} runs, each once")
        lost = [(run["place"] if "place" in run else run["agent"], run["status"], run.get("error")) for run in runs if run["status"] != "done"]
        check(not lost, f"{what}: none of them is lost ({lost[:5]})")
    keys = ("input", "output", "cost_micros")
    exact = [sum(run["usage"][key] for run in every(e)) == e["subtree"][key] for e in envelopes for key in keys if "subtree" in e]
    check(all(exact), f"{what}: the sums are those of the runs")


def judge_asks(bed, envelopes, what, is_zombie=False):
    """No call is made once its reply is stored. A call in progress when its worker dies is made again; the provider may have
    answered it, but no worker had stored the answer. A worker that was stopped between recording a call and making it makes it when it
    continues; such a call was charged as interrupted."""
    stored, turns = {}, collections.Counter()
    for run, at, _ in bed.records("replied", envelopes):
        turns[run] += 1
        stored[f"{run}:{turns[run]}"] = at
    asks = bed.asks(envelopes)
    again = [ask for ask in asks if ask["began"] > stored.get(ask["key"], float("inf"))]
    twice = len(asks) - len({ask["key"] for ask in asks})
    interrupted = sum("the process died" in body for _, _, body in bed.records("ask_failed", envelopes))
    print(f"  {len(asks)} replies of the provider for {len(stored)} stored ones; {twice} were given a second time, because the worker died "
          f"before it stored the first ({interrupted} calls were interrupted)")
    if is_zombie:
        print(f"  {len(again)} calls were made by a worker that continued, after their reply was stored")
    else:
        check(not again, f"{what}: no call was made after its reply was stored ({len(again)})")
    check(twice <= interrupted, f"{what}: only interrupted calls were made again ({twice} of {interrupted})")
    lost = {ask["key"] for ask in asks} - set(stored)
    open_ends = {run["run"] for e in envelopes for run in every(e) if run["status"] != "done"}
    check(all(key.split(":")[0] in open_ends for key in lost), f"{what}: every answered call of a finished run has one stored reply")
    judge_budget(bed, envelopes, what)


def judge_budget(bed, envelopes, what):
    """What the provider was paid for is what the envelopes say at most, in each tree."""
    per_run = collections.Counter(ask["key"].split(":")[0] for ask in bed.asks(envelopes))
    over = []
    for envelope in envelopes:
        truth = sum(per_run[run["run"]] for run in every(envelope)) * COST
        told = envelope.get("subtree", {}).get("cost_micros", 0)
        if truth > told:
            over.append((envelope.get("run"), truth, told))
    check(not over, f"{what}: no tree cost more than its envelope says ({over})")


def judge_limits(envelopes, limit, what):
    """No tree spent more than its limit, in dollars."""
    spent = [envelope.get("subtree", {}).get("cost_micros", 0) / 1e6 for envelope in envelopes]
    check(all(amount <= limit for amount in spent), f"{what}: {len(spent)} trees with a limit of ${limit} spent at most ${max(spent, default=0)}")
