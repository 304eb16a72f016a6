//! The API's description, OpenAPI 3.1, made from the types and the routes.

use super::read::etag;
use super::{Access, ROUTES, json};
use crate::accounts::{Alert, FloorTold, PairTold, Report, Series, StretchTold};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::OnceLock;
use utoipa::ToSchema;
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathsBuilder};
use weir_model::objects::{
    API_VERSION, AgentStatus, Budget, BudgetClass, Component, Condition, Floors, Hose, HostMode,
    HostSpec, HostState, Kind, LinkSpec, LinkState, Metadata, Network, Phase, QueueMode, QueueWish,
    QueuesSpec, Quota, ReservationSpec, ReservedVm, Routing, Status, Strategy, Survival,
    SwitchDriver, SwitchPort, SwitchSpec, TenantQueue, TenantSpec, TopologySpec, TreeName, Truth,
    VmSpec,
};

/// Kind of answers for people.
const PLAIN: &str = "text/plain";

/// The document as JSON.
pub fn document() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut document = serde_json::to_value(types()).expect("a document is JSON");
        add_objects(&mut document);
        add_paths(&mut document);
        serde_json::to_string_pretty(&document).expect("a document is JSON")
    })
}

pub(super) async fn serve() -> Response {
    let mut answer = json(StatusCode::OK, document());
    answer.headers_mut().insert(axum::http::header::ETAG, etag(1));
    answer
}

fn schema<T: ToSchema>(components: ComponentsBuilder) -> ComponentsBuilder {
    components.schema(T::name(), T::schema())
}

/// The schemas that derive from types.
fn types() -> OpenApi {
    let mut all = ComponentsBuilder::new();
    for add in [
        schema::<Metadata>,
        schema::<Condition>,
        schema::<Truth>,
        schema::<Status>,
        schema::<TreeName>,
        schema::<AgentStatus>,
        schema::<Network>,
        schema::<Budget>,
        schema::<BudgetClass>,
        schema::<Phase>,
        schema::<Floors>,
        schema::<TopologySpec>,
        schema::<Routing>,
        schema::<HostSpec>,
        schema::<HostMode>,
        schema::<HostState>,
        schema::<LinkSpec>,
        schema::<LinkState>,
        schema::<SwitchSpec>,
        schema::<SwitchDriver>,
        schema::<SwitchPort>,
        schema::<QueuesSpec>,
        schema::<QueueMode>,
        schema::<QueueWish>,
        schema::<TenantQueue>,
        schema::<TenantSpec>,
        schema::<Quota>,
        schema::<Survival>,
        schema::<Strategy>,
        schema::<Component>,
        schema::<Hose>,
        schema::<VmSpec>,
        schema::<ReservationSpec>,
        schema::<ReservedVm>,
        schema::<Report>,
        schema::<FloorTold>,
        schema::<StretchTold>,
        schema::<PairTold>,
        schema::<Series>,
        schema::<Alert>,
    ] {
        all = add(all);
    }
    let info = InfoBuilder::new()
        .title("Weir controller")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Bandwidth floors of VMs: what is declared, what fits, what holds."))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .paths(PathsBuilder::new().build())
        .components(Some(all.build()))
        .build()
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn spec_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Topology => "TopologySpec",
        Kind::Host => "HostSpec",
        Kind::Link => "LinkSpec",
        Kind::Switch => "SwitchSpec",
        Kind::Tenant => "TenantSpec",
        Kind::Vm => "VmSpec",
        Kind::Reservation => "ReservationSpec",
    }
}

/// Schemas of objects and lists, one per kind, and of what the API says beside.
fn add_objects(document: &mut Value) {
    let schemas = &mut document["components"]["schemas"];
    for kind in Kind::ALL {
        let name = kind.name();
        schemas[name] = json!({
            "type": "object",
            "required": ["apiVersion", "kind", "metadata"],
            "additionalProperties": false,
            "properties": {
                "apiVersion": {"type": "string", "enum": [API_VERSION]},
                "kind": {"type": "string", "enum": [name]},
                "metadata": reference("Metadata"),
                "spec": reference(spec_of(kind)),
                "status": reference("Status"),
            },
        });
        schemas[format!("{name}List")] = json!({
            "type": "object",
            "required": ["apiVersion", "kind", "metadata", "items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string", "enum": [format!("{name}List")]},
                "metadata": {
                    "type": "object",
                    "required": ["resourceVersion", "continue"],
                    "properties": {
                        "resourceVersion": {"type": "string", "description": "A watch from here on misses nothing."},
                        "continue": {"type": "string", "description": "For the next page; empty on the last."},
                    },
                },
                "items": {"type": "array", "items": reference(name)},
            },
        });
    }
    let any: Vec<Value> = Kind::ALL.iter().map(|kind| reference(kind.name())).collect();
    schemas["Problem"] = json!({
        "type": "object",
        "description": "Why a request is refused (RFC 9457).",
        "required": ["type", "title", "status", "detail", "reason", "field"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "What is wrong and what to do."},
            "reason": {"type": "string", "description": "One word for programs, as `LinkFull`."},
            "field": {"type": "string", "description": "The part of the request that is to blame."},
            "link": {"type": "string", "description": "With LinkFull: the link and its direction."},
            "missing": {"type": "string", "description": "With LinkFull: the rate that is missing."},
            "tenants": {"type": "array", "items": {"type": "string"}, "description": "With LinkFull: who has the most of the link."},
        },
    });
    let change = json!({"type": "object", "properties": {
        "type": {"type": "string", "enum": ["ADDED", "MODIFIED", "DELETED"]},
        "object": {"anyOf": any},
    }});
    schemas["Batch"] = json!({"type": "object", "required": ["items"], "additionalProperties": false,
        "properties": {"items": {"type": "array", "items": {"anyOf": any}}}});
    schemas["BatchAnswer"] = json!({"type": "object", "required": ["items", "changes"], "properties": {
        "items": {"type": "array", "items": {"anyOf": any}},
        "changes": {"type": "array", "items": change},
    }});
    let role = json!({"type": "string", "enum": ["viewer", "tenant", "operator", "host"]});
    let token = json!({
        "name": {"type": "string", "pattern": "^[A-Za-z0-9._@-]{1,100}$"},
        "role": role,
        "tenant": {"type": ["string", "null"]},
        "host": {"type": ["string", "null"], "description": "With the role host: it works once, for this host."},
        "expires": {"type": ["string", "null"], "format": "date-time"},
    });
    schemas["WantedToken"] = json!({"type": "object", "required": ["name", "role"],
        "additionalProperties": false, "properties": token});
    let mut told = token;
    told["created"] = json!({"type": "string", "format": "date-time"});
    told["token"] =
        json!({"type": "string", "description": "The secret: only in the answer to its creation."});
    schemas["Token"] = json!({"type": "object", "properties": told});
    schemas["Room"] = room();
    schemas["TenantRoom"] = tenant_room();
    document["components"]["securitySchemes"] =
        json!({"token": {"type": "http", "scheme": "bearer"}});
}

/// What may be added where.
fn room() -> Value {
    let place = json!({
        "type": "object",
        "required": ["name", "hosts", "out", "in", "slots"],
        "properties": {
            "name": {"type": "string"},
            "hosts": {"type": "array", "items": {"type": "string"}, "description": "Hosts below a switch."},
            "out": {"type": "string", "description": "Sum of floors out that may be added."},
            "in": {"type": "string", "description": "Sum of floors in that may be added."},
            "slots": {"type": "integer", "minimum": 0, "description": "VMs that may be added."},
        },
    });
    let places = |what: &str| json!({"type": "array", "description": what, "items": place});
    let network = json!({"description": "All hosts together; null without a host.", "anyOf": [place, {"type": "null"}]});
    json!({
        "type": "object",
        "description": "Floors that keep to the room of their host, of every switch above it and of the \
                        network are admitted, but for quotas and survival. More may fit.",
        "required": ["resourceVersion", "hosts", "switches", "network"],
        "properties": {
            "resourceVersion": {"type": "string"},
            "hosts": places("Every host that is not dead."),
            "switches": places("Every switch with links upward."),
            "network": network,
        },
    })
}

/// What may be added for one tenant.
fn tenant_room() -> Value {
    let names =
        |what: &str| json!({"type": "array", "items": {"type": "string"}, "description": what});
    let place = json!({
        "type": "object",
        "required": ["name", "hosts", "switches", "out", "in", "slots"],
        "properties": {
            "name": {"type": "string"},
            "hosts": names("Hosts in it."),
            "switches": names("Switches in it, itself among them."),
            "out": {"type": "string", "description": "Sum of floors that may leave it."},
            "in": {"type": "string", "description": "Sum of floors that may enter it."},
            "slots": {"type": "integer", "minimum": 0, "description": "VMs that may be added."},
        },
    });
    let places = |what: &str| json!({"type": "array", "description": what, "items": place});
    json!({
        "type": "object",
        "description": "A VM counts on each place that has either its host or the centre, and not both: \
                        on the former as it is, on the latter with out and in exchanged. Its floors to \
                        the outside count likewise with the gateway. VMs of the tenant that keep to all \
                        places are admitted, but for quotas and survival.",
        "required": ["resourceVersion", "tenant", "tree", "centre", "gateway", "hosts", "switches"],
        "properties": {
            "resourceVersion": {"type": "string"},
            "tenant": {"type": "string"},
            "tree": {"type": "string", "description": "The root of the tree that has this room."},
            "centre": {"type": "string", "description": "A host or switch. A new tenant may have another one."},
            "gateway": {"type": ["string", "null"], "description": "The switch toward the outside."},
            "hosts": places("Hosts of the tree."),
            "switches": places("Switches of the tree but its root."),
        },
    })
}

fn add_paths(document: &mut Value) {
    let paths = &mut document["paths"];
    for route in ROUTES {
        for (path, mut operations) in operations_of(route.path) {
            if route.access == Access::Token {
                for operation in operations.as_object_mut().expect("operations").values_mut() {
                    operation["security"] = json!([{"token": []}]);
                    operation["responses"]["401"] = problem("There is no valid token.");
                }
            }
            paths[path] = operations;
        }
    }
}

/// The paths of a route with their operations: one per kind where a kind stands in the path.
fn operations_of(route: &str) -> Vec<(String, Value)> {
    let one = |operations: Value| vec![(route.to_owned(), operations)];
    match route {
        "/healthz" => one(json!({"get": text("health", "Whether the process lives", PLAIN)})),
        "/readyz" => {
            let ready = text("ready", "Whether the controller takes requests", PLAIN);
            one(json!({"get": with_problems(ready)}))
        }
        "/metrics" => {
            let kind = "application/openmetrics-text";
            let get = text("metrics", "Numbers in the format of OpenMetrics", kind);
            one(json!({"get": with_problems(get)}))
        }
        "/openapi.json" => {
            let get =
                operation("openapi", "This document", &[], None, "200", json!({"type": "object"}));
            one(json!({"get": get}))
        }
        "/api/v1/apply" => {
            let post = writing(
                "applyAll",
                "Makes or changes objects, all or none",
                &[],
                Some("Batch"),
                "200",
                "BatchAnswer",
            );
            one(json!({"post": post}))
        }
        "/api/v1/alerts" => {
            let list = items("Alert");
            let get = operation("alerts", "What has to be looked at now", &[], None, "200", list);
            one(json!({"get": with_problems(get)}))
        }
        "/api/v1/pairs" => {
            let mut vm = parameter("query", "vm", json!({"type": "string"}));
            vm["required"] = true.into();
            let what = "Pairs that send from or to a VM, as their hosts said last; of each host those with most traffic";
            let get = operation("pairs", what, &[vm], None, "200", items("PairTold"));
            one(json!({"get": with_problems(get)}))
        }
        "/api/v1/slo" => {
            let since = json!({"type": "string", "example": "24h", "default": "24h"});
            let mut since = parameter("query", "since", since);
            since["description"] = "How far back, as a span of time.".into();
            let [tenant, vm] = of_tenant_or_vm();
            let what = "How floors were kept";
            let get =
                operation("slo", what, &[tenant, vm, since], None, "200", reference("Report"));
            one(json!({"get": with_problems(get)}))
        }
        "/api/v1/use" => {
            let what = "What VMs used in the last ten minutes, in steps of ten seconds";
            let get = operation("use", what, &of_tenant_or_vm(), None, "200", reference("Series"));
            one(json!({"get": with_problems(get)}))
        }
        "/api/v1/audit" => {
            let items = json!({"type": "object", "properties": {"items": {"type": "array", "items": {"type": "object"}}}});
            let limit = parameter(
                "query",
                "limit",
                json!({"type": "integer", "minimum": 1, "maximum": 10000}),
            );
            let get = operation(
                "audit",
                "The latest changes and who made them",
                &[limit],
                None,
                "200",
                items,
            );
            one(json!({"get": with_problems(get)}))
        }
        "/api/v1/backup" => {
            let get = text("backup", "All records as lines of JSON", "application/x-ndjson");
            one(json!({"get": with_problems(get)}))
        }
        "/api/v1/room" => {
            let what = "Room for schedulers that can only add, for any tenants or for one";
            let mut tenant = parameter("query", "tenant", json!({"type": "string"}));
            tenant["description"] =
                "The answer is a TenantRoom then. The tenant need not be there yet.".into();
            let either = json!({"anyOf": [reference("Room"), reference("TenantRoom")]});
            let get = operation("room", what, &[tenant], None, "200", either);
            one(json!({"get": with_problems(get)}))
        }
        "/api/v1/tokens" => {
            let list = json!({"type": "object", "properties": {"items": {"type": "array", "items": reference("Token")}}});
            let get =
                operation("listTokens", "All tokens without their secrets", &[], None, "200", list);
            let post = writing(
                "createToken",
                "Makes a token; the answer has its secret, once",
                &[],
                Some("WantedToken"),
                "201",
                "Token",
            );
            one(json!({"get": with_problems(get), "post": post}))
        }
        "/api/v1/tokens/{name}" => {
            let delete = operation(
                "deleteToken",
                "Makes a token worthless",
                &[name()],
                None,
                "200",
                json!({"type": "object"}),
            );
            one(json!({"delete": with_problems(delete)}))
        }
        "/api/v1/reservations/{name}/confirm" => {
            let post = writing(
                "confirmReservation",
                "Turns a held reservation into VMs; twice is once",
                &[name()],
                None,
                "200",
                "Reservation",
            );
            one(json!({"post": post}))
        }
        "/api/v1/reservations/{name}/release" => {
            let post = writing(
                "releaseReservation",
                "Gives the room of a held reservation back",
                &[name()],
                None,
                "200",
                "Reservation",
            );
            one(json!({"post": post}))
        }
        "/api/v1/hosts/{name}/revoke" => {
            let post = writing(
                "revokeHost",
                "Refuses the certificates that a host has; it may join again with a new token",
                &[name()],
                None,
                "200",
                "Host",
            );
            one(json!({"post": post}))
        }
        "/api/v1/{kind}" => {
            Kind::ALL.map(|kind| (format!("/api/v1/{}", kind.plural()), collection(kind))).into()
        }
        "/api/v1/{kind}/{name}" => Kind::ALL
            .map(|kind| (format!("/api/v1/{}/{{name}}", kind.plural()), single(kind)))
            .into(),
        other => unreachable!("{other} is not described"),
    }
}

fn items(name: &str) -> Value {
    json!({"type": "object", "required": ["items"], "properties": {
        "items": {"type": "array", "items": reference(name)},
    }})
}

fn of_tenant_or_vm() -> [Value; 2] {
    ["tenant", "vm"].map(|name| parameter("query", name, json!({"type": "string"})))
}

fn collection(kind: Kind) -> Value {
    let word = json!({"type": "string"});
    let parameters = [
        parameter(
            "query",
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": 10000, "default": 1000}),
        ),
        parameter("query", "continue", word.clone()),
        parameter("query", "tenant", word),
        parameter(
            "query",
            "watch",
            json!({"type": "boolean", "description": "Changes as lines of JSON, or as server-sent events."}),
        ),
        parameter(
            "query",
            "resourceVersion",
            json!({"type": "string", "pattern": "^[0-9]+$", "description": "With watch: only later changes."}),
        ),
    ];
    let what = format!("list{kind}s");
    let list = reference(&format!("{kind}List"));
    let mut get = operation(
        &what,
        &format!("Objects of kind {kind}, or their changes"),
        &parameters,
        None,
        "200",
        list,
    );
    get["responses"]["200"]["content"]["application/x-ndjson"] =
        json!({"schema": {"type": "string"}});
    get["responses"]["200"]["content"]["text/event-stream"] = json!({"schema": {"type": "string"}});
    get["responses"]["410"] = problem("The version is too old: list again.");
    let post = writing(
        &format!("create{kind}"),
        &format!("Makes a {kind}"),
        &[],
        Some(kind.name()),
        "201",
        kind.name(),
    );
    json!({"get": with_problems(get), "post": with_link(kind, post, "201")})
}

fn single(kind: Kind) -> Value {
    let get = operation(
        &format!("get{kind}"),
        &format!("One {kind}"),
        &[name()],
        None,
        "200",
        reference(kind.name()),
    );
    let seen =
        parameter("header", "If-Match", json!({"type": "string", "pattern": "^\"[0-9]+\"$"}));
    let parameters = [name(), seen];
    let mut put = writing(
        &format!("apply{kind}"),
        &format!("Makes or changes a {kind}"),
        &parameters,
        Some(kind.name()),
        "200",
        kind.name(),
    );
    put["responses"]["201"] = put["responses"]["200"].clone();
    let delete = writing(
        &format!("delete{kind}"),
        &format!("Removes a {kind}"),
        &parameters,
        None,
        "200",
        kind.name(),
    );
    json!({"get": with_problems(get), "put": put, "delete": delete})
}

fn name() -> Value {
    let mut parameter = parameter("path", "name", json!({"type": "string"}));
    parameter["required"] = true.into();
    parameter
}

fn parameter(place: &str, name: &str, schema: Value) -> Value {
    json!({"in": place, "name": name, "schema": schema})
}

fn operation(
    id: &str,
    summary: &str,
    parameters: &[Value],
    body: Option<&str>,
    code: &str,
    answer: Value,
) -> Value {
    let mut operation = json!({
        "operationId": id,
        "summary": summary,
        "parameters": parameters,
        "responses": {code: {"description": "Done.", "content": {"application/json": {"schema": answer}}}},
    });
    if let Some(body) = body {
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": reference(body)}}});
    }
    operation
}

/// An operation that changes something.
fn writing(
    id: &str,
    summary: &str,
    parameters: &[Value],
    body: Option<&str>,
    code: &str,
    answer: &str,
) -> Value {
    let mut parameters = parameters.to_vec();
    parameters.push(parameter("query", "dryRun", json!({"type": "string", "enum": ["All"]})));
    parameters.push(parameter(
        "header",
        "Idempotency-Key",
        json!({"type": "string", "minLength": 1, "maxLength": 255}),
    ));
    let mut operation = operation(id, summary, &parameters, body, code, reference(answer));
    if code == "201" {
        operation["responses"]["200"] = operation["responses"]["201"].clone();
        operation["responses"]["200"]["description"] =
            "A dry run: this would be made, and nothing was.".into();
    }
    with_problems(operation)
}

fn with_problems(mut operation: Value) -> Value {
    for (code, what) in [
        ("307", "Another controller leads: send the request to `Location`."),
        ("400", "The request cannot be read."),
        ("403", "The token does not allow it."),
        ("404", "There is no such object."),
        ("409", "It does not fit what is there."),
        ("412", "The object has a newer version."),
        ("413", "The body is too large."),
        ("415", "The body is not JSON."),
        ("422", "A field is wrong."),
        ("503", "Not now."),
        ("507", "The disk is full."),
    ] {
        operation["responses"][code] = problem(what);
    }
    operation
}

/// What was made can be read, changed and removed.
fn with_link(kind: Kind, mut operation: Value, code: &str) -> Value {
    let mut links = json!({});
    for verb in ["get", "apply", "delete"] {
        links[verb] = json!({
            "operationId": format!("{verb}{kind}"),
            "parameters": {"name": "$response.body#/metadata/name"},
        });
    }
    if kind == Kind::Tenant {
        links["vms"] = json!({
            "operationId": format!("list{}s", Kind::Vm),
            "parameters": {"tenant": "$response.body#/metadata/name"},
        });
    }
    if kind == Kind::Reservation {
        for verb in ["confirm", "release"] {
            links[verb] = json!({
                "operationId": format!("{verb}Reservation"),
                "parameters": {"name": "$response.body#/metadata/name"},
            });
        }
    }
    operation["responses"][code]["links"] = links;
    operation
}

fn text(id: &str, summary: &str, kind: &str) -> Value {
    json!({
        "operationId": id,
        "summary": summary,
        "responses": {"200": {"description": "Done.", "content": {kind: {"schema": {"type": "string"}}}}},
    })
}

fn problem(what: &str) -> Value {
    json!({"description": what, "content": {"application/problem+json": {"schema": reference("Problem")}}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match value.as_str() {
                        Some(text) if key == "$ref" => found.extend([text.to_owned()]),
                        _ => references(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_of_the_document_exists_and_every_operation_has_a_name_of_its_own() {
        let document: Value = serde_json::from_str(document()).expect("JSON");
        assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let mut names = BTreeSet::new();
        let paths = document["paths"].as_object().expect("paths");
        assert_eq!(paths.len(), ROUTES.len() - 2 + 2 * Kind::ALL.len());
        for operation in
            paths.values().flat_map(|path| path.as_object().expect("operations").values())
        {
            let name = operation["operationId"].as_str().expect("a name").to_owned();
            assert!(names.insert(name.clone()), "{name}");
        }
    }
}
