"""Figures of trees here, on workers, and of the same work on Restate without Homing, in one run. The provider is the one of the
benchmarks, because one in Python would be slower than what is measured."""
import concurrent.futures, http.client, json, os, pathlib, re, statistics, subprocess, threading, time, urllib.request, uuid

from bed import ROOT, Bed, check, free_port, result, wait_until

ROUNDS = 3


def build(profile):
    """Builds the stub, the spike and Homing, and returns the folder of the binaries."""
    cargo = ["cargo", "build", "-q", "--profile", profile]
    subprocess.run([*cargo, "-p", "bench-stub"], cwd=ROOT, check=True)
    subprocess.run([*cargo, "-p", "homing-restate", "--example", "spike"], cwd=ROOT, check=True)
    subprocess.run([*cargo, "-p", "homing-cli"], cwd=ROOT, check=True)
    target = json.loads(subprocess.run(["cargo", "metadata", "--no-deps", "--format-version", "1"], cwd=ROOT,
                                       capture_output=True, check=True).stdout)["target_directory"]
    return pathlib.Path(target) / ("debug" if profile == "dev" else "release")


def measure(args):
    built = build(args.profile)
    os.environ["HOMING"] = str(built / "homing")
    bed = Bed(spread=args.spread, provider=[built / "bench-stub"])
    agents = bed.home / ".config" / "homing" / "agents"
    for name, tool, steps in (("worker", "glob", 2), *((f"lead{count}", "delegate", 0) for count in args.children)):
        children = name.removeprefix("lead") if name != "worker" else 0
        below = "\ndelegates: [glob]" if children else ""
        (agents / f"{name}.md").write_text(f"---\nname: {name}\ndescription: {name}\nmodel: test/m\ntools: [{tool}]{below}\n---\n"
                                           f"bench delay=50 steps={steps} children={children}\n")
    try:
        bed.start_workers(3)
        spike(bed, built)
        for count in args.children:
            compare(bed, count)
        many(bed, args.runs)
    finally:
        bed.close()


def spike(bed, built):
    """Starts three workers without Homing."""
    bed.spike_port = free_port()
    for _ in range(3):
        bed.start([built / "examples" / "spike", f"127.0.0.1:{bed.spike_port}", bed.provider])
    time.sleep(1)
    request = urllib.request.Request(bed.admin + "/deployments", json.dumps({"uri": f"http://127.0.0.1:{bed.spike_port}"}).encode(),
                                     {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=60).read()


def compare(bed, count):
    """The same tree here, on workers, and without Homing, in turns."""
    times = {"here": [], "on workers": [], "its tree": [], "spike": []}
    for number in range(ROUNDS):
        for place in ("here", "on workers", "spike"):
            before, began = Metrics(bed), time.monotonic()
            if place == "spike":
                done = bed.ask_handler(f"SpikeParent/{uuid.uuid4()}/run", count)
            else:
                flags = ["--parallel", "2000", "--max-children", "none", "--max-tool-calls", "none", "--max-turns", "none", "--max-cost", "1000"]
                envelope = result(bed.run(f"lead{count}", f"round {number}", *flags, on_restate=place == "on workers"), 600)
                done = sum(child["status"] == "done" for child in envelope["children"])
            times[place].append(time.monotonic() - began)
            if place == "on workers":
                times["its tree"].append(envelope["usage"]["wall_ms"] / 1000)
            if done != count:
                check(False, f"{count} children {place}: {done} done")
            if number == 0:
                print(f"figure: {count} children {place}: {Metrics(bed).since(before, count + 1)}", flush=True)
    middle = {place: statistics.median(values) for place, values in times.items()}
    text = ", ".join(f"{place} {middle[place]:.2f} s ({min(values):.2f}-{max(values):.2f})" for place, values in times.items())
    print(f"figure: {count} children x 3 calls of 50 ms: {text}")
    print(f"figure: {count} children: workers/spike {middle['on workers'] / middle['spike']:.2f}, its tree/spike "
          f"{middle['its tree'] / middle['spike']:.2f}, workers/here {middle['on workers'] / middle['here']:.2f}", flush=True)


class Metrics:
    """Counters of the server: requests to its ingress, bytes to and from workers, bytes of its log."""

    def __init__(self, bed):
        port = re.search(r'^bind-address = ".*:(\d+)"', bed.config.read_text(), re.M)[1]
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
        total = lambda pattern: sum(float(line.split()[-1]) for line in text.splitlines() if re.match(pattern, line))
        self.figures = {"requests": total(r'restate_ingress_requests_total\{.*status="completed"'),
                        "calls of handlers": total(r"restate_invoker_client_requests_total"),
                        "KB to and from workers": total(r"restate_invoker_(sent|received)_bytes_total") / 1024,
                        "KB of log": total(r"restate_bifrost_sequencer_committed_records_bytes_total") / 1024}

    def since(self, before, runs):
        rates = {name: (value - before.figures[name]) / runs for name, value in self.figures.items()}
        return "per run " + ", ".join(f"{rate:.1f} {name}" for name, rate in rates.items())


def memory(process):
    """Resident memory in MB."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024


def many(bed, runs):
    """Many trees of one run, submitted as fast as the server takes them: copies of one that was submitted by the command."""
    first = result(bed.run("worker", "one of many"))
    page = bed.ask_handler(f"HomingTree/{first['run']}/facts", 0)
    record, definitions = json.dumps(page["records"][0]), page["definitions"]
    is_sending, ids = threading.local(), [str(uuid.uuid4()) for _ in range(runs)]

    def submit(tree):
        group = {"segment": tree, "epoch": 1, "from": 0, "records": [json.loads(record.replace(first["run"], tree))], "steps": 1, "is_over": False}
        body = json.dumps({"tree": tree, "definitions": definitions, "task": tree, "first": {"groups": [group]}})
        if not hasattr(is_sending, "connection"):
            is_sending.connection = http.client.HTTPConnection("127.0.0.1", bed.ingress_port, timeout=300)
        is_sending.connection.request("POST", f"/HomingTree/{tree}/begin", body, {"content-type": "application/json"})
        reply = is_sending.connection.getresponse()
        reply.read()
        assert reply.status < 300, reply.status

    count = lambda: bed.query("SELECT count(*) AS n FROM state WHERE service_name = 'HomingTree' AND key = 'meta' "
                              "AND value_utf8 LIKE '%\"is_over\":true%'")[0]["n"]
    before, ended, size, began = Metrics(bed), count(), folder_size(bed), time.monotonic()
    workers = [worker for worker, _ in bed.workers.values()]
    at_first = [memory(worker) for worker in workers], memory(bed.server)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(submit, ids))
    submitted = time.monotonic() - began
    wait_until(lambda: time.sleep(1) or count() >= ended + runs, f"{runs} runs end", 1800)
    took = time.monotonic() - began
    print(f"figure: {runs} trees of one run: submitted in {submitted:.0f} s, ended after {took:.0f} s: {runs / took:.0f} runs/s, "
          f"{runs / took / 3:.0f} per worker")
    print(f"figure: {runs} trees: {Metrics(bed).since(before, runs)}; the server's folder grew by {(folder_size(bed) - size) / runs / 1024:.1f} KB per run")
    print(f"figure: {runs} trees: memory of the workers {at_first[0]} MB before, {[memory(worker) for worker in workers]} MB after; "
          f"of the server {at_first[1]} and {memory(bed.server)} MB", flush=True)


def folder_size(bed):
    return sum(file.stat().st_size for file in (bed.work / "data-n1").rglob("*") if file.is_file())
