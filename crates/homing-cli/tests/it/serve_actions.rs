//! Acting on runs through `homing serve`: start, cancel, tell, answer, resume, raise limits, fork.

use std::{fs, time::Duration};

use homing_testing::FakeResponse;
use serde_json::{Value, json};

use crate::{
    serve_client::{Response, Serve},
    world::{MODEL, World, has_results, run, task_of, wait_until},
};

fn post(server: &Serve, path: &str, body: &Value) -> Response {
    server.request("POST", path).json(body).send()
}

fn done(server: &Serve, path: &str, body: &Value) -> Value {
    let response = post(server, path, body);
    assert!(matches!(response.status, 200 | 201), "{path}: {} {}", response.status, response.body);
    response.json()
}

fn start(server: &Serve, body: &Value) -> String {
    done(server, "/api/runs", body)["tree"].as_str().expect("a tree").to_owned()
}

fn tree(server: &Serve, id: &str) -> Value {
    server.get_json(&format!("/api/trees/{id}"))
}

fn wait_for(server: &Serve, id: &str, status: &str) -> Value {
    wait_until(&format!("{id} is {status}"), || tree(server, id)["status"] == status);
    tree(server, id)
}

/// A model that works until its request is answered at the end of the test.
fn slow() -> World {
    World::new(|_, _| FakeResponse::chat_text("late").after(Duration::from_secs(60)))
}

#[test]
fn r66_run_is_planned_started_and_followed() {
    let world = World::saying("the answer");
    let server = Serve::start(&world, &MODEL);
    let task =
        json!({"agent": "explore", "task": "where?", "limits": {"cost": "0.50", "time": "5m"}, "tags": {"a": "b"}});
    let mut planned = task.clone();
    planned["plan"] = json!(true);
    let plan = done(&server, "/api/runs", &planned);
    assert!(plan["agent"] == "explore" && plan["worst_case_micros"] == 500_000, "{plan}");
    assert_eq!(world.provider.requests().len(), 0, "a plan spends nothing");
    let started = done(&server, "/api/runs", &task);
    let command = "homing run --agent explore --max-cost 0.50 --timeout 5m 'where?'";
    assert!(started["command"] == command && started["tree"] == started["run"], "{started}");
    let id = started["tree"].as_str().unwrap();
    let mut events = server.events(&format!("/api/events?tree={id}"));
    events.until("record", |record| record["fact"].get("ended").is_some());
    let row = wait_for(&server, id, "done");
    assert!(row["envelope"]["output"] == "the answer" && row["limits"]["cost_micros"] == 500_000, "{row}");
    assert_eq!(row["tags"], json!({"a": "b"}));
}

#[test]
fn unknown_model_is_a_mistake_of_the_client() {
    let world = World::saying("x");
    let server = Serve::start(&world, &MODEL);
    let request = json!({"agent": "explore", "task": "x", "model": "nope/xyz"});
    let refused = server.request("POST", "/api/runs").json(&request).send();
    assert!(refused.status == 400 && refused.body.contains("nope/xyz"), "{} {}", refused.status, refused.body);
}

#[test]
fn key_makes_a_start_idempotent() {
    let world = World::saying("once");
    let server = Serve::start(&world, &MODEL);
    let submit = |task: &str| {
        let request = server.request("POST", "/api/runs").header("Idempotency-Key", "k1");
        request.json(&json!({"agent": "explore", "task": task})).send()
    };
    let (first, second) = (submit("x"), submit("x"));
    assert_eq!((first.status, second.status), (201, 200), "{} {}", first.body, second.body);
    assert_eq!(first.json()["tree"], second.json()["tree"]);
    assert_eq!(submit("another task").status, 409);
}

#[test]
fn mistakes_are_explained() {
    let world = World::saying("x");
    let server = Serve::start(&world, &MODEL);
    let unknown = post(&server, "/api/runs", &json!({"agent": "explroe", "task": "x"}));
    assert!(unknown.status == 400 && unknown.body.contains("explore"), "{}", unknown.body);
    for wrong in [
        json!({"task": ""}),
        json!({"agent": "explore"}),
        json!({"task": "x", "limits": {"cost": "much"}}),
        json!({"task": "x", "nothing": 1}),
        json!({"task": "x", "attachments": [{"name": "a", "media_type": "image/png", "data": "%"}]}),
        json!([]),
    ] {
        let response = post(&server, "/api/runs", &wrong);
        assert!(response.status == 400 && response.json()["detail"].is_string(), "{wrong}: {}", response.body);
    }
    let elsewhere = post(&server, "/api/runs", &json!({"task": "x", "project": "/etc"}));
    assert_eq!(elsewhere.status, 404, "only known projects: {}", elsewhere.body);
    let unknown_run = "/api/runs/01a1e8ea-076d-75b2-adbe-dfb69a3ebf10/cancel";
    assert_eq!(post(&server, unknown_run, &json!({})).status, 404);
}

#[test]
fn runs_of_other_processes_are_cancelled_and_told() {
    let world = slow();
    let server = Serve::start(&world, &MODEL);
    let own = start(&server, &json!({"agent": "explore", "task": "mine"}));
    let mut other = world.command(&run(&["--agent", "explore", "theirs"])).spawn().unwrap();
    wait_until("both run", || server.get_json("/api/trees?status=running")["trees"].as_array().unwrap().len() == 2);
    let theirs = server.get_json("/api/trees?q=theirs")["trees"][0]["tree"].as_str().unwrap().to_owned();
    for id in [&own, &theirs] {
        let told = done(&server, &format!("/api/runs/{id}/tell"), &json!({"message": "hurry 'up'"}));
        assert_eq!(told["command"], format!("homing tell {id} 'hurry '\\''up'\\'''"));
        let is_told = |record: &Value| record["fact"]["told"]["message"] == "hurry 'up'";
        server.events(&format!("/api/events?tree={id}")).until("record", is_told);
        done(&server, &format!("/api/runs/{id}/cancel"), &json!({}));
        wait_for(&server, id, "cancelled");
        let again = post(&server, &format!("/api/runs/{id}/cancel"), &json!({}));
        assert!(again.status == 409 && again.body.contains("already ended"), "{}", again.body);
    }
    assert_eq!(other.wait().unwrap().code(), Some(1));
}

/// A model that writes a file, which needs approval, and reports the result.
fn writing() -> World {
    let world = World::new(|_, seen| {
        if has_results(seen) {
            return FakeResponse::chat_text("written");
        }
        FakeResponse::chat_calls(&[("bash", r#"{"command": "touch made-by-agent"}"#)])
    });
    world.configure("[rules]\nask = [\"bash\"]\n");
    world
}

fn question(server: &Serve) -> Value {
    wait_until("a question", || !server.get_json("/api/questions")["questions"].as_array().unwrap().is_empty());
    server.get_json("/api/questions")["questions"][0].clone()
}

#[test]
fn question_is_answered_while_its_run_waits() {
    let world = writing();
    let server = Serve::start(&world, &MODEL);
    let mut list = server.events("/api/events");
    let id = start(&server, &json!({"agent": "general", "task": "write"}));
    list.until("questions", |data| data["count"] == 1);
    let asked = question(&server);
    assert!(asked["tree"] == *id && asked["kind"] == "permission" && asked["tool"] == "bash", "{asked}");
    assert!(asked["command"] == "touch made-by-agent" && asked["asked_at"].as_u64() > Some(0), "{asked}");
    assert_eq!(tree(&server, &id)["status"], "waiting");
    let path = format!("/api/questions/{}", asked["id"].as_str().unwrap());
    assert_eq!(post(&server, &path, &json!({"answer": "perhaps"})).status, 400);
    done(&server, &path, &json!({"answer": "yes"}));
    wait_for(&server, &id, "done");
    list.until("questions", |data| data["count"] == 0);
    assert!(world.project.path().join("made-by-agent").exists());
    assert_eq!(post(&server, &path, &json!({"answer": "yes"})).status, 404, "it was answered before");
}

#[test]
fn question_outlives_the_server_and_its_answer_resumes_the_run() {
    let world = writing();
    let mut server = Serve::start(&world, &MODEL);
    let id = start(&server, &json!({"agent": "general", "task": "write"}));
    question(&server);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Serve::start(&world, &MODEL);
    let asked = question(&server);
    assert_eq!(tree(&server, &id)["status"], "waiting", "nothing is resumed by itself");
    let answered =
        done(&server, &format!("/api/questions/{}", asked["id"].as_str().unwrap()), &json!({"answer": "always"}));
    assert!(answered["message"].as_str().unwrap().contains("config.toml"), "{answered}");
    wait_for(&server, &id, "done");
    let config = fs::read_to_string(world.home.path().join(".config/homing/config.toml")).unwrap();
    assert!(config.contains("touch made-by-agent"), "{config}");
}

#[test]
fn user_says_what_became_of_an_interrupted_call() {
    let world = World::new(|turn, _| match turn {
        0 => FakeResponse::chat_calls(&[("bash", r#"{"command": "touch begun; sleep 60"}"#)]),
        _ => FakeResponse::chat_text("noted"),
    });
    let args = [MODEL[0], MODEL[1], "--allow", "bash", "--sandbox", "off"];
    let mut server = Serve::start(&world, &args);
    let id = start(&server, &json!({"agent": "general", "task": "deploy"}));
    wait_until("the command runs", || world.project.path().join("begun").exists());
    assert_eq!(tree(&server, &id)["unknown"], json!([]), "its process works on it");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Serve::start(&world, &args);
    let row = tree(&server, &id);
    assert_eq!(row["status"], "interrupted", "{row}");
    let expected = json!([{"run": id, "agent": "general", "call": "bash touch begun; sleep 60"}]);
    assert_eq!(row["unknown"], expected, "{row}");
    let done = done(&server, &format!("/api/runs/{id}/resume"), &json!({"message": "it did happen"}));
    assert!(done["command"].as_str().unwrap().contains("homing tell"), "{done}");
    let row = wait_for(&server, &id, "done");
    assert_eq!(row["unknown"], json!([]), "{row}");
    let facts = server.get_json(&format!("/api/trees/{id}/facts"));
    assert!(facts.to_string().contains("it did happen"), "the agent is told");
}

#[test]
fn interrupted_run_is_resumed_on_request() {
    let world = World::new(|turn, _| match turn {
        0 => FakeResponse::chat_text("lost").after(Duration::from_secs(60)),
        _ => FakeResponse::chat_text("found"),
    });
    let mut server = Serve::start(&world, &MODEL);
    let id = start(&server, &json!({"agent": "explore", "task": "look"}));
    wait_until("the model is asked", || world.provider.requests().len() == 1);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Serve::start(&world, &MODEL);
    let row = tree(&server, &id);
    assert!(row["status"] == "interrupted" && row["counts"] == json!({"interrupted": 1}), "{row}");
    assert!(row["trouble"].as_str().unwrap().contains("resumed") && row["owner"].is_null(), "{row}");
    done(&server, &format!("/api/runs/{id}/resume"), &json!({}));
    assert_eq!(wait_for(&server, &id, "done")["envelope"]["output"], "found");
    assert_eq!(post(&server, &format!("/api/runs/{id}/resume"), &json!({})).status, 409);
}

#[test]
fn limits_of_running_and_ended_runs_are_raised() {
    let world = World::new(|_, seen| {
        if has_results(seen) || task_of(seen).contains("slow") {
            return FakeResponse::chat_text("enough").after(Duration::from_millis(500));
        }
        FakeResponse::chat_calls(&[("ls", "{}")])
    });
    let server = Serve::start(&world, &MODEL);
    let ended = start(&server, &json!({"agent": "explore", "task": "look", "limits": {"turns": 1}}));
    let limit = wait_for(&server, &ended, "exhausted")["limit"].clone();
    assert_eq!((&limit["name"], &limit["limit"], &limit["spent"]), (&json!("turns"), &json!(1), &json!(1)), "{limit}");
    assert!(limit["next_call_micros"].as_u64() > Some(0), "what the next call may cost: {limit}");
    done(&server, &format!("/api/runs/{ended}/limits"), &json!({"turns": "+5"}));
    assert_eq!(wait_for(&server, &ended, "done")["limits"]["turns"], 6);
    let running = start(&server, &json!({"agent": "explore", "task": "slow"}));
    done(&server, &format!("/api/runs/{running}/limits"), &json!({"cost": "+1.00"}));
    wait_until("the limit is raised", || tree(&server, &running)["limits"]["cost_micros"] == 6_000_000);
    assert_eq!(post(&server, &format!("/api/runs/{running}/limits"), &json!({})).status, 400);
    wait_for(&server, &running, "done");
}

#[test]
fn ended_run_is_continued_and_forked() {
    let world = World::saying("words");
    let server = Serve::start(&world, &MODEL);
    let id = start(&server, &json!({"agent": "explore", "task": "first"}));
    wait_for(&server, &id, "done");
    let told = post(&server, &format!("/api/runs/{id}/tell"), &json!({"message": "second"}));
    assert_eq!(told.status, 201, "{}", told.body);
    let next = told.json()["tree"].as_str().unwrap().to_owned();
    let row = wait_for(&server, &next, "done");
    assert!(next != id && row["tags"]["continues"] == *id && row["task"] == "second", "{row}");
    let fork = done(&server, &format!("/api/runs/{id}/fork"), &json!({"seq": 0, "message": "and more"}));
    assert_eq!(fork["command"], format!("homing fork {id} --at 0"));
    wait_for(&server, fork["tree"].as_str().unwrap(), "done");
    assert_eq!(post(&server, &format!("/api/runs/{id}/fork"), &json!({"seq": 999})).status, 409);
}

#[test]
fn lists_for_pages_and_forms() {
    let world = World::saying("x");
    world.write(".claude/agents/finder.md", "---\nname: finder\ndescription: Finds.\ntools: [Read]\n---\nFind it.");
    let server = Serve::start(&world, &MODEL);
    let agents = server.get_json("/api/agents");
    let names: Vec<&str> =
        agents["agents"].as_array().unwrap().iter().filter_map(|agent| agent["name"].as_str()).collect();
    assert!(names.contains(&"finder") && names.contains(&"general"), "{names:?}");
    let finder = server.get_json("/api/agents/finder");
    assert_eq!(finder["effective"]["tools"][0]["name"], "read");
    assert_eq!(server.get("/api/agents/missing").status, 404);
    assert_eq!(server.get("/api/agents/%2Fetc%2Fpasswd").status, 404);
    assert_eq!(server.get("/api/teams/finder").status, 404);
    let id = start(&server, &json!({"agent": "finder", "task": "x"}));
    wait_for(&server, &id, "done");
    let usage = server.get_json("/api/usage?by=agent");
    assert!(usage["sums"][0]["name"] == "finder" && usage["sums"][0]["runs"] == 1, "{usage}");
    assert_eq!(server.get("/api/usage?by=colour").status, 400);
    let projects = server.get_json("/api/projects");
    assert_eq!(projects["projects"].as_array().unwrap().len(), 1, "{projects}");
    assert_eq!(server.get_json("/api/models")["default"], "openai/gpt-4.1");
    // An agent that is added later is served, too.
    world.write(".claude/agents/later.md", "---\nname: later\ndescription: Later.\n---\nDo it.");
    assert_eq!(server.get("/api/agents/later").status, 200);
}
