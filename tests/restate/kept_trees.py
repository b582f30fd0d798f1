"""Trees that have ended or wait, and what commands do with them: more budget, forks, messages, other machines, deletion. The first parts
compare workers with one process."""
import json, pathlib, shutil, subprocess, time, urllib.error, urllib.request, uuid

import bed as beds
from bed import check, every, wait_until


def finish(suite, *arguments):
    """A command with `--json`: its exit code, its result, and its messages."""
    done = subprocess.run([suite.homing, *arguments, "--json"], cwd=suite.folder, env=suite.env, capture_output=True, text=True, timeout=120)
    try:
        return done.returncode, json.loads(done.stdout), done.stderr
    except ValueError:
        return done.returncode, {"status": done.stderr[-600:]}, done.stderr


def in_both(suite, arguments):
    """The results of a run here and on workers."""
    return [json.loads(suite.homing_in(place, arguments).communicate(timeout=120)[0]) for place in ("here", "restate")]


def agree(suite, what, status, ends):
    (code_here, here, _), (code, there, errors) = ends
    found = suite.differences(here, there)
    check(not found and code == code_here and there["status"] == status,
          "\n".join([f"{what} ({there['status']}, exit code {code}, here {code_here})", *found, *([errors[-300:]] if found else [])]))


def more_budget(suite):
    """A run that a limit ended goes on with more of it, with the same result as here."""
    for what, first, more in (
            ("more turns", ["--agent", "looks", "--max-turns", "1", "for e1"], ["--max-turns", "5"]),
            ("more tool calls", ["--agent", "looks", "--max-tool-calls", "1", "for e2"], ["--max-tool-calls", "5"]),
            ("more cost", ["--agent", "looks", "--max-cost", "0.003", "for e3"], ["--max-cost", "1"]),
            ("more turns for a tree", ["--agent", "lead", "--max-turns", "1", "for e4"], ["--max-turns", "5"])):
        exhausted = in_both(suite, ["run", *first])
        check([end["status"] for end in exhausted] == ["exhausted"] * 2, f"{what}: the limit ends it first")
        agree(suite, what, "done", [finish(suite, "resume", "--sandbox", "off", *more, end["run"]) for end in exhausted])
        raised = [len(suite.rows("SELECT seq FROM records WHERE tree = ? AND kind = 'extended'", end["run"])) for end in exhausted]
        check(raised == [1, 1], f"{what}: they are given once ({raised})")
    again = exhausted[1]["run"]
    code, end, errors = finish(suite, "resume", "--max-turns", "1", again)
    check(code == 0 and end["status"] == "done" and "has already ended (done)" in errors, f"a run that is done is not continued ({errors.strip()[-80:]})")
    waiting = in_both(suite, ["run", "--agent", "asks", "--max-turns", "1", "for e5"])
    ends = []
    for envelope in waiting:
        finish(suite, "resume", "--sandbox", "off", "--on-question", "park", "--max-turns", "3", envelope["run"])
        suite.homing_says("answer", envelope["questions"][0]["id"], "red")
        ends.append(finish(suite, "resume", "--sandbox", "off", envelope["run"]))
    agree(suite, "more turns while a question waits", "done", ends)
    code, end, errors = finish(suite, "resume", "--max-turns", "1", "--cwd", str(suite.folder), str(uuid.uuid4()))
    check(code == 2, f"more budget for an unknown run is refused ({errors.strip()[-80:]})")


def raised_while_running(suite):
    """The limits of a tree are raised while its children wait for them on other workers."""
    child = suite.homing_in("restate", ["run", "--agent", "above-slow-looks", "--max-tool-calls", "2", "for x1"])
    tree = wait_until(lambda: next((row["run"] for row in json.loads(suite.homing_says("runs", "--json")[1]) if "x1" in row["task"]), None),
                      "the tree begins")
    port, token, serve = suite.serve()
    said = suite.post_api(port, token, f"runs/{tree}/limits", {"tool_calls": 10})
    end = json.loads(child.communicate(timeout=60)[0])
    statuses = {run["status"] for run in every(end)}
    check(statuses == {"done"} and end["subtree"]["tool_calls"] == 5, f"`serve` raises limits that children on other workers use ({said}, {statuses}, "
          f"{end['subtree']['tool_calls']} tool calls)")
    for path, body in (("resume", {"limits": {"turns": 5}}), ("limits", {"turns": 5})):
        exhausted = json.loads(suite.homing_in("restate", ["run", "--agent", "looks", "--max-turns", "1", f"for w-{path}"]).communicate(timeout=60)[0])
        said = suite.post_api(port, token, f"runs/{exhausted['run']}/{path}", body)
        code, end, _ = finish(suite, "resume", exhausted["run"])
        check(end["status"] == "done", f"`serve` continues an exhausted run on workers: {path} ({said!r}, {end['status']})")
    said = suite.post_api(port, token, f"runs/{exhausted['run']}/resume", {"limits": {"turns": 5}})
    check("already ended" in said, f"`serve` does not continue a run that is done ({said!r})")
    said = suite.post_api(port, token, f"runs/{exhausted['run']}/fork", {"seq": 3})
    row = lambda: next((row for row in json.loads(suite.homing_says("runs", "--json", "--tag", "forked")[1]) if "w-limits" in row["task"]), {})
    # It has the limit that the other one had at this position.
    wait_until(lambda: row().get("status") == "exhausted", f"`serve` forks a run of workers: {said!r}", 20)
    check(said == "forked", f"`serve` forks a run of workers ({said!r})")
    serve.terminate()
    serve.wait(timeout=30)


def forks(suite):
    """A fork of a tree on workers runs here, with the same result as that of a local one; so does a continued conversation."""
    done = in_both(suite, ["run", "--agent", "lead", "for f1"])
    ends = []
    for envelope in done:
        records = suite.rows("SELECT seq, kind FROM records WHERE tree = ? ORDER BY seq", envelope["run"])
        # The order of records of different runs differs, so the fork begins before there are any children.
        at = next(seq for seq, kind in records if kind == "replied")
        ends.append(finish(suite, "fork", envelope["run"], "--at", str(at), "--sandbox", "off", "--allow", "bash", "--max-cost", "100"))
    agree(suite, "a fork of a tree on workers", "done", ends)
    code, end, errors = finish(suite, "fork", done[1]["run"], "--at", "100000")
    check(code == 2 and "there is no position 100000" in errors, f"a fork after the end is refused ({errors.strip()[-80:]})")
    told = [finish(suite, "tell", envelope["run"], "--sandbox", "off", "and", "then?") for envelope in done]
    agree(suite, "a message to a tree that has ended", "done", told)


def posts(suite):
    """A request that is sent twice is delivered once."""
    child = suite.homing_in("restate", ["run", "--agent", "asks", "for d1"])
    envelope = json.loads(child.communicate(timeout=60)[0])
    tree, body = envelope["run"], {"tell": {"run": envelope["run"], "from": None, "message": "only once"}}
    for _ in range(2):
        suite.ask_handler(f"HomingTree/{tree}/post", {"segment": tree, "key": "p", "request": body}, {"idempotency-key": "p"})
    suite.homing_says("answer", envelope["questions"][0]["id"], "green")
    code, end, _ = finish(suite, "resume", tree)
    told = suite.rows("SELECT seq, kind FROM records WHERE tree = ? AND kind = 'told'", tree)
    check(end["status"] == "done" and len(told) == 1, f"a message that is sent twice arrives once ({end['status']}, {len(told)} messages)")


def versions(suite):
    """A tree that needs a later version is left alone by workers that do not have it, and submissions of other versions are refused."""
    refused = [suite.ask_handler("HomingWorker/preflight", {"version": version, "models": [], "workspace": None}) for version in (3, 99)]
    check(all("use the same version" in (text or "") for text in refused), f"other versions are refused ({refused[0]})")
    done = json.loads(suite.homing_in("restate", ["run", "--agent", "plain", "for v0"]).communicate(timeout=60)[0])
    page, tree, asked = suite.ask_handler(f"HomingTree/{done['run']}/facts", 0), str(uuid.uuid4()), len(suite.requests())
    record = json.loads(json.dumps(page["records"][0]).replace(done["run"], tree))
    group = {"segment": tree, "epoch": 1, "from": 0, "records": [record], "steps": 1, "is_over": False}
    suite.ask_handler(f"HomingTree/{tree}/begin", {"tree": tree, "definitions": page["definitions"], "task": tree, "version": 99, "first": {"groups": [group]}})
    failing = lambda: suite.query(f"SELECT id, last_failure FROM sys_invocation WHERE target_service_key = '{tree}' AND last_failure IS NOT NULL")
    reason = wait_until(failing, "a worker refuses the tree")[0]
    meta = suite.query(f"SELECT value_utf8 FROM state WHERE service_key = '{tree}' AND key = 'meta'")[0]["value_utf8"]
    check("needs version 99" in reason["last_failure"] and json.loads(meta)["epoch"] == 1 and len(suite.requests()) == asked,
          f"a tree of a later version is not taken ({reason['last_failure'][:90]!r})")
    urllib.request.urlopen(urllib.request.Request(f"{suite.admin}/invocations/{reason['id']}/kill", method="PATCH"), timeout=30).read()


def other_machine(suite):
    """Another machine lists, shows and stops what this one submitted."""
    done = json.loads(suite.homing_in("restate", ["run", "--agent", "lead", "for o1"]).communicate(timeout=60)[0])
    home = suite.work / "other-home"
    shutil.copytree(suite.home / ".config", home / ".config")
    env = {**suite.env, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / "data")}
    says = lambda *arguments: subprocess.run([suite.homing, *arguments], cwd=suite.folder, env=env, capture_output=True, text=True, timeout=120)
    listed = says("runs", "--all", "--on", "restate", "--json", "-n", "200")
    rows = {row["run"]: row for row in json.loads(listed.stdout or "[]")}
    row = rows.get(done["run"], {})
    check(row.get("status") == "done" and row["usage"]["cost_micros"] == done["subtree"]["cost_micros"],
          f"another machine lists the runs of a server ({len(rows)} runs, {row.get('status')}) {listed.stderr.strip()[-200:]}")
    check(json.loads(says("runs", "--all", "--json").stdout or "[]") == [], "they are not in its own journal")
    shown = says("show", done["run"][-8:])
    check(shown.returncode == 0 and "lead o1 done" in shown.stdout, f"another machine shows a run by its short ID ({shown.stderr.strip()[-100:]})")
    child = suite.homing_in("restate", ["run", "--agent", "slow", "for o2"])
    running = lambda: next((row["run"] for row in json.loads(says("runs", "--all", "--on", "restate", "--json", "-n", "5").stdout) if "o2" in row["task"]), None)
    stopped = says("cancel", wait_until(running, "the other machine sees the run"))
    end = json.loads(child.communicate(timeout=60)[0])
    check(stopped.returncode == 0 and end["status"] == "cancelled", f"another machine stops a run ({stopped.stderr.strip()[-80:]})")
    says("prune", "--older-than", "0s")
    check(keys_of(suite, done["run"]) > 0, "another machine prunes its copy, not the server")
    answer = says("show", "ffffffff")
    check(answer.returncode == 2 and "warning" not in answer.stderr, "an ID that no machine knows is an error")


def keys_of(suite, tree):
    """Number of values that the server keeps of a tree and its ledger."""
    return suite.query(f"SELECT count(*) AS n FROM state WHERE service_key = '{tree}'")[0]["n"]


def prunes(suite):
    """`prune` deletes ended trees on the server, not open ones, and says so if it cannot."""
    open_tree = json.loads(suite.homing_in("restate", ["run", "--agent", "asks", "for g1"]).communicate(timeout=60)[0])["run"]
    tree = json.loads(suite.homing_in("restate", ["run", "--agent", "lead", "--key", "pruned", "for g2"]).communicate(timeout=60)[0])["run"]
    before = keys_of(suite, tree)
    code, text = suite.homing_says("prune", "--older-than", "0s", "--dry-run")
    check(code == 0 and "would be deleted on the Restate server" in text and keys_of(suite, tree) == before, f"a dry run deletes nothing ({text.strip()[-90:]})")
    suite.server.kill()
    suite.server.wait()
    code, text = suite.homing_says("prune", "--older-than", "0s")
    check(code == 0 and "until the next `homing prune`" in text, f"a server that is away is named ({text.strip()[-200:]})")
    shown = suite.homing_says("show", tree)
    check(shown[0] == 0, "what is left of a pruned run is shown without the server")
    suite.start_server()
    code, text = wait_until(lambda: (said := suite.homing_says("prune", "--older-than", "0s"))[1].count("deleted on the Restate") and said, "it is pruned later")
    # Its ledger is deleted a moment later.
    wait_until(lambda: keys_of(suite, tree) == 0, "the ended tree is deleted")
    check(keys_of(suite, open_tree) > 0, f"ended trees are deleted, open ones are not ({before} values; {text.strip()[-80:]})")
    again = json.loads(suite.homing_in("restate", ["run", "--agent", "lead", "--key", "pruned", "for g2"]).communicate(timeout=60)[0])
    check(again["run"] != tree and again["status"] == "done", f"the key of a deleted run is free ({again['status']}, {again.get('error')})")
    check(suite.ask_handler(f"HomingTree/{open_tree}/delete", None) == "open", "an open tree is never deleted")
    suite.homing_says("cancel", open_tree)


PARTS = (more_budget, raised_while_running, forks, posts, versions, other_machine, prunes)
