//! HTTP client that only connects to permitted addresses: they are checked after name resolution, and the connection
//! uses the address that was checked.

use std::{error::Error, net::SocketAddr, time::Duration};

use homing_sandbox::egress::Reach;
use reqwest::{
    Client,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};

/// The `User-Agent` header.
const USER_AGENT: &str = concat!("homing/", env!("CARGO_PKG_VERSION"));

/// Creates a client that follows no redirects, uses no proxy, and connects only within `reach`.
pub(crate) fn client(reach: Reach) -> Result<Client, String> {
    Client::builder()
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(Duration::from_secs(10))
        .dns_resolver(CheckedResolver { reach })
        .build()
        .map_err(|error| format!("cannot create an HTTP client: {}", root_of(&error)))
}

/// Resolves names, and rejects those that resolve to an address out of reach.
struct CheckedResolver {
    reach: Reach,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.reach;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One private address among public ones is enough to reject: such a name is a sign of DNS rebinding.
            if let Some(private) = found.iter().find(|address| !reach.includes(address.ip())) {
                return Err(
                    format!("{} resolves to {}, which is not a public address", name.as_str(), private.ip()).into()
                );
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Returns the message for a host that the run's network permissions do not include.
pub(crate) fn network_denied(host: &str) -> String {
    format!("this run has no network permission for {host}")
}

/// Returns the message of an error's innermost source.
pub(crate) fn root_of(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}
