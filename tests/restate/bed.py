"""A test bed: a Restate server, a provider and workers of Homing, and what their own logs say."""
import json, os, pathlib, shutil, socket, sqlite3, subprocess, sys, tempfile, time, urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
failures = []


def check(ok, what):
    print(("passed: " if ok else "FAILED: ") + what, flush=True)
    if not ok:
        failures.append(what)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(0)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition, what, limit=30):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise SystemExit(f"FAILED: {what} (waited {limit} s)")


def homing_binary():
    """The absolute path of the binary under test, because commands run in other folders: HOMING, or a debug build of this tree."""
    if "HOMING" not in os.environ:
        subprocess.run(["cargo", "build", "-q", "-p", "homing-cli"], cwd=ROOT, check=True)
        target = json.loads(subprocess.run(["cargo", "metadata", "--no-deps", "--format-version", "1"], cwd=ROOT,
                                           capture_output=True, check=True).stdout)["target_directory"]
        os.environ["HOMING"] = target + "/debug/homing"
    return os.path.abspath(os.environ["HOMING"])


def server_binary():
    home = pathlib.Path(os.environ.get("RESTATE_HOME", tempfile.gettempdir() + "/homing-restate"))
    found = lambda: next(iter(home.glob("node_modules/@restatedev/restate-server-*/bin/restate-server")), None)
    if not found():
        if not shutil.which("npm"):
            skip("npm is not installed, so the Restate server cannot be")
        home.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["npm", "install", "--ignore-scripts", "@restatedev/restate-server"], cwd=home,
                              capture_output=True, text=True, timeout=300)
        if done.returncode or not found():
            skip("the Restate server cannot be installed: " + done.stderr.strip()[-200:])
    return found()


class Bed:
    """A server, a provider and workers, in a folder of their own. `settings` are lines of the server's configuration."""
    host = "127.0.0.1"

    def __init__(self, delay=0.2, spread="always", settings="", drain="20s", provider=None):
        self.spread, self.drain = spread, drain
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="homing-restate-"))
        self.folder = self.work / "project"
        self.folder.mkdir()
        self.home = self.work / "home"
        self.journal = self.home / "data" / "homing" / "journal.db"
        agents = self.home / ".config" / "homing" / "agents"
        agents.mkdir(parents=True)
        tools = {"lead": "delegate", "mid": "delegate", "leaf": "bash", "fan": "delegate", "step": "glob", "asker": "ask",
                 "listener": "bash", "host": "delegate", "flaky": "glob", "slow": "glob"}
        for name, tool in tools.items():
            below = "\ndelegates: [delegate, bash, glob, ask]" if tool == "delegate" else ""
            (agents / f"{name}.md").write_text(
                f"---\nname: {name}\ndescription: {name}\nmodel: test/m\ntools: [{tool}]{below}\n---\nROLE={name}\n")
        self.children, self.workers, self.count = [], {}, 0
        self.env = {**os.environ, "HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / ".config"),
                    "XDG_DATA_HOME": str(self.home / "data"), "TEST_API_KEY": "k", "NO_COLOR": "1"}
        self.homing = homing_binary()
        started = [sys.executable, HERE / "provider.py", self.work / "asks.log", delay, self.host]
        self.provider = self.start(provider or started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True).stdout.readline().strip()
        (self.home / ".config" / "homing" / "config.toml").write_text(
            f'model = "test/m"\n[providers.test]\nwire = "chat"\nbase_url = "{self.provider}"\napi_key_env = "TEST_API_KEY"\nprices = {{ "*" = {{ input = 1.0, output = 2.0 }} }}\n')
        self.settings = settings
        self.set_up()
        self.start_server()

    def set_up(self):
        """Chooses addresses and writes the server's configuration."""
        self.admin_port, self.ingress_port, self.worker_port = free_port(), free_port(), free_port()
        self.config = self.server_config("n1", self.host, free_port(), self.admin_port, self.ingress_port, self.settings)

    def server_config(self, node, host, port, admin, ingress, settings):
        path = self.work / f"{node}.toml"
        path.write_text(f"""base-dir = "{self.work}/data-{node}"
node-name = "{node}"
cluster-name = "test"
disable-telemetry = true
bind-address = "{host}:{port}"
advertised-address = "http://{host}:{port}"
rocksdb-total-memory-size = "256 MB"
{settings}
[admin]
bind-address = "{host}:{admin}"
[ingress]
bind-address = "{host}:{ingress}"
""")
        return path

    @property
    def admin(self):
        return f"http://{self.host}:{self.admin_port}"

    @property
    def ingress(self):
        return f"http://{self.host}:{self.ingress_port}"

    def start(self, command, key="k", **options):
        env = {**self.env, "TEST_API_KEY": key}
        child = subprocess.Popen([str(part) for part in command], cwd=self.folder, env=env, **options)
        self.children.append(child)
        return child

    def start_server(self):
        log = open(self.work / "server.log", "a")
        self.server = self.start([server_binary(), "--config-file", self.config], stdout=log, stderr=log)
        self.wait_for_server()

    def wait_for_server(self):
        def is_up():
            try:
                return urllib.request.urlopen(self.admin + "/health", timeout=1).status == 200
            except OSError:
                return False
        wait_until(is_up, "the server starts", 60)

    def start_worker(self, binary=None, listen=None, within=()):
        """Starts a worker, by default one that shares its port with the others. `within` is a command that starts it elsewhere."""
        self.count += 1
        path = self.work / f"worker-{self.count}.log"
        address = f"{self.host}:{self.worker_port}"
        child = self.start([*within, binary or self.homing, "worker", "--restate", self.admin, "--ingress", self.ingress, "--listen", listen or address,
                            "--advertise", f"http://{address}", "--shared-workspace", self.folder, "--sandbox", "off", "--parallel", "2000",
                            "--drain", self.drain, "--spread", self.spread, "--on-question", "park"], key=f"worker-{self.count}",
                           stdout=open(path, "w"), stderr=subprocess.STDOUT)
        self.workers[self.count] = (child, path)
        return self.count

    def start_workers(self, count):
        for number in [self.start_worker() for _ in range(count)]:
            self.wait_for_worker(number)

    def kill_worker(self, number):
        child, _ = self.workers.pop(number)
        child.kill()
        child.wait()

    def wait_for_worker(self, number):
        wait_until(lambda: "is registered" in self.workers[number][1].read_text(), "a worker registers", 120)

    def run(self, agent, task, *flags, on_restate=True):
        place = ["--on", "restate", "--restate", self.admin, "--ingress", self.ingress, "--shared-workspace"] if on_restate else []
        limits = [] if "--max-cost" in flags else ["--max-cost", "100"]
        command = [self.homing, "run", "--agent", agent, "--json", "--sandbox", "off", "--allow", "bash", *limits,
                   "--timeout", "20m", *place, *flags, task]
        return self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def homing_says(self, *command):
        done = subprocess.run([self.homing, *command], cwd=self.folder, env=self.env, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def lines(self, name):
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def asks(self, trees=None):
        """Replies of the provider, of the runs of these trees."""
        path = self.work / "asks.log"
        entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        runs = trees and {run["run"] for tree in trees for run in every(tree)}
        return [entry for entry in entries if runs is None or entry["key"].split(":")[0] in runs]

    def rows(self, sql, *values):
        """Rows of the submitter's journal. It is opened by its path: folders beside it come and go while workers are running."""
        if not self.journal.exists():
            return []
        journal = sqlite3.connect(f"file:{self.journal}?mode=ro", uri=True)
        try:
            return journal.execute(sql, values).fetchall()
        finally:
            journal.close()

    def records(self, kind, envelopes):
        """Records of a kind from the copies in the submitter's journal: (run, time in seconds, body)."""
        trees = {envelope.get("run") for envelope in envelopes}
        rows = self.rows("SELECT tree, run, at, body FROM records WHERE kind = ? ORDER BY tree, seq", kind)
        return [(run, at / 1000, body) for tree, run, at, body in rows if tree in trees]

    def unknown_outcomes(self, envelopes):
        """Calls of these trees whose outcome is unknown, by the copies in the submitter's journal."""
        trees = {envelope.get("run") for envelope in envelopes}
        rows = self.rows("SELECT tree FROM records WHERE kind = 'returned' AND body LIKE '%outcome_unknown%'")
        return sum(tree in trees for (tree,) in rows)

    def appends(self, tree):
        """Number of groups of records that the server keeps of a tree, and their size in bytes."""
        row = self.query("SELECT count(*) AS n, sum(length(value)) AS size FROM state WHERE service_name = 'HomingTree' "
               f"AND service_key = '{tree}' AND key LIKE 'r%'")[0]
        return row["n"], row["size"] or 0

    def query(self, sql):
        """Rows of the server's own tables."""
        request = urllib.request.Request(self.admin + "/query", json.dumps({"query": sql}).encode(),
                                         {"content-type": "application/json", "accept": "application/json"})
        return json.loads(urllib.request.urlopen(request, timeout=60).read())["rows"]

    def ask_handler(self, path, body, headers={}):
        """Calls a handler of a worker through the ingress. A handler without an argument accepts no body."""
        data, headers = (None, headers) if body is None else (json.dumps(body).encode(), {"content-type": "application/json", **headers})
        request = urllib.request.Request(f"{self.ingress}/{path}", data, headers, method="POST")
        return json.loads(urllib.request.urlopen(request, timeout=60).read() or "null")

    def close(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()
        if not failures and "KEEP" not in os.environ:
            shutil.rmtree(self.work, ignore_errors=True)
        else:
            print(f"kept: {self.work}")


def result(child, limit=300):
    try:
        out, errors = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        child.kill()
        return {"status": f"no end in {limit} s", "children": []}
    try:
        return json.loads(out)
    except ValueError:
        return {"status": "no envelope", "error": errors[-2000:], "children": []}


def shape(envelope):
    """An envelope without what differs between two runs of the same task."""
    usage = {k: v for k, v in envelope.get("usage", {}).items() if "ms" not in k}
    children = sorted((shape(child) for child in envelope.get("children", [])), key=lambda child: child["output"])
    keep = ["agent", "model", "status", "partial", "data", "error", "limit", "verified", "denied"]
    output = envelope.get("output", "")
    return {**{k: envelope.get(k) for k in keep}, "output": output, "usage": usage, "children": children}


def every(envelope):
    return [envelope, *(run for child in envelope.get("children", []) for run in every(child))]


