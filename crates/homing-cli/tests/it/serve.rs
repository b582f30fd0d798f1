//! `homing serve`: access, lists, records and events.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use homing_testing::FakeResponse;
use serde_json::{Value, json};

use crate::{
    serve_client::{Request, Serve, read_token, token_file},
    world::{MODEL, World, err, json as as_json, out, run, wait_until},
};

/// A world with one finished run.
fn recorded() -> (World, String) {
    let world = World::saying("the answer");
    let result = as_json(&world.homing(&run(&["--json", "--agent", "explore", "where is it?"])));
    let tree = result["run"].as_str().expect("a run").to_owned();
    (world, tree)
}

#[test]
fn token_is_private_stays_and_is_replaced_on_request() {
    let world = World::saying("x");
    let server = Serve::start(&world, &MODEL);
    let mode = std::fs::metadata(token_file(&world)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(read_token(&world), server.token);
    let mut followed = server.events("/api/events");
    followed.until("questions", |data| data["count"] == 0);
    let rotated = Serve::start(&world, &[MODEL[0], MODEL[1], "--rotate-token"]);
    assert_ne!(rotated.token, server.token);
    // The server that was running accepts only the new token, too, and closes what the old one opened.
    wait_until("the old token is refused", || server.get("/api/info").status == 401);
    while followed.next().is_some() {}
    let link = out(&world.homing(&["serve", "--link", "--listen", "127.0.0.1:1"]));
    assert_eq!(link.trim(), format!("link: http://127.0.0.1:1/login?token={}", rotated.token));
}

#[test]
fn exposed_token_file_and_public_addresses_are_refused() {
    let world = World::saying("x");
    std::fs::create_dir_all(token_file(&world).parent().unwrap()).unwrap();
    std::fs::write(token_file(&world), "a-token-that-others-can-read").unwrap();
    let exposed = world.homing(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(err(&exposed).contains("other users can read the token file"), "{}", err(&exposed));
    let public = world.homing(&["serve", "--listen", "0.0.0.0:0"]);
    assert!(err(&public).contains("can be reached from other machines") && err(&public).contains("--tls-cert"));
}

#[test]
fn link_sets_a_cookie_and_leads_away_from_the_token() {
    let (world, _) = recorded();
    let server = Serve::start(&world, &MODEL);
    let login = Request::new(server.address, "GET", &format!("/login?token={}", server.token)).send();
    assert!(login.status == 303 && login.head.contains("\r\nlocation: /\r\n"), "{}", login.head);
    let cookie = login.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie").to_owned();
    assert!(cookie.contains("httponly") && cookie.contains("samesite=strict"), "{cookie}");
    assert!(!cookie.contains(&server.token), "the cookie does not reveal the token");
    let pair = cookie.split(';').next().unwrap();
    let page = Request::new(server.address, "GET", "/").header("Cookie", pair).send();
    assert!(page.status == 200 && page.head.contains("text/html"), "{}", page.head);
    let trees = Request::new(server.address, "GET", "/api/trees").header("Cookie", pair).send();
    assert_eq!(trees.json()["trees"][0]["task"], "where is it?");
    for path in ["/", "/trees/x", "/login", "/login?token=", "/login?token=wrong"] {
        let page = Request::new(server.address, "GET", path).send();
        assert!(page.status == 401 && page.body.contains("homing serve"), "{path}: {}", page.head);
        assert!(!page.head.contains("set-cookie"), "{path}");
    }
}

#[test]
fn requests_of_strangers_and_other_sites_are_refused() {
    let (world, _) = recorded();
    let server = Serve::start(&world, &MODEL);
    let get = || server.request("GET", "/api/trees");
    let refused = [
        (401, get().without("Authorization")),
        (401, get().header("Authorization", "Bearer wrong")),
        (401, get().without("Authorization").header("Cookie", &format!("homing_token={}", server.token))),
        (403, get().header("Host", "attacker.example:7433")),
        (403, get().header("Host", "")),
        (403, get().without("Host").header("X-Forwarded-Host", "127.0.0.1")),
        (403, get().header("Origin", "http://attacker.example")),
        (403, get().header("Origin", "null")),
        (403, get().header("Sec-Fetch-Site", "cross-site")),
        (403, get().header("Sec-Fetch-Site", "same-site")),
        (404, server.request("GET", "/api/../api/nothing")),
        (405, server.request("DELETE", "/api/trees")),
        (405, server.request("POST", "/").json(&json!({}))),
        (415, server.request("POST", "/api/trees")),
    ];
    for (status, request) in refused {
        let described = format!("{:?}", request.headers);
        let response = request.send();
        assert_eq!(response.status, status, "{described}: {} {}", response.head, response.body);
        assert!(response.head.contains("content-security-policy: default-src 'none'"), "{}", response.head);
        if response.head.contains("application/problem+json") {
            let problem = response.json();
            assert!(problem["status"] == status && problem["detail"].is_string(), "{problem}");
        }
    }
    let own = format!("http://{}", server.address);
    assert_eq!(get().header("Origin", &own).header("Sec-Fetch-Site", "same-origin").send().status, 200);
    assert_eq!(get().header("Host", &format!("localhost:{}", server.address.port())).send().status, 200);
}

#[test]
fn paths_never_reach_the_file_system() {
    let (world, _) = recorded();
    let server = Serve::start(&world, &MODEL);
    let index = server.get("/").body;
    for path in ["/../Cargo.toml", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/assets/..%2f..%2fetc%2fpasswd"] {
        let page = server.get(path);
        assert!(page.status == 200 && page.body == index, "{path}: {}", page.head);
    }
}

#[test]
fn large_bodies_and_heads_are_refused() {
    let (world, _) = recorded();
    let server = Serve::start(&world, &MODEL);
    let large = server.request("POST", "/api/trees").json(&json!("x".repeat(17 << 20))).send();
    assert_eq!(large.status, 413, "{}", large.head);
    let head = server.request("GET", "/api/trees").header("X-Large", &"x".repeat(20_000)).send();
    assert_eq!(head.status, 431, "{}", head.head);
    assert_eq!(server.get("/api/trees").status, 200);
}

#[test]
fn trees_are_listed_with_their_state() {
    let (world, tree) = recorded();
    world.homing(&run(&["--agent", "general", "--tag", "team=blue", "another task"]));
    let server = Serve::start(&world, &MODEL);
    let all = server.get_json("/api/trees");
    let trees = all["trees"].as_array().unwrap();
    assert_eq!(trees.len(), 2);
    let first = trees.iter().find(|row| row["tree"] == *tree).unwrap();
    assert_eq!(
        (&first["agent"], &first["status"], &first["counts"]),
        (&json!("explore"), &json!("done"), &json!({"done": 1}))
    );
    assert!(first["limits"]["cost_micros"] == 5_000_000 && first["usage"]["turns"] == 1, "{first}");
    assert!(first["last_action"].as_str().unwrap().contains("done") && first["owner"].is_null(), "{first}");
    let count = |query: &str| server.get_json(&format!("/api/trees?{query}"))["trees"].as_array().unwrap().len();
    assert_eq!((count("agent=general"), count("tag=team=blue"), count("tag=team=red")), (1, 1, 0));
    assert_eq!((count("q=ANOTHER+task"), count("status=failed"), count("limit=1")), (1, 0, 1));
    let page = server.get_json("/api/trees?limit=1");
    let next = server.get_json(&format!("/api/trees?limit=1&before={}", page["next"]));
    assert_eq!(next["trees"][0]["tree"], *tree);
    for wrong in ["status=lost", "limit=-1", "agent=a&agent=b", "nothing=1", "q=%ff"] {
        assert_eq!(server.get(&format!("/api/trees?{wrong}")).status, 400, "{wrong}");
    }
    let one = server.get_json(&format!("/api/trees/{tree}"));
    assert!(one["envelope"]["output"] == "the answer" && one["task"] == "where is it?", "{one}");
    assert_eq!(server.get("/api/trees/01a1e8ea-076d-75b2-adbe-dfb69a3ebf10").status, 404);
    assert_eq!(server.get("/api/trees/x").status, 404);
}

#[test]
fn records_are_those_of_the_journal() {
    let (world, tree) = recorded();
    let server = Serve::start(&world, &MODEL);
    let all = server.get_json(&format!("/api/trees/{tree}/facts"));
    let records = all["records"].as_array().unwrap();
    assert!(records.len() >= 4 && all["position"] == records.len() && all.get("next").is_none(), "{all}");
    assert!(records[0]["fact"]["spawned"]["task"] == "where is it?");
    let page = server.get_json(&format!("/api/trees/{tree}/facts?from=1&limit=2"));
    assert!(page["records"][0] == records[1] && page["next"] == 3, "{page}");
    // Followed by two readers, one from the beginning and one that reconnects.
    let mut events = server.events(&format!("/api/events?tree={tree}"));
    for record in records {
        let event = events.next().unwrap();
        assert!(event.event == "record" && event.id == record["seq"].as_u64() && event.data == *record);
    }
    let path = format!("/api/events?tree={tree}");
    let mut events = server.request("GET", &path).header("Last-Event-ID", "2").events();
    assert_eq!(events.next().unwrap().data, records[3]);
}

#[test]
fn run_of_another_process_is_followed_as_it_happens() {
    let world = World::new(|turn, _| match turn {
        0 => FakeResponse::chat_calls(&[("read", r#"{"path": "hay.txt"}"#)]),
        _ => FakeResponse::chat_text("found it").after(Duration::from_millis(200)),
    });
    world.write("hay.txt", "a needle");
    let server = Serve::start(&world, &MODEL);
    let mut list = server.events("/api/events");
    list.until("questions", |_| true);
    let other = world.command(&run(&["--agent", "explore", "look"])).spawn().unwrap();
    let row = list.until("tree", |row| row["task"] == "look");
    assert!(row.id.is_some() && row.data["owner"]["pid"] == other.id(), "{row:?}");
    let tree = row.data["tree"].as_str().unwrap().to_owned();
    let mut events = server.events(&format!("/api/events?tree={tree}"));
    let mut seqs = Vec::new();
    loop {
        let event = events.next().expect("an event");
        seqs.extend(event.id);
        if event.data["fact"].get("ended").is_some() {
            break;
        }
    }
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>(), "every record once, in order");
    let ended = list.until("tree", |row| row["status"] == "done");
    assert_eq!(ended.data["counts"], json!({"done": 1}));
    let recorded: Value = server.get_json(&format!("/api/trees/{tree}/facts"));
    assert_eq!(recorded["position"], seqs.len());
    let _ = other.wait_with_output();
}

#[test]
fn opened_browser_gets_a_link_that_works_once() {
    let world = World::saying("x");
    let bin = world.home.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let opened = world.home.path().join("opened");
    std::fs::write(bin.join("xdg-open"), format!("#!/bin/sh\necho \"$1\" > {}\n", opened.display())).unwrap();
    std::fs::set_permissions(bin.join("xdg-open"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let server = Serve::start_with(&world, &[MODEL[0], MODEL[1], "--open"], &[("PATH", &path)]);
    wait_until("the browser is opened", || std::fs::read_to_string(&opened).is_ok_and(|link| link.ends_with('\n')));
    let link = std::fs::read_to_string(&opened).unwrap();
    assert!(!link.contains(&server.token), "other users can see it");
    let login = link.trim().split_once(&server.address.to_string()).expect("the address").1;
    let first = Request::new(server.address, "GET", login).send();
    assert!(first.status == 303 && first.head.contains("set-cookie: homing_token="), "{}", first.head);
    let second = Request::new(server.address, "GET", login).send();
    assert!(second.status == 401 && !second.head.contains("set-cookie"), "{}", second.head);
    assert_eq!(Request::new(server.address, "GET", "/login?code=").send().status, 401);
}
