//! A model behind one of our own wires: a wire, an address and a key, over the shared connections.
//! Which providers there are is not known here.

use std::sync::Arc;

use homing_core::{
    BoxFuture,
    message::Reply,
    model::{AskFailure, Model, ModelCard, ModelRequest, OnDelta},
};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::{
    http::{self, Http, Outgoing, Timeouts},
    provider::{Auth, NoModelError, ProviderRow},
    secret::Key,
    wire::{
        Delivery, Wire, anthropic,
        chat::{self, Quirks},
    },
};

/// A model behind one of our own wires.
pub(crate) struct NativeModel {
    card: ModelCard,
    model: String,
    wire: Wire,
    quirks: Quirks,
    url: reqwest::Url,
    headers: HeaderMap,
    key: Key,
    delivery: Delivery,
    clocks: Timeouts,
    http: Arc<Http>,
}

impl NativeModel {
    /// The model `model` at the provider of `row`.
    pub(crate) fn new(
        row: &ProviderRow,
        model: &str,
        key: Key,
        card: ModelCard,
        http: Arc<Http>,
    ) -> Result<Self, NoModelError> {
        let bad = |why: String| NoModelError::BadRow { provider: row.name.clone(), why };
        let url = endpoint(&row.base_url, row.wire).map_err(bad)?;
        let url = reqwest::Url::parse(&url).map_err(|error| bad(format!("`{url}` is no address: {error}")))?;
        let headers = headers(row, &key).map_err(bad)?;
        let clocks = http.clocks.with_patience(row.patience).for_delivery(row.delivery);
        let (model, wire, quirks, delivery) = (model.to_owned(), row.wire, row.quirks, row.delivery);
        Ok(Self { card, model, wire, quirks, url, headers, key, delivery, clocks, http })
    }

    fn outgoing(&self, request: &ModelRequest<'_>) -> Outgoing<'_> {
        let body = match self.wire {
            Wire::Anthropic => anthropic::body(request, &self.model, self.delivery),
            Wire::Chat | Wire::Genai => chat::body(request, &self.model, self.quirks, self.delivery),
        };
        let mut headers = self.headers.clone();
        if let Ok(value) = HeaderValue::from_str(request.key)
            && !request.key.is_empty()
        {
            headers.insert(HeaderName::from_static("idempotency-key"), value);
        }
        Outgoing { url: &self.url, headers, body, time_left: request.time_left }
    }
}

impl Model for NativeModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let decoder = match self.wire {
                Wire::Anthropic => anthropic::decoder(&request),
                Wire::Chat | Wire::Genai => chat::decoder(&request),
            };
            let clocks = self.clocks.for_effort(request.effort);
            let done = http::exchange(&self.http, &clocks, self.outgoing(&request), decoder, on_delta).await;
            let mut reply = done.map_err(|failure| self.key.scrub(failure))?;
            price(&mut reply, &self.card);
            Ok(reply)
        })
    }
}

/// Sets what the reply cost, where prices and usage are known.
pub(crate) fn price(reply: &mut Reply, card: &ModelCard) {
    if let Some(rates) = card.rates.as_ref().filter(|_| !reply.usage.estimated) {
        reply.usage.cost_micros = rates.cost(&reply.usage);
    }
}

fn headers(row: &ProviderRow, key: &Key) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(reqwest::header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    if row.wire == Wire::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    for (name, value) in &row.headers {
        let name = HeaderName::try_from(name.as_str()).map_err(|_| format!("`{name}` is no header name"))?;
        headers.insert(name, HeaderValue::try_from(value.as_str()).map_err(|_| "a header's value is no text")?);
    }
    if let Some(secret) = key.expose() {
        let (name, text) = match row.auth {
            Auth::Bearer => (AUTHORIZATION, format!("Bearer {secret}")),
            Auth::XApiKey => (HeaderName::from_static("x-api-key"), secret.to_owned()),
            Auth::ApiKey => (HeaderName::from_static("api-key"), secret.to_owned()),
        };
        let mut value = HeaderValue::try_from(text).map_err(|_| "the key has characters that no header can carry")?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The address of a wire's one endpoint below `base`, however much of it the user has written.
fn endpoint(base: &str, wire: Wire) -> Result<String, String> {
    let (base, query) =
        base.trim().split_once('?').map_or((base.trim(), String::new()), |(base, query)| (base, format!("?{query}")));
    let mut base = base.trim_end_matches('/');
    let Some((_, after)) = base.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https")) else {
        return Err(format!("`{base}` is no http address"));
    };
    let has_path = after.contains('/');
    let path = match wire {
        Wire::Anthropic => {
            base = base.strip_suffix("/messages").unwrap_or(base);
            base = base.strip_suffix("/v1").unwrap_or(base);
            "/v1/messages"
        }
        Wire::Chat | Wire::Genai => {
            base = base.strip_suffix("/chat/completions").unwrap_or(base);
            if has_path { "/chat/completions" } else { "/v1/chat/completions" }
        }
    };
    Ok(format!("{base}{path}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_way_to_write_an_address_works() {
        for base in ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/chat/completions"] {
            assert_eq!(endpoint(base, Wire::Chat).unwrap(), "http://h:1/v1/chat/completions", "{base}");
        }
        assert_eq!(endpoint("https://h/api/v1", Wire::Chat).unwrap(), "https://h/api/v1/chat/completions");
        assert_eq!(
            endpoint("https://h/o/v1?api-version=1", Wire::Chat).unwrap(),
            "https://h/o/v1/chat/completions?api-version=1"
        );
        for base in ["http://h", "http://h/", "http://h/v1", "http://h/v1/", "http://h/v1/messages"] {
            assert_eq!(endpoint(base, Wire::Anthropic).unwrap(), "http://h/v1/messages", "{base}");
        }
        assert_eq!(endpoint("https://h/anthropic", Wire::Anthropic).unwrap(), "https://h/anthropic/v1/messages");
        assert!(endpoint("file:///etc/passwd", Wire::Chat).is_err());
        assert!(endpoint("", Wire::Chat).is_err());
    }
}
