"""Three machines: network namespaces with an address each, in each of them a node of a Restate cluster and a worker, and HAProxy before
them. A machine can be switched off, and its network can be cut."""
import os, random, shutil, subprocess, time

import faults
from bed import Bed, check, result, server_binary, skip, wait_until

NETWORK, BRIDGE = "10.77.23", "homing-br"
NODE, ADMIN, INGRESS, WORKER = 5122, 9070, 8080, 9080
MACHINES = (1, 2, 3)


def ip(*words, check=True):
    return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True)


def proxy_config():
    """The configuration of docs/MANY_MACHINES.md, with fixed addresses. A machine that does not answer is found in six seconds, and its
    connections are closed, so that the server notices."""
    text = "defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 1d\n    timeout server 1d\n"
    for name, port in (("workers", WORKER), ("admin", ADMIN), ("ingress", INGRESS)):
        text += f"listen {name}\n    bind {NETWORK}.254:{port}\n    balance leastconn\n"
        for number in MACHINES:
            text += f"    server m{number} {NETWORK}.{number}:{port} check inter 2s fall 3 on-marked-down shutdown-sessions\n"
    return text


class Machines(Bed):
    host = f"{NETWORK}.254"

    def __init__(self, **options):
        if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("haproxy"):
            skip("three machines need root, `ip` and `haproxy`")
        remove_network()
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{NETWORK}.254/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number in MACHINES:
            name, link = f"homing-m{number}", f"homing-v{number}"
            ip("netns", "add", name)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", link, "master", BRIDGE, "up")
            ip("-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        self.nodes, self.of_machine = {}, {}
        super().__init__(**options)

    def set_up(self):
        self.admin_port, self.ingress_port, self.worker_port = ADMIN, INGRESS, WORKER
        proxy = self.work / "haproxy.cfg"
        proxy.write_text(proxy_config())
        self.start(["haproxy", "-db", "-f", proxy], stdout=open(self.work / "haproxy.log", "w"), stderr=subprocess.STDOUT)

    def start_server(self):
        for number in MACHINES:
            self.start_node(number)
        self.wait_for_server()

    def start_node(self, number):
        addresses = ", ".join(f'"http://{NETWORK}.{each}:{NODE}"' for each in MACHINES)
        settings = (f"default-replication = 2\ndefault-num-partitions = 8\nauto-provision = {str(number == 1).lower()}\n"
                    f"[metadata-client]\naddresses = [{addresses}]\n{self.settings}")
        config = self.server_config(f"n{number}", f"{NETWORK}.{number}", NODE, ADMIN, INGRESS, settings)
        log = open(self.work / f"node-{number}.log", "a")
        self.nodes[number] = self.start([*within(number), server_binary(), "--config-file", config], stdout=log, stderr=log)

    def start_machine_worker(self, number):
        worker = self.start_worker(listen=f"{NETWORK}.{number}:{WORKER}", within=within(number))
        self.of_machine[number] = worker
        return worker

    def switch_off(self, number):
        """Ends everything on a machine at once."""
        self.nodes[number].kill()
        self.kill_worker(self.of_machine[number])
        self.nodes[number].wait()

    def cut(self, number, is_cut):
        """Cuts the network of a machine without closing a connection, or connects it again."""
        ip("link", "set", f"homing-v{number}", "down" if is_cut else "up")

    def close(self):
        super().close()
        remove_network()


def within(number):
    return ["ip", "netns", "exec", f"homing-m{number}"]


def remove_network():
    for number in MACHINES:
        ip("netns", "del", f"homing-m{number}", check=False)
        ip("link", "del", f"homing-v{number}", check=False)
    ip("link", "del", BRIDGE, check=False)


def machines(rounds):
    bed = Machines(settings=faults.IMPATIENT)
    try:
        for number in MACHINES:
            bed.wait_for_worker(bed.start_machine_worker(number))
        envelope = result(bed.run("lead", "do t-machines"))
        workers = {ask["worker"] for ask in bed.asks([envelope])}
        check(envelope["status"] == "done", f"a tree on three machines ends ({envelope['status']}, {len(workers)} workers)")
        for _ in range(rounds):
            for fault in (cut_network, switch_off):
                began = time.monotonic()
                fault(bed)
                print(f"  {fault.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    finally:
        bed.close()


def start_trees(bed):
    trees = faults.Trees(bed)
    for _ in range(4):
        trees.start()
    wait_until(lambda: faults.is_working(bed, [*trees.usual, *trees.tight]), "the trees work", 60)
    return trees


def switch_off(bed):
    """One machine of three, with its node and its worker, is lost, and comes back later."""
    number, trees = random.choice(MACHINES), start_trees(bed)
    bed.switch_off(number)
    trees.judge("one machine of three was switched off")
    bed.start_node(number)
    bed.wait_for_worker(bed.start_machine_worker(number))


def cut_network(bed):
    """The network of a machine is cut while its worker and its node go on."""
    number, trees = random.choice(MACHINES), start_trees(bed)
    bed.cut(number, True)
    began = time.monotonic()
    while trees.in_progress() and time.monotonic() - began < 120:
        time.sleep(0.1)
    left, took = trees.in_progress(), time.monotonic() - began
    bed.cut(number, False)
    trees.judge(f"the network of one machine of three was cut for {took:.0f} s ({left} trees were left)", is_zombie=True)
