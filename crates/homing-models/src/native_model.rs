//! [`NativeModel`]: a model behind one of the native wires, over the shared connections.

use std::{borrow::Cow, sync::Arc};

use ::http::{
    Method,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue},
};
use homing_core::{
    BoxFuture,
    message::{Image, Reply},
    model::{AskFailure, Model, ModelCard, ModelError, ModelRequest, OnDelta, Sampling},
};

use crate::{
    attachments,
    aws::{self, AwsSigner},
    http::{self, Endpoint, ExchangeError, Http, OutgoingRequest, Peer},
    provider::{Auth, ProviderRow},
    provider_error::{NoModelError, RowError},
    rejected_reasoning::RejectedReasoning,
    sampling,
    secret::ApiKey,
    timeouts::Timeouts,
    url::Url,
    wire::{
        Delivery, Wire, anthropic, bedrock,
        chat::{self, Quirks},
        effort,
        responses::{self, ResponsesOptions},
    },
};

/// A model behind one of the native wires.
pub(crate) struct NativeModel {
    card: ModelCard,
    model: String,
    wire: Wire,
    quirks: Quirks,
    /// Wire and provider, the origin of items that only this provider can read.
    origin: String,
    rejected: RejectedReasoning,
    endpoint: Endpoint,
    /// The headers of every request.
    headers: HeaderMap,
    key: ApiKey,
    peer: Peer,
    delivery: Delivery,
    /// Settings of the user for this model.
    sampling: Sampling,
    /// Signs the requests, if no key is sent.
    signer: Option<AwsSigner>,
    timeouts: Timeouts,
    http: Arc<Http>,
}

impl NativeModel {
    /// Creates the model `model` of the provider in `row`.
    pub(crate) fn new(
        row: &ProviderRow,
        model: &str,
        key: ApiKey,
        card: ModelCard,
        http: Arc<Http>,
    ) -> Result<Self, NoModelError> {
        let bad = |why: RowError| NoModelError::BadRow { provider: row.name.clone(), why };
        let url = match row.wire {
            Wire::Bedrock => converse_url(&row.base_url, model, row.delivery),
            Wire::Chat | Wire::Responses | Wire::Anthropic | Wire::Genai => endpoint(&row.base_url, row.wire),
        };
        let url = url.map_err(bad)?;
        let mut headers = headers(row, &url, &key).map_err(bad)?;
        let endpoint = Endpoint::new(&http, &url);
        let endpoint = endpoint.map_err(|reason| bad(RowError::BadUrl { url: url.to_string(), reason }))?;
        headers.insert(HOST, endpoint.host.clone());
        let timeouts = http.timeouts.with_patience(row.patience()).for_delivery(row.delivery);
        let peer = Peer::new(&row.name, Some(&url));
        let (model, wire, quirks, delivery) = (model.to_owned(), row.wire, row.quirks, row.delivery);
        let (origin, sampling) = (format!("responses/{}", row.name), row.sampling.of(&model));
        let rejected = RejectedReasoning::default();
        Ok(Self {
            card,
            model,
            wire,
            quirks,
            origin,
            rejected,
            endpoint,
            headers,
            key,
            peer,
            delivery,
            sampling,
            signer: None,
            timeouts,
            http,
        })
    }

    /// Signs its requests with `signer`.
    pub(crate) fn signed_by(mut self, signer: AwsSigner) -> Self {
        self.signer = Some(signer);
        self
    }

    /// The settings that a request carries: those of the agent, and those of the configuration where it has none.
    fn settings(&self, asked: &Sampling) -> Sampling {
        let wanted = asked.clone().or(&self.sampling);
        // Few requests carry any.
        if wanted == Sampling::default() {
            return wanted;
        }
        sampling::supported(wanted, self.wire, &self.model, self.quirks)
    }

    fn outgoing(&self, request: &ModelRequest<'_>) -> OutgoingRequest<'_> {
        let settings = self.settings(request.sampling);
        let mut body = match self.wire {
            Wire::Anthropic => anthropic::body(request, &self.model, self.delivery),
            Wire::Responses => {
                let (model, delivery, summary) = (&self.model, self.delivery, self.quirks.reasoning_summary);
                let origin = if self.rejected.contains(request.messages) { "" } else { &self.origin };
                let options = ResponsesOptions { model, origin, delivery, summary };
                responses::body(request, options)
            }
            Wire::Bedrock => bedrock::body(request, &self.model, &settings, self.quirks.cache_marks),
            Wire::Chat | Wire::Genai => chat::body(request, &self.model, self.quirks, self.delivery),
        };
        if self.wire != Wire::Bedrock && settings != Sampling::default() {
            // A body is an object whose first member follows the brace.
            body.insert_str(1, &sampling::members(&settings));
        }
        let idempotency_key = HeaderValue::from_str(request.key).ok().filter(|key| !key.is_empty());
        let (time_left, max_output) = (request.time_left, request.max_output);
        let (method, headers, body) = (Method::POST, Cow::Borrowed(&self.headers), body.into());
        let request = http::Request { method, headers, idempotency_key, body };
        OutgoingRequest { endpoint: &self.endpoint, peer: &self.peer, request, time_left, max_output }
    }
}

impl Model for NativeModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn takes_effort(&self) -> bool {
        match self.wire {
            Wire::Anthropic => anthropic::can_think(&self.model),
            Wire::Chat => chat::takes_effort(&self.model, self.quirks),
            Wire::Responses => responses::takes_effort(&self.model),
            Wire::Bedrock => bedrock::takes_effort(&self.model),
            Wire::Genai => true,
        }
    }

    fn ignored_settings(&self, asked: &Sampling) -> Vec<&'static str> {
        let sent = self.settings(asked).names();
        asked.clone().or(&self.sampling).names().into_iter().filter(|name| !sent.contains(name)).collect()
    }

    fn reads(&self, image: &Image) -> bool {
        attachments::reads(image, &self.card, self.wire)
    }

    fn get_ready(&self) {
        self.endpoint.open_ahead(&self.http);
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let messages = attachments::readable(request.messages, &self.card, self.wire);
            let request = request.messages(&messages);
            let mut decoder = match self.wire {
                Wire::Anthropic => anthropic::decoder(&request),
                Wire::Responses => responses::decoder(&request, &self.origin),
                Wire::Bedrock => bedrock::decoder(&request),
                Wire::Chat | Wire::Genai => chat::decoder(&request),
            };
            let mut outgoing = self.outgoing(&request);
            if let Some(signer) = &self.signer {
                let headers = outgoing.request.headers.to_mut();
                let signed = signer.sign(&self.endpoint.url, headers, &outgoing.request.body).await;
                signed.map_err(AskFailure::free)?;
            }
            let timeouts = self.timeouts.for_effort(effort::patience(&self.model, request.effort));
            let reply = match http::exchange(&self.http, &timeouts, &mut outgoing, &mut decoder, on_delta).await {
                Ok(()) => decoder.finish(),
                Err(ExchangeError::Unanswered(error)) => Err(AskFailure::free(error)),
                Err(ExchangeError::Interrupted(error)) => Err(decoder.fail(error)),
            };
            let mut reply = reply.map_err(|failure| self.rejected.note(request.messages, self.key.scrub(failure)))?;
            price(&mut reply, &self.card);
            Ok(reply)
        })
    }
}

/// Asks the server of `row` for its models.
pub(crate) async fn served_models(row: &ProviderRow, key: &ApiKey, http: &Http) -> Result<Vec<String>, ModelError> {
    let unusable = |why: RowError| ModelError::Unusable { reason: format!("provider `{}`: {why}", row.name) };
    if row.wire == Wire::Bedrock {
        return Err(ModelError::Unusable { reason: format!("provider `{}` does not list its models", row.name) });
    }
    let url = endpoint(&row.base_url, row.wire).map_err(unusable)?;
    let path = ["/chat/completions", "/responses", "/messages"]
        .iter()
        .fold(url.path().to_owned(), |path, end| path.replace(end, "/models"));
    let url = url.with_path(&path).map_err(|reason| unusable(RowError::BadUrl { url: url.to_string(), reason }))?;
    let headers = headers(row, &url, key).map_err(unusable)?;
    let body = http::fetch(http, &url, &Peer::new(&row.name, Some(&url)), headers).await?;
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let items =
        body.get("data").or_else(|| body.get("models")).unwrap_or(&body).as_array().cloned().unwrap_or_default();
    let id = |item: &serde_json::Value| item.get("id").or_else(|| item.get("name"))?.as_str().map(str::to_owned);
    Ok(items.iter().filter_map(id).filter(|id| !id.trim().is_empty()).collect())
}

/// Sets the cost of `reply`, if its price and usage are known.
pub(crate) fn price(reply: &mut Reply, card: &ModelCard) {
    if let Some(rates) = card.rates.as_ref().filter(|_| !reply.usage.estimated) {
        reply.usage.cost_micros = rates.cost(&reply.usage);
    }
}

fn headers(row: &ProviderRow, url: &Url, key: &ApiKey) -> Result<HeaderMap, RowError> {
    let mut headers = http::base_headers(url);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    if row.wire == Wire::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    for (name, value) in &row.headers {
        let header = HeaderName::try_from(name.as_str()).map_err(|_| RowError::BadHeaderName(name.clone()))?;
        let value = HeaderValue::try_from(value.as_str()).map_err(|_| RowError::BadHeaderValue(name.clone()))?;
        headers.insert(header, value);
    }
    if let Some(secret) = key.expose() {
        let (name, text) = match row.auth {
            Auth::Bearer => (AUTHORIZATION, format!("Bearer {secret}")),
            Auth::XApiKey => (HeaderName::from_static("x-api-key"), secret.to_owned()),
            Auth::ApiKey => (HeaderName::from_static("api-key"), secret.to_owned()),
        };
        let mut value = HeaderValue::try_from(text).map_err(|_| RowError::BadKey)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The URL of a model of Bedrock.
fn converse_url(base: &str, model: &str, delivery: Delivery) -> Result<Url, RowError> {
    let operation = match delivery {
        Delivery::Streamed => "converse-stream",
        Delivery::Whole => "converse",
    };
    let url = format!("{}{}", base.trim().trim_end_matches('/'), aws::model_path(model, operation));
    Url::parse(&url).map_err(|reason| RowError::BadUrl { url, reason })
}

/// The URL of the wire's endpoint below `base`, which may already contain a part of the path.
fn endpoint(base: &str, wire: Wire) -> Result<Url, RowError> {
    let (base, query) =
        base.trim().split_once('?').map_or((base.trim(), String::new()), |(base, query)| (base, format!("?{query}")));
    let mut base = base.trim_end_matches('/');
    let Some((_, after)) = base.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https")) else {
        return Err(RowError::NotHttp(base.to_owned()));
    };
    let has_path = after.contains('/');
    let path = match wire {
        Wire::Anthropic => {
            base = base.strip_suffix("/messages").unwrap_or(base);
            base = base.strip_suffix("/v1").unwrap_or(base);
            "/v1/messages"
        }
        Wire::Responses => {
            base = base.strip_suffix("/responses").unwrap_or(base);
            if has_path { "/responses" } else { "/v1/responses" }
        }
        Wire::Chat | Wire::Bedrock | Wire::Genai => {
            base = base.strip_suffix("/chat/completions").unwrap_or(base);
            if has_path { "/chat/completions" } else { "/v1/chat/completions" }
        }
    };
    let url = format!("{base}{path}{query}");
    Url::parse(&url).map_err(|reason| RowError::BadUrl { url, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_accepts_every_form_of_base_url() {
        for base in ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/chat/completions"] {
            assert_eq!(endpoint(base, Wire::Chat).unwrap().to_string(), "http://h:1/v1/chat/completions", "{base}");
        }
        assert_eq!(endpoint("https://h/api/v1", Wire::Chat).unwrap().to_string(), "https://h/api/v1/chat/completions");
        assert_eq!(
            endpoint("https://h/o/v1?api-version=1", Wire::Chat).unwrap().to_string(),
            "https://h/o/v1/chat/completions?api-version=1"
        );
        for base in ["http://h", "http://h/", "http://h/v1", "http://h/v1/", "http://h/v1/messages"] {
            assert_eq!(endpoint(base, Wire::Anthropic).unwrap().to_string(), "http://h/v1/messages", "{base}");
        }
        assert_eq!(
            endpoint("https://h/anthropic", Wire::Anthropic).unwrap().to_string(),
            "https://h/anthropic/v1/messages"
        );
        for base in ["http://h", "http://h/v1", "http://h/v1/responses"] {
            assert_eq!(endpoint(base, Wire::Responses).unwrap().to_string(), "http://h/v1/responses", "{base}");
        }
        assert!(endpoint("file:///etc/passwd", Wire::Chat).is_err());
        assert!(endpoint("", Wire::Chat).is_err());
    }
}
