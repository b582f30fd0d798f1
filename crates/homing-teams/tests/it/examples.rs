//! The examples run and produce what they describe.
#![allow(dead_code, unreachable_pub, reason = "each example has a main of its own, which is not called here")]

#[path = "../../examples/05_map_reduce_review.rs"]
mod map_reduce_review;

#[path = "../../examples/04_router.rs"]
mod router;

#[path = "../../examples/03_graph_with_return_paths.rs"]
mod graph;

#[path = "../../examples/02_debate.rs"]
mod debate;

#[path = "../../examples/01_report_crew.rs"]
mod report_crew;

#[tokio::test]
async fn r44_report_crew_writes_its_report() {
    let result = report_crew::example().await.unwrap();
    assert_eq!(result.answer, "Approved: clear and backed by the research.");
    assert_eq!(result.executions.len(), 3);
}

#[tokio::test]
async fn r45_debate_ends() {
    let result = debate::example().await.unwrap();
    assert_eq!(result.answer, "In short: tea after noon, coffee before.");
    let who: Vec<&str> = result.executions.iter().map(|it| it.agent.as_str()).collect();
    assert_eq!(who, ["pro", "contra", "judge", "clerk"]);
}

#[tokio::test]
async fn r46_graph_returns_to_its_lead() {
    let result = graph::example().await.unwrap();
    assert_eq!(result.answer, "Report: Ants rest in winter.");
    let who: Vec<&str> = result.executions.iter().map(|it| it.agent.as_str()).collect();
    assert_eq!(who, ["lead", "researcher", "lead", "writer", "lead"]);
}

#[tokio::test]
async fn r46_router_finds_the_right_agent() {
    assert_eq!(router::example().await.unwrap().answer, "About money: What does a run cost?");
}

#[tokio::test]
async fn review_of_many_files_is_summed_up() {
    let result = map_reduce_review::example().await.unwrap();
    assert_eq!((result.answer.as_str(), result.executions.len()), ("2 files are fine", 4));
}

#[test]
fn examples_fit_on_a_screen() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 60, "{} has {lines} lines", file.display());
    }
}
