//! A build without TLS.

use crate::support::*;
use homing_core::model::{Charge, ModelError};
use tokio::net::TcpListener;

#[tokio::test]
async fn build_without_tls_says_which_feature_is_missing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = model(&format!("https://localhost:{}", listener.local_addr().unwrap().port()), "chat", patient());
    let failure = ask(&*model).await.failure();
    let ModelError::Unusable { reason } = &failure.error else { panic!("{failure:?}") };
    assert!(reason.contains("was built without TLS: enable the feature `aws-lc-rs` or `ring`"), "{reason}");
    assert_eq!(failure.charge, Charge::Nothing);
}
