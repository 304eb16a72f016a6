//! The pages.

use super::parts::{chart, colour, conditions, held, live, rate, state};
use super::{refused, shell};
use crate::accounts::{Asked, Report, Sum, alerts as all_alerts, key};
use crate::http::{ANOTHERS, Ctx, Shared, seen_pairs};
use crate::problem::Problem;
use crate::state::{Actor, Role, Stored};
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use maud::{Markup, html};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_core::accounts::Cause;
use weir_core::rate::Phase;
use weir_model::moment::Moment;
use weir_model::objects::{Kind, Spec, VmSpec};
use weir_units::show;

/// VMs in a table or a map. More are in `weir get vms` and `weir slo report`.
pub(super) const ROWS: usize = 500;
/// How far back maps and lists of broken floors go, ms, and into how many columns a map is cut.
const BACK: u64 = 24 * 3_600_000;
const COLUMNS: usize = 96;

/// What a head of a column says of the ideal.
const IDEAL: &str =
    "If all that is spare was divided in proportion to floors, over all links, this instant";

/// A VM as pages need it.
struct Vm {
    name: String,
    spec: VmSpec,
    stored: Arc<Stored>,
}

fn vms(shared: &Shared, actor: &Actor, tenant: Option<&str>) -> Vec<Vm> {
    let (stored, _) = shared.view.all(&[Kind::Vm]);
    let may =
        |owner: &str| actor.may_read(Some(owner)) && tenant.is_none_or(|tenant| owner == tenant);
    let of = |stored: Arc<Stored>| match &stored.object.spec {
        Spec::Vm(spec) if may(&spec.tenant) => {
            let (name, spec) = (stored.object.name().to_owned(), spec.clone());
            Some(Vm { name, spec, stored })
        }
        _ => None,
    };
    stored.into_iter().filter_map(of).collect()
}

/// Work that reads the disk: not on a thread that drives tasks.
pub(super) async fn apart(make: impl FnOnce() -> Response + Send + 'static) -> Response {
    match tokio::task::spawn_blocking(make).await {
        Ok(answer) => answer,
        Err(_) => {
            use axum::response::IntoResponse as _;
            Problem::new(503, "Unavailable", "request", "the page could not be made: load it again")
                .into_response()
        }
    }
}

/// The refusal, for those who may see one tenant only.
pub(super) fn of_one_tenant(actor: &Actor) -> Option<Response> {
    match actor.role {
        Role::Viewer | Role::Operator => None,
        _ => {
            let detail = "this page shows all tenants, and this token may see one";
            Some(refused(actor, &Problem::new(403, "Forbidden", "path", detail)))
        }
    }
}

/// `GET /ui`: all tenants.
pub(super) async fn overview(State(shared): Ctx, Extension(actor): Extension<Actor>) -> Response {
    apart(move || {
        let mut tenants: BTreeMap<String, Vec<Vm>> = BTreeMap::new();
        for stored in &shared.view.all(&[Kind::Tenant]).0 {
            if actor.may_read(stored.object.owner()) {
                tenants.entry(stored.object.name().into()).or_default();
            }
        }
        for vm in vms(&shared, &actor, None) {
            tenants.entry(vm.spec.tenant.clone()).or_default().push(vm);
        }
        let sees_all = matches!(actor.role, Role::Viewer | Role::Operator);
        let bad = if sees_all { all_alerts(&shared.books, &shared.view, shared.clock.now()).len() } else { 0 };
        let observing = if sees_all { shared.books.observing() } else { Vec::new() };
        let rows = tenants.iter().map(|(name, vms)| tenant_row(&shared, name, vms));
        let rows: Vec<Markup> = rows.collect();
        let content = html! {
            @if bad > 0 { p.bad { a href="/ui/alerts" { (bad) (if bad == 1 { " alert" } else { " alerts" }) } } }
            @if !observing.is_empty() {
                p.notice {
                    "Only observed, nothing is enforced: " (observing.iter().take(10).cloned().collect::<Vec<_>>().join(", "))
                    @if observing.len() > 10 { " and " (observing.len() - 10) " more" }
                }
            }
            table.sorted {
                thead { tr {
                    th { "tenant" } th { "VMs" } th { "promised out" } th { "sends" } th title=(IDEAL) { "ideal out" }
                    th { "promised in" } th { "receives" } th title=(IDEAL) { "ideal in" }
                    th { "floors held, 10 min" } th { "borrows" } th { "state" }
                } }
                tbody { @for row in &rows { (row) } }
            }
            @if rows.is_empty() { p { "There is no tenant yet: " code { "weir apply -f FILE" } } }
        };
        let source = "/api/v1/use";
        let main = html! { (live("tenants", 2, &content)) (chart("All that you may see", source)) };
        shell(&actor, "Tenants", &main)
    })
    .await
}

fn tenant_row(shared: &Shared, name: &str, vms: &[Vm]) -> Markup {
    let keys: Vec<String> = vms.iter().map(|vm| key(name, &vm.name)).collect();
    let (sums, now) = shared.books.lately(shared.clock.now(), &keys);
    let out: u64 = vms.iter().map(|vm| vm.spec.floor.out.0.as_bps()).sum();
    let inward: u64 = vms.iter().map(|vm| vm.spec.floor.inward.0.as_bps()).sum();
    let object = shared.view.get(Kind::Tenant, name);
    let ideal = shared.books.ideal(&keys);
    html! {
        tr {
            td { a href=(format!("/ui/tenants/{name}")) { (name) } }
            td { (vms.len()) }
            td { (rate(out)) }
            td { (rate(now[0].all)) }
            td { (rate(ideal[0])) }
            td { (rate(inward)) }
            td { (rate(now[1].all)) }
            td { (rate(ideal[1])) }
            td { (held(sums[0])) }
            td { (rate(now[0].borrowed)) }
            td { @if let Some(object) = &object { (state(&object.object)) } }
        }
    }
}

/// `GET /ui/tenants/{name}`.
pub(super) async fn tenant(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Response {
    apart(move || {
        let stored = shared.view.get(Kind::Tenant, &name);
        let Some(stored) = stored.filter(|stored| actor.may_read(stored.object.owner())) else {
            let detail = format!("there is no tenant `{name}`");
            return refused(&actor, &Problem::new(404, "NotFound", "path", detail));
        };
        let vms = vms(&shared, &actor, Some(&name));
        let now = shared.clock.now();
        let from = Moment::from_millis(now.as_millis().saturating_sub(BACK));
        let shown = &vms[..vms.len().min(ROWS)];
        let rows = html! {
            table.sorted {
                thead { tr {
                    th { "VM" } th { "host" } th { "promised out" } th { "sends" } th title=(IDEAL) { "ideal out" }
                    th { "promised in" } th { "receives" } th title=(IDEAL) { "ideal in" }
                    th { "out held, 10 min" } th { "in held" } th { "state" }
                } }
                tbody { @for vm in shown { (vm_row(&shared, vm)) } }
            }
            @if vms.len() > ROWS { p { (vms.len() - ROWS) " more: " code { "weir get vms --tenant " (name) } } }
        };
        let names: Vec<String> = shown.iter().map(|vm| vm.name.clone()).collect();
        let asked = Asked { tenant: Some(&name), vm: None, from, until: now };
        let report = shared.books.report(
            &shared.view,
            &asked,
            |tenant| actor.may_read(Some(tenant)),
            actor.role != Role::Tenant,
        );
        let main = html! {
            (live("vms", 2, &rows))
            (chart("The tenant's VMs together", &format!("/api/v1/use?tenant={name}")))
            (live("map", 60, &map(&shared, &name, &names, from, now)))
            (live("broken", 10, &broken(&report)))
            (live("conditions", 5, &conditions(&stored.object)))
        };
        shell(&actor, &format!("Tenant {name}"), &main)
    })
    .await
}

fn vm_row(shared: &Shared, vm: &Vm) -> Markup {
    let key = [key(&vm.spec.tenant, &vm.name)];
    let (sums, now) = shared.books.lately(shared.clock.now(), &key);
    let ideal = shared.books.ideal(&key);
    html! {
        tr {
            td { a href=(format!("/ui/vms/{}", vm.name)) { (vm.name) } }
            td { (vm.stored.object.status.host.as_deref().unwrap_or("–")) }
            td { (rate(vm.spec.floor.out.0.as_bps())) }
            td { (rate(now[0].all)) }
            td { (rate(ideal[0])) }
            td { (rate(vm.spec.floor.inward.0.as_bps())) }
            td { (rate(now[1].all)) }
            td { (rate(ideal[1])) }
            td { (held(sums[0])) }
            td { (held(sums[1])) }
            td { (state(&vm.stored.object)) }
        }
    }
}

/// VMs × time: the part of the windows in which floors were held, out and in.
fn map(shared: &Shared, tenant: &str, names: &[String], from: Moment, until: Moment) -> Markup {
    let keys: Vec<String> = names.iter().map(|name| key(tenant, name)).collect();
    let rows = shared.books.map(&keys, from, until, COLUMNS);
    let tested: Vec<_> =
        names.iter().zip(rows).filter(|(_, row)| row.iter().any(Option::is_some)).collect();
    let step = (until.as_millis() - from.as_millis()) / COLUMNS as u64;
    let (cell, height, left) = (9, 14, 130);
    let (width, tall) = (left + COLUMNS * cell, tested.len() * height + 4);
    html! {
        h2 { "Floors held, last 24 hours" }
        @if tested.is_empty() { p { "No floor was put to the test: no pair wanted more than it had." } }
        @else {
            p.legend {
                span.h-good { "≥ 99.9 %" } " " span.h-fair { "≥ 99 %" } " " span.h-poor { "≥ 90 %" } " "
                span.h-bad { "less" } " " span.h-none { "not tested" }
            }
            svg.map viewBox=(format!("0 0 {width} {tall}")) role="img" aria-label="Floors held by VM and time" {
                @for (row, (name, shares)) in tested.iter().enumerate() {
                    text x="0" y=(row * height + 11) { (name) }
                    @for (column, share) in shares.iter().enumerate() {
                        @if share.is_some() {
                            rect class=(colour(*share)) x=(left + column * cell) y=(row * height + 1)
                                width=(cell - 1) height=(height - 2) {
                                title {
                                    (name) ", " (Moment::from_millis(from.as_millis() + column as u64 * step).to_string())
                                    ": " (format!("{:.1} %", share.unwrap_or_default() * 100.0))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn broken(report: &Report) -> Markup {
    html! {
        h2 { "Floors broken, last 24 hours" }
        @if report.broken.is_empty() { p { "None." } }
        @else {
            table {
                thead { tr {
                    th { "from" } th { "to" } th { "began" } th { "lasted" } th { "got of owed" } th { "lost" } th { "cause" }
                    th { "borrowed most" }
                } }
                tbody {
                    @for one in report.broken.iter().take(100) {
                        tr {
                            td { a href=(format!("/ui/vms/{}", one.from)) { (one.from) } }
                            td { a href=(format!("/ui/vms/{}", one.to)) { (one.to) } }
                            td { (one.begin.to_string()) }
                            td { (format!("{:.0} s", one.seconds)) }
                            td { (format!("{:.2}", one.got as f64 / one.owed.max(1) as f64)) }
                            td { (one.lost) }
                            td { (cause(&one.cause)) }
                            td { (one.took) }
                        }
                    }
                }
            }
            @if report.more || report.broken.len() > 100 { p { "There are more: " code { "weir slo report" } } }
        }
    }
}

/// A cause in words.
fn cause(word: &str) -> String {
    serde_json::from_value::<Cause>(word.into())
        .map_or_else(|_| word.into(), |cause| cause.to_string())
}

/// `GET /ui/vms/{name}`.
pub(super) async fn vm(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Response {
    apart(move || {
        let stored = shared.view.get(Kind::Vm, &name);
        let Some(stored) = stored.filter(|stored| actor.may_read(stored.object.owner())) else {
            let detail = format!("there is no VM `{name}`");
            return refused(&actor, &Problem::new(404, "NotFound", "path", detail));
        };
        let Spec::Vm(spec) = &stored.object.spec else { unreachable!("it is a VM") };
        let now = shared.clock.now();
        let from = Moment::from_millis(now.as_millis().saturating_sub(BACK));
        let asked = Asked { tenant: None, vm: Some(&name), from, until: now };
        let report = shared.books.report(
            &shared.view,
            &asked,
            |tenant| actor.may_read(Some(tenant)),
            actor.role != Role::Tenant,
        );
        let host = stored.object.status.host.as_deref().unwrap_or("–");
        let pairs = seen_pairs(&shared, &actor, &name);
        let facts = html! {
            dl {
                dt { "tenant" } dd { a href=(format!("/ui/tenants/{}", spec.tenant)) { (spec.tenant) } }
                dt { "host" } dd { (host) }
                dt { "promised" } dd { (rate(spec.floor.out.0.as_bps())) " out, " (rate(spec.floor.inward.0.as_bps())) " in" }
                dt { "state" } dd { (state(&stored.object)) }
            }
        };
        let table = html! {
            h2 { "Pairs now" }
            @if pairs.is_empty() { p { "None sends, or their hosts are silent." } }
            @else {
                table.sorted {
                    thead { tr {
                        th { "from" } th { "to" } th { "floor" } th { "may send" } th { "sends" } th title=(IDEAL) { "ideal" }
                        th { "lost" } th { "why" }
                    } }
                    tbody {
                        @for pair in &pairs {
                            tr {
                                @for end in [&pair.from, &pair.to] {
                                    td {
                                        @if end == ANOTHERS { (end) }
                                        @else { a href=(format!("/ui/vms/{end}")) { (end) } }
                                    }
                                }
                                td { (rate(pair.floor)) }
                                td { (rate(pair.rate)) }
                                td { (rate(pair.sent)) }
                                td { (pair.ideal.map_or_else(|| "–".into(), rate)) }
                                td { (pair.lost) }
                                td { (why(&pair.phase)) }
                            }
                        }
                    }
                }
                p { "All reasons, on the host of the sender: " code { "weir explain FROM TO" } }
            }
        };
        let main = html! {
            (live("facts", 5, &facts))
            (live("pairs", 2, &table))
            (chart("What it sends and receives", &format!("/api/v1/use?vm={name}")))
            (live("floors", 10, &floors(&report)))
            (live("broken", 10, &broken(&report)))
            (live("conditions", 5, &conditions(&stored.object)))
        };
        shell(&actor, &format!("VM {name}"), &main)
    })
    .await
}

/// The state of a pair's law in words.
fn why(phase: &str) -> String {
    let known = Phase::ALL.into_iter().find(|known| known.to_string() == phase);
    let text = match (known, phase) {
        (Some(known), _) => known.meaning(),
        (_, "unseen") => {
            "it does not borrow, for its packets carry no numbers that a receiver sees"
        }
        (_, "no-signal") => "it does not borrow, for losses of its packets would not show",
        (_, "misdirected") => {
            "it does not borrow, for less arrives than is sent, and no loss shows"
        }
        _ => return phase.to_owned(),
    };
    format!("{phase}: {text}")
}

fn floors(report: &Report) -> Markup {
    html! {
        h2 { "Last 24 hours" }
        table {
            thead { tr {
                th { "direction" } th { "floor" } th { "held" } th { "tested" } th { "carried" } th { "borrowed" } th { "used (p95)" }
            } }
            tbody {
                @for floor in &report.floors {
                    @let sum = Sum { windows: floor.windows, held: floor.held, ..Sum::default() };
                    tr {
                        td { (floor.direction) }
                        td { (rate(floor.floor)) }
                        td { (held(sum)) }
                        td { (floor.windows) " s" }
                        td { (show::amount(floor.all as f64)) }
                        td { (show::amount(floor.borrowed as f64)) }
                        td { (rate(floor.used_p95)) }
                    }
                }
            }
        }
        p { "Used (p95): a floor of this size would carry what the VM did in 95 of 100 five minutes." }
    }
}

/// `GET /ui/alerts`.
pub(super) async fn alerts(State(shared): Ctx, Extension(actor): Extension<Actor>) -> Response {
    if let Some(answer) = of_one_tenant(&actor) {
        return answer;
    }
    let all = all_alerts(&shared.books, &shared.view, shared.clock.now());
    let content = html! {
        @if all.is_empty() { p.good { "Nothing has to be looked at." } }
        @else {
            table.sorted {
                thead { tr { th { "alert" } th { "about" } th { "since" } th { "says" } } }
                tbody {
                    @for alert in all.iter().take(ROWS) {
                        tr {
                            td.h-bad { (alert.name) }
                            td {
                                @match alert.kind.as_str() {
                                    "VM" => a href=(format!("/ui/vms/{}", alert.object)) { "VM " (alert.object) },
                                    "Tenant" => a href=(format!("/ui/tenants/{}", alert.object)) { "Tenant " (alert.object) },
                                    kind => { (kind) " " (alert.object) },
                                }
                            }
                            td { @if let Some(since) = alert.since { (since.to_string()) } }
                            td { (alert.message) }
                        }
                    }
                }
            }
            @if all.len() > ROWS { p { (all.len() - ROWS) " more" } }
            p { "What to do about each is in the documents: Watching floors, Alerts (" code { "docs/watching.md" } ")." }
        }
    };
    shell(&actor, "Alerts", &live("alerts", 2, &content))
}
