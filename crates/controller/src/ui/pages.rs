//! The pages.

use super::heat::{Row, clock, heat};
use super::parts::{Wanted, conditions, held, more, rate, state};
use super::{refused, shell};
use crate::accounts::{Asked, COLUMN, FloorTold, Sum, alerts as all_alerts, key};
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

/// Rows of a table. More are in `weir get` and `weir slo report`.
pub(super) const ROWS: usize = 500;
/// Stretches in a list of broken floors.
const BROKEN: usize = 100;
/// How far back lists of broken floors go, ms.
const BACK: u64 = 24 * 3_600_000;

/// What a head of a column says of the ideal.
const IDEAL: &str =
    "If all that is spare was divided in proportion to floors, over all links, this instant";

/// VMs that one may see, of a tenant or of all.
fn vms(shared: &Shared, actor: &Actor, tenant: Option<&str>) -> Vec<Arc<Stored>> {
    let (mut stored, _) = shared.view.all(&[Kind::Vm]);
    stored.retain(|stored| {
        let owner = &spec_of(stored).tenant;
        actor.may_read(Some(owner)) && tenant.is_none_or(|tenant| owner == tenant)
    });
    stored
}

/// What is wanted of a VM.
fn spec_of(stored: &Stored) -> &VmSpec {
    match &stored.object.spec {
        Spec::Vm(spec) => spec,
        _ => unreachable!("the view keeps kinds apart"),
    }
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
pub(super) async fn overview(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    wanted: Wanted,
) -> Response {
    apart(move || {
        let mut tenants: BTreeMap<String, Vec<Arc<Stored>>> = BTreeMap::new();
        for stored in &shared.view.all(&[Kind::Tenant]).0 {
            if actor.may_read(stored.object.owner()) {
                tenants.entry(stored.object.name().into()).or_default();
            }
        }
        let main = html! {
            (wanted.live("now", 5, || now(&shared, &actor)))
            (wanted.live("map", 60, || map(&shared, tenants.keys())))
            (wanted.chart("All that you may see", "/api/v1/use"))
            (wanted.live("tenants", 2, || {
                for vm in vms(&shared, &actor, None) {
                    // A VM's tenant may have been made since.
                    tenants.entry(spec_of(&vm).tenant.clone()).or_default().push(vm);
                }
                tenant_table(&shared, &tenants)
            }))
        };
        shell(&actor, "Tenants", &main)
    })
    .await
}

/// What has to be known before all else.
fn now(shared: &Shared, actor: &Actor) -> Markup {
    if !matches!(actor.role, Role::Viewer | Role::Operator) {
        return html! {};
    }
    let bad = all_alerts(&shared.books, &shared.view, shared.clock.now()).len();
    let observing = shared.books.observing();
    html! {
        @if bad > 0 { p.bad { a href="/ui/alerts" { (bad) (if bad == 1 { " alert" } else { " alerts" }) } } }
        @if !observing.is_empty() {
            p.notice {
                "Only observed, nothing is enforced: " (observing.iter().take(10).cloned().collect::<Vec<_>>().join(", "))
                @if observing.len() > 10 { " and " (observing.len() - 10) " more" }
            }
        }
    }
}

/// Tenants × time: the part of the windows in which floors were held, out and in.
fn map<'a>(shared: &Shared, tenants: impl Iterator<Item = &'a String> + Clone) -> Markup {
    let names = tenants.clone().map(String::as_str);
    let (columns, rows) = shared.books.course(names, shared.clock.now());
    let row = |(name, cells): (&String, _)| {
        let page = format!("/ui/tenants/{name}");
        Row { name: name.clone(), page, cells }
    };
    heat("tenant", &columns, tenants.zip(rows).map(row).collect())
}

fn tenant_table(shared: &Shared, tenants: &BTreeMap<String, Vec<Arc<Stored>>>) -> Markup {
    html! {
        table.sorted {
            caption { "Now" }
            thead { tr {
                th { "tenant" } th { "VMs" } th { "promised out" } th { "sends" } th title=(IDEAL) { "ideal out" }
                th { "promised in" } th { "receives" } th title=(IDEAL) { "ideal in" }
                th { "floors held, 10 min" } th { "borrows" } th { "state" }
            } }
            tbody { @for (name, vms) in tenants.iter().take(ROWS) { (tenant_row(shared, name, vms)) } }
        }
        @if tenants.is_empty() { p { "There is no tenant yet: " code { "weir apply -f FILE" } } }
        (more(tenants.len(), ROWS, "weir get tenants"))
    }
}

fn tenant_row(shared: &Shared, name: &str, vms: &[Arc<Stored>]) -> Markup {
    let keys: Vec<String> = vms.iter().map(|vm| key(name, vm.object.name())).collect();
    let (sums, now) = shared.books.lately(shared.clock.now(), &keys);
    let out: u64 = vms.iter().map(|vm| spec_of(vm).floor.out.0.as_bps()).sum();
    let inward: u64 = vms.iter().map(|vm| spec_of(vm).floor.inward.0.as_bps()).sum();
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
    wanted: Wanted,
) -> Response {
    apart(move || {
        let stored = shared.view.get(Kind::Tenant, &name);
        let Some(stored) = stored.filter(|stored| actor.may_read(stored.object.owner())) else {
            let detail = format!("there is no tenant `{name}`");
            return refused(&actor, &Problem::new(404, "NotFound", "path", detail));
        };
        let vms = vms(&shared, &actor, Some(&name));
        let shown = &vms[..vms.len().min(ROWS)];
        let source = format!("/api/v1/use?tenant={name}");
        let main = html! {
            (wanted.live("vms", 2, || vm_table(&shared, shown, vms.len(), &name)))
            (wanted.chart("The tenant's VMs together", &source))
            (wanted.live("map", 60, || map_of_vms(&shared, &name, shown)))
            (wanted.live("broken", 10, || broken(&shared, &actor, Of::Tenant(&name), wanted.at)))
            (wanted.live("conditions", 5, || conditions(&stored.object)))
        };
        shell(&actor, &format!("Tenant {name}"), &main)
    })
    .await
}

fn vm_table(shared: &Shared, shown: &[Arc<Stored>], count: usize, tenant: &str) -> Markup {
    html! {
        table.sorted {
            thead { tr {
                th { "VM" } th { "host" } th { "promised out" } th { "sends" } th title=(IDEAL) { "ideal out" }
                th { "promised in" } th { "receives" } th title=(IDEAL) { "ideal in" }
                th { "out held, 10 min" } th { "in held" } th { "state" }
            } }
            tbody { @for vm in shown { (vm_row(shared, vm)) } }
        }
        (more(count, shown.len(), &format!("weir get vms --tenant {tenant}")))
    }
}

fn vm_row(shared: &Shared, vm: &Stored) -> Markup {
    let (name, spec) = (vm.object.name(), spec_of(vm));
    let key = [key(&spec.tenant, name)];
    let (sums, now) = shared.books.lately(shared.clock.now(), &key);
    let ideal = shared.books.ideal(&key);
    html! {
        tr {
            td { a href=(format!("/ui/vms/{name}")) { (name) } }
            td { (vm.object.status.host.as_deref().unwrap_or("–")) }
            td { (rate(spec.floor.out.0.as_bps())) }
            td { (rate(now[0].all)) }
            td { (rate(ideal[0])) }
            td { (rate(spec.floor.inward.0.as_bps())) }
            td { (rate(now[1].all)) }
            td { (rate(ideal[1])) }
            td { (held(sums[0])) }
            td { (held(sums[1])) }
            td { (state(&vm.object)) }
        }
    }
}

/// VMs × time: the part of the windows in which floors were held, out and in.
fn map_of_vms(shared: &Shared, tenant: &str, vms: &[Arc<Stored>]) -> Markup {
    let names = vms.iter().map(|vm| vm.object.name());
    let (columns, rows) = shared.books.course_of_vms(tenant, names.clone(), shared.clock.now());
    let row = |(name, cells): (&str, _)| {
        let (name, page) = (name.to_owned(), format!("/ui/vms/{name}"));
        Row { name, page, cells }
    };
    heat("VM", &columns, names.zip(rows).map(row).collect())
}

/// Floors of what were broken.
#[derive(Clone, Copy)]
enum Of<'a> {
    Tenant(&'a str),
    Vm(&'a str),
}

/// Stretches in which floors were broken: of a day, or those that reach into a half hour.
fn broken(shared: &Shared, actor: &Actor, of: Of<'_>, at: Option<u64>) -> Markup {
    let now = shared.clock.now();
    let (tenant, vm, page) = match of {
        Of::Tenant(name) => (Some(name), None, format!("/ui/tenants/{name}")),
        Of::Vm(name) => (None, Some(name), format!("/ui/vms/{name}")),
    };
    let until = at.map_or(now.as_millis(), |at| at.saturating_add(COLUMN - 1));
    // A stretch counts where it began, and may be long.
    let from = Moment::from_millis(until.saturating_sub(BACK));
    let asked = Asked { tenant, vm, from, until: Moment::from_millis(until) };
    let (stretches, has_more, is_whole) = shared.books.stretches(
        &asked,
        |tenant| actor.may_read(Some(tenant)),
        actor.role != Role::Tenant,
        |stretch| at.is_none_or(|at| stretch.end.as_millis() >= at),
    );
    html! {
        @match at {
            None => h2 { "Floors broken, last 24 hours" },
            Some(at) => {
                h2 {
                    "Floors broken, " (Moment::from_millis(at).to_string()[..10]) " " (clock(at)) "–"
                    (clock(at.saturating_add(COLUMN))) " UTC"
                }
                p { a href=(format!("{page}#broken")) { "All of the last 24 hours" } }
            }
        }
        @if stretches.is_empty() { p { "None." } }
        @else {
            table {
                thead { tr {
                    th { "from" } th { "to" } th { "began" } th { "lasted" } th { "got of owed" } th { "lost" } th { "cause" }
                    th { "borrowed most" }
                } }
                tbody {
                    @for one in stretches.iter().take(BROKEN) {
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
            @if has_more || stretches.len() > BROKEN { p { "There are more: " code { "weir slo report" } } }
        }
        @if !is_whole { p.bad { "The disk did not give all that it has: see the controller's log." } }
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
    wanted: Wanted,
) -> Response {
    apart(move || {
        let stored = shared.view.get(Kind::Vm, &name);
        let Some(stored) = stored.filter(|stored| actor.may_read(stored.object.owner())) else {
            let detail = format!("there is no VM `{name}`");
            return refused(&actor, &Problem::new(404, "NotFound", "path", detail));
        };
        let main = html! {
            (wanted.live("facts", 5, || facts(&stored)))
            (wanted.live("pairs", 2, || pairs(&shared, &actor, &name)))
            (wanted.chart("What it sends and receives", &format!("/api/v1/use?vm={name}")))
            (wanted.live("floors", 10, || floors(&shared, &actor, &name)))
            (wanted.live("broken", 10, || broken(&shared, &actor, Of::Vm(&name), wanted.at)))
            (wanted.live("conditions", 5, || conditions(&stored.object)))
        };
        shell(&actor, &format!("VM {name}"), &main)
    })
    .await
}

fn facts(stored: &Stored) -> Markup {
    let (object, spec) = (&stored.object, spec_of(stored));
    html! {
        dl {
            dt { "tenant" } dd { a href=(format!("/ui/tenants/{}", spec.tenant)) { (spec.tenant) } }
            dt { "host" } dd { (object.status.host.as_deref().unwrap_or("–")) }
            dt { "promised" } dd { (rate(spec.floor.out.0.as_bps())) " out, " (rate(spec.floor.inward.0.as_bps())) " in" }
            dt { "state" } dd { (state(object)) }
        }
    }
}

fn pairs(shared: &Shared, actor: &Actor, name: &str) -> Markup {
    let mut pairs = seen_pairs(shared, actor, name);
    if pairs.len() > ROWS {
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.sent));
    }
    html! {
        h2 { "Pairs now" }
        @if pairs.is_empty() { p { "None sends, or their hosts are silent." } }
        @else {
            table.sorted {
                thead { tr {
                    th { "from" } th { "to" } th { "floor" } th { "may send" } th { "sends" } th title=(IDEAL) { "ideal" }
                    th { "lost" } th { "why" }
                } }
                tbody {
                    @for pair in pairs.iter().take(ROWS) {
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
            @if pairs.len() > ROWS { p { (pairs.len() - ROWS) " more, which send less." } }
            p { "All reasons, on the host of the sender: " code { "weir explain FROM TO" } }
        }
    }
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

fn floors(shared: &Shared, actor: &Actor, name: &str) -> Markup {
    let now = shared.clock.now();
    let from = Moment::from_millis(now.as_millis().saturating_sub(BACK));
    let asked = Asked { tenant: None, vm: Some(name), from, until: now };
    let floors: Vec<FloorTold> =
        shared.books.floors(&shared.view, &asked, |tenant| actor.may_read(Some(tenant))).0;
    html! {
        h2 { "Last 24 hours" }
        table {
            thead { tr {
                th { "direction" } th { "floor" } th { "held" } th { "tested" } th { "carried" } th { "borrowed" } th { "used (p95)" }
            } }
            tbody {
                @for floor in &floors {
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
pub(super) async fn alerts(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    wanted: Wanted,
) -> Response {
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
    shell(&actor, "Alerts", &wanted.live("alerts", 2, || content))
}
