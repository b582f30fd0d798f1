//! Tests of model calls, as one program, because linking each file of them takes longer than running it.

mod bedrock;
mod connections;
mod cut_replies;
mod faults;
mod genai;
#[cfg(not(any(feature = "aws-lc-rs", feature = "ring")))]
mod no_tls;
mod odd_servers;
mod prompt_cache;
mod reasoning;
mod support;
#[cfg(any(feature = "aws-lc-rs", feature = "ring"))]
mod tls;
