//! Teams through the builder.
#![cfg(feature = "teams")]

use std::sync::{Arc, Mutex};

use homing::{
    AgentDefinition, Homing, Replay, Task, model_fn,
    teams::{Edge, FieldType, Graph, Node, Reducer, Team, function},
    testing::{call, last_words, say},
};
use serde_json::json;

#[tokio::test]
async fn functions_belong_to_their_team_only() {
    let team = |name: &str, price: u32| {
        let graph = Graph::starting_at("pay")
            .field("price", FieldType::Any, Reducer::Replace, 0)
            .node(Node::tool("pay", "pay", json!({})).writes("price"))
            .node(Node::agent("report", "clerk", format!("{name} paid {{{{ state.price }}}}")))
            .edge(Edge::new("pay", "report"));
        Team::new(name, graph).tool(function("pay", Replay::Unsafe, move |_| Ok(json!(price))))
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let model = model_fn("demo/m", move |request| {
        let names: Vec<&str> = request.tools.specs.iter().map(|spec| spec.name.as_str()).collect();
        log.lock().unwrap().push((last_words(&request), names.contains(&"pay")));
        let is_thief = request.system.contains("Steal") && request.messages.len() == 1;
        Ok(if is_thief { call([("pay", json!({}))]) } else { say(last_words(&request)) })
    });
    let homing = Homing::builder()
        .agent(AgentDefinition::new("clerk", "Reports", "Report."))
        .agent(AgentDefinition::new("thief", "Steals", "Steal."))
        .team(team("shop", 5))
        .team(team("bank", 70))
        .own_model(model)
        .build()
        .unwrap();
    for (name, price) in [("shop", 5), ("bank", 70)] {
        let result = homing.spawn(Task::new(name, "go")).unwrap().await;
        assert_eq!(result.output, format!("{name} paid {price}"), "each team calls its own function");
    }
    let stolen = homing.spawn(Task::new("thief", "take it")).unwrap().await;
    assert!(stolen.output.contains("there is no tool `pay` here"), "{}", stolen.output);
    homing.spawn(Task::new("clerk", "outside")).unwrap().await;
    let outside: Vec<_> = seen.lock().unwrap().iter().filter(|(words, _)| !words.contains(" paid ")).cloned().collect();
    assert!(outside.len() >= 3 && outside.iter().all(|(_, has_pay)| !has_pay), "{outside:?}");
}
