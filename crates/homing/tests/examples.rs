//! The numbered examples do what they say.

#![allow(dead_code, reason = "an example's main is its own")]

#[path = "../examples/02_delegate.rs"]
mod delegate;
#[path = "../examples/01_hello.rs"]
mod hello;
#[path = "../examples/06_journal.rs"]
mod journal;
#[path = "../examples/05_limits_and_events.rs"]
mod limits_and_events;
#[path = "../examples/04_structured.rs"]
mod structured;
#[path = "../examples/03_tool.rs"]
mod tool;

#[tokio::test]
async fn example_01_says_hello() {
    assert_eq!(hello::example().await.unwrap(), "You said: hello (done)");
}

#[tokio::test]
async fn example_02_delegates() {
    let said = delegate::example().await.unwrap();
    assert!(said.starts_with("Both floors were searched.\n1 lead done"), "{said}");
    assert_eq!(said.matches("scout done").count(), 2);
}

#[tokio::test]
async fn example_03_uses_a_tool() {
    assert_eq!(tool::example().await.unwrap(), "The sum is 42.");
}

#[tokio::test]
async fn example_04_answers_in_a_type() {
    assert_eq!(structured::example().await.unwrap(), "src/lib.rs:12: an unwrap");
}

#[tokio::test]
async fn example_05_lands_at_its_limit() {
    let said = limits_and_events::example().await.unwrap();
    assert_eq!(said, "exhausted after 3 calls: Three places searched, nothing found so far.");
}

#[tokio::test]
async fn example_06_pays_once() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(journal::example(folder.path()).await.unwrap(), "same run: true, same words: true");
}
