//! Reaching the public web and nothing else: addresses are checked after names are resolved, and the address that was
//! checked is the one that is connected to.

use std::{error::Error, net::SocketAddr, time::Duration};

use homing_sandbox::egress::Reach;
use reqwest::{
    Client,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};

/// How we name ourselves to servers.
const AGENT: &str = concat!("homing/", env!("CARGO_PKG_VERSION"));

/// A client that follows no redirections, uses no proxy, and connects only within `reach`.
pub(crate) fn client(reach: Reach) -> Result<Client, String> {
    Client::builder()
        .user_agent(AGENT)
        .redirect(Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(Duration::from_secs(10))
        .dns_resolver(Names { reach })
        .build()
        .map_err(|error| format!("there is no way to the web: {}", root_of(&error)))
}

/// Looks names up, and refuses those that stand for an address out of reach.
struct Names {
    reach: Reach,
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.reach;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One private address among public ones is enough to refuse: a name that is both is up to something.
            if let Some(private) = found.iter().find(|it| !reach.includes(it.ip())) {
                return Err(format!("{} is {}, which is not a public address", name.as_str(), private.ip()).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// What lies at the bottom of an error, in words.
pub(crate) fn root_of(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}
