//! How floors were kept, for those who may know.

use super::query::Params;
use super::{Ctx, Shared, json};
use crate::accounts::{self, Asked, PairTold};
use crate::problem::Problem;
use crate::state::{Actor, Role, Stored};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;
use weir_model::moment::Moment;
use weir_model::objects::Kind;
use weir_model::text::SpanText;

/// In the place of the name of a VM that one may not see.
pub(crate) const ANOTHERS: &str = "(another tenant's)";
/// How far back a report goes, if the request does not say.
const SINCE: &str = "24h";

/// `GET /api/v1/slo`.
pub(super) async fn report(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    params: Params,
) -> Result<Response, Problem> {
    params.only(&["tenant", "vm", "since"])?;
    let (tenant, vm) = (owned(&params, "tenant"), owned(&params, "vm"));
    let now = shared.clock.now();
    let from = since(&params, now)?;
    // Rows come from the disk: not on a thread that drives tasks.
    let told = tokio::task::spawn_blocking(move || {
        let asked = Asked { tenant: tenant.as_deref(), vm: vm.as_deref(), from, until: now };
        let may = |tenant: &str| actor.may_read(Some(tenant));
        let report = shared.books.report(&shared.view, &asked, may, sees_all(&actor));
        serde_json::to_string(&report)
    });
    let told = told.await.map_err(|_| broken())?.map_err(|_| broken())?;
    Ok(json(StatusCode::OK, told))
}

fn broken() -> Problem {
    Problem::new(503, "Unavailable", "request", "the accounts could not be read: ask again")
}

fn owned(params: &Params, name: &str) -> Option<String> {
    params.get(name).map(str::to_owned)
}

fn since(params: &Params, now: Moment) -> Result<Moment, Problem> {
    let text = params.get("since").unwrap_or(SINCE);
    let span = serde_json::from_value::<SpanText>(json!(text));
    let span = span.map_err(|error| {
        let detail = format!("{error}; write a span of time, such as 90min or 24h");
        Problem::new(400, "BadParameter", "query.since", detail)
    })?;
    let ms = span.0.as_nanos() / 1_000_000;
    Ok(Moment::from_millis(now.as_millis().saturating_sub(ms)))
}

/// Whether other tenants may be named.
pub(super) const fn sees_all(actor: &Actor) -> bool {
    matches!(actor.role, Role::Viewer | Role::Operator)
}

/// `GET /api/v1/pairs?vm=`.
pub(super) async fn pairs(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    params: Params,
) -> Result<Response, Problem> {
    params.only(&["vm"])?;
    let vm = params
        .get("vm")
        .ok_or_else(|| Problem::new(400, "BadParameter", "query.vm", "name a VM: vm=NAME"))?;
    readable_vm(&shared, &actor, vm)?;
    let items = seen_pairs(&shared, &actor, vm);
    Ok(json(StatusCode::OK, json!({"items": items}).to_string()))
}

/// The pairs that send now from or to a VM. VMs that one may not see have no name in them.
pub(crate) fn seen_pairs(shared: &Shared, actor: &Actor, vm: &str) -> Vec<PairTold> {
    let mut pairs = shared.books.pairs(vm);
    for end in pairs.iter_mut().flat_map(|pair| [&mut pair.from, &mut pair.to]) {
        let stored = shared.view.get(Kind::Vm, end);
        if !stored.is_some_and(|stored| actor.may_read(stored.object.owner())) {
            ANOTHERS.clone_into(end);
        }
    }
    pairs
}

/// Whether there is such a VM, for the one who asks.
pub(super) fn readable_vm(shared: &Shared, actor: &Actor, vm: &str) -> Result<(), Problem> {
    let stored = shared.view.get(Kind::Vm, vm);
    if stored.is_some_and(|stored| actor.may_read(stored.object.owner())) {
        return Ok(());
    }
    let detail = format!("there is no VM with the name `{vm}`");
    Err(Problem::new(404, "NotFound", "query.vm", detail))
}

/// `GET /api/v1/use?tenant=`, or `?vm=`.
pub(super) async fn usage(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    params: Params,
) -> Result<Response, Problem> {
    params.only(&["tenant", "vm"])?;
    let vms = match params.get("vm") {
        Some(vm) => {
            readable_vm(&shared, &actor, vm)?;
            let owner = shared.view.get(Kind::Vm, vm).and_then(|stored| key_of(&stored));
            owner.into_iter().collect()
        }
        None => keys_of(&shared, &actor, params.get("tenant")),
    };
    let series = shared.books.series(shared.clock.now(), &vms);
    let told = serde_json::to_string(&series).map_err(|_| broken())?;
    Ok(json(StatusCode::OK, told))
}

fn key_of(stored: &Stored) -> Option<String> {
    Some(accounts::key(stored.object.owner()?, stored.object.name()))
}

/// Keys of the VMs of a tenant, or of all, that one may see.
fn keys_of(shared: &Arc<Shared>, actor: &Actor, tenant: Option<&str>) -> Vec<String> {
    let (stored, _) = shared.view.all(&[Kind::Vm]);
    let wanted = |owner: Option<&str>| {
        actor.may_read(owner) && tenant.is_none_or(|tenant| owner == Some(tenant))
    };
    let those = stored.iter().filter(|stored| wanted(stored.object.owner()));
    those.filter_map(|stored| key_of(stored)).collect()
}

/// `GET /api/v1/alerts`.
pub(super) async fn alerts(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    params: Params,
) -> Result<Response, Problem> {
    params.only(&[])?;
    super::read::not_for_tenants(&actor)?;
    let items = accounts::alerts(&shared.books, &shared.view, shared.clock.now());
    Ok(json(StatusCode::OK, json!({"items": items}).to_string()))
}
