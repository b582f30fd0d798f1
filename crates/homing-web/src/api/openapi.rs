//! The description of the API in OpenAPI 3.1, generated from its table and types.

use std::sync::Arc;

use hyper::StatusCode;
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json as value};

use super::{ROUTES, Route};
use crate::{
    call::{Call, Outcome, json},
    problem::Problem,
    server::Server,
};

pub(crate) async fn describe(_: Arc<Server>, _: Call) -> Outcome {
    json(StatusCode::OK, &description())
}

/// Returns the description.
pub(crate) fn description() -> Value {
    // OpenAPI 3.1 uses this version of JSON Schema.
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    let mut paths = Map::new();
    for route in ROUTES {
        let method = if route.is_post { "post" } else { "get" };
        let operation = operation(route, &mut generator);
        paths.entry(route.path).or_insert_with(|| value!({}))[method] = operation;
    }
    value!({
        "openapi": "3.1.0",
        "info": {"title": "Homing", "version": env!("CARGO_PKG_VERSION")},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Problem": {
                "description": "The request failed",
                "content": {"application/problem+json": {"schema": problem}},
            }},
            "schemas": generator.take_definitions(true),
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let schema = |name: &str| if name == "id" && !route.path.contains("questions") { "uuid" } else { "" };
    let mut parameters: Vec<Value> = in_path
        .map(|name| match schema(name) {
            "" => value!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
            format => {
                value!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "format": format}})
            }
        })
        .collect();
    parameters.extend(route.query.iter().flat_map(|query| in_query(query(generator), generator)));
    if route.path == "/api/runs" {
        parameters.push(value!({
            "name": "Idempotency-Key", "in": "header", "schema": {"type": "string"},
            "description": "A second request with the same key and task returns the run of the first",
        }));
    }
    let content = match route.response {
        Some(schema) => value!({"application/json": {"schema": schema(generator)}}),
        None if route.path.ends_with("/export") => value!({"text/html": {"schema": {"type": "string"}}}),
        None => value!({"text/event-stream": {"schema": {"type": "string"}}}),
    };
    let success = value!({"description": "Success", "content": content});
    let mut responses = value!({"200": success, "default": {"$ref": "#/components/responses/Problem"}});
    if route.creates {
        responses["201"] = value!({"description": "Created", "content": content});
        // A plan has another form.
        responses["200"] = value!({"description": "Success", "content": {"application/json": {"schema": {}}}});
    }
    let mut operation = value!({"summary": route.summary, "parameters": parameters, "responses": responses});
    if let Some(body) = route.body {
        let schema = body(generator);
        operation["requestBody"] = value!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    operation
}

/// Returns the fields of a query as parameters.
fn in_query(schema: schemars::Schema, generator: &SchemaGenerator) -> Vec<Value> {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let resolved = name.and_then(|name| generator.definitions().get(name)).unwrap_or(schema.as_value());
    let fields = resolved.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let parameter = |(name, field): (String, Value)| {
        let description = field.get("description").cloned().unwrap_or_default();
        let is_number = field.to_string().contains("\"integer\"");
        let schema = if is_number { value!({"type": "integer", "minimum": 0}) } else { value!({"type": "string"}) };
        value!({"name": name, "in": "query", "description": description, "schema": schema})
    };
    fields.into_iter().map(parameter).collect()
}
