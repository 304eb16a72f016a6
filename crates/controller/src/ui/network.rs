//! The pages of the network: links, hosts, queues.

use super::pages::{ROWS, apart, of_one_tenant};
use super::parts::{Wanted, more, plain, rate, state};
use super::{refused, shell};
use crate::accounts::HOUR;
use crate::http::{Ctx, Shared};
use crate::problem::Problem;
use crate::state::{Actor, LinkUse};
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};
use weir_model::moment::Moment;
use weir_model::objects::{Kind, Spec};
use weir_units::show;

/// How the names of hosts' own links begin.
const CARD: &str = "nic of ";

/// `GET /ui/network`.
pub(super) async fn network(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    wanted: Wanted,
) -> Response {
    if let Some(answer) = of_one_tenant(&actor) {
        return answer;
    }
    let links = match shared.engine.look(crate::state::State::links).await {
        Ok(links) => links,
        Err(problem) => return refused(&actor, &problem),
    };
    apart(move || {
        let main = html! {
            (wanted.live("links", 5, || link_table(&shared, &links)))
            (wanted.live("hosts", 5, || hosts(&shared)))
        };
        shell(&actor, "Network", &main)
    })
    .await
}

/// Those of so many links that are shown: if not all can be, those that have promised most of what they may.
fn fullest(mut links: Vec<&LinkUse>) -> Vec<&LinkUse> {
    if links.len() > ROWS {
        let part = |link: &LinkUse, way: usize| {
            (u128::from(link.has[way].as_bps()) << 32) / u128::from(link.may[way].as_bps().max(1))
        };
        links.sort_by_key(|link| std::cmp::Reverse(part(link, 0).max(part(link, 1))));
        links.truncate(ROWS);
    }
    links
}

fn link_table(shared: &Shared, links: &[LinkUse]) -> Markup {
    // There are more hosts than a table has rows, and few see what is between switches.
    let (cards, cables): (Vec<_>, Vec<_>) =
        links.iter().partition(|link| link.name.starts_with(CARD));
    let shown: Vec<&LinkUse> = fullest(cables).into_iter().chain(fullest(cards)).collect();
    let used = shared.books.used_by_host(&shared.view, shared.clock.now());
    let survey = shared.books.latest();
    let carried: BTreeMap<&str, _> =
        survey.links().map(|(name, used, most)| (name, (used, most))).collect();
    html! {
        table.sorted {
            thead { tr {
                th { "link" } th { "tenants" } th { "may promise" } th { "promised up" } th { "promised down" }
                th { "used up" } th { "used down" } th title="In the direction that carries more" { "borrows most" }
            } }
            tbody {
                @for link in &shown {
                    @let host = link.name.strip_prefix(CARD);
                    @let seen = carried.get(link.name.as_str()).copied();
                    @let now = match host {
                        Some(host) => used.get(host).copied(),
                        None => seen.map(|(used, _)| used),
                    };
                    tr {
                        td { a href=(link_page(&link.name)) { (link.name) } }
                        td { (link.tenants) }
                        td { (rate(link.may[0].as_bps())) }
                        td { (bar(link.has[0].as_bps(), link.may[0].as_bps())) }
                        td { (bar(link.has[1].as_bps(), link.may[1].as_bps())) }
                        @match now {
                            Some([up, down]) => { td { (bar(up, link.may[0].as_bps())) } td { (bar(down, link.may[1].as_bps())) } },
                            None => { td { "–" } td { "–" } },
                        }
                        td { (seen.and_then(|(_, most)| most).unwrap_or("–")) }
                    }
                }
            }
        }
        @if links.is_empty() { p { "There is no link yet: apply Hosts and Links." } }
        @if links.len() > shown.len() { p { (links.len() - shown.len()) " more, which have promised less of what they may." } }
        p {
            "Used is what VMs of the host send and receive, also to each other on the same host. Links between switches "
            "carry what their hosts tell of pairs, each on the tree of its tenant; they have no counters here."
        }
    }
}

fn hosts(shared: &Shared) -> Markup {
    let (hosts, _) = shared.view.all(&[Kind::Host]);
    let observing: BTreeSet<String> = shared.books.observing().into_iter().collect();
    html! {
        h2 { "Hosts" }
        table.sorted {
            thead { tr { th { "host" } th { "switch" } th { "rate" } th { "use" } th { "mode" } th { "state" } } }
            tbody {
                @for stored in hosts.iter().take(ROWS) {
                    @if let Spec::Host(spec) = &stored.object.spec {
                        tr {
                            td { (stored.object.name()) }
                            td { (spec.switch) }
                            td { (rate(spec.rate.0.as_bps())) }
                            td { (plain(&spec.state)) }
                            td { @if observing.contains(stored.object.name()) { "observes" } @else { "enforces" } }
                            td { (state(&stored.object)) }
                        }
                    }
                }
            }
        }
        (more(hosts.len(), ROWS, "weir get hosts"))
    }
}

/// The address of a link's page. Names have letters, digits and `-._`, but for hosts' own links, which have spaces.
fn link_page(name: &str) -> String {
    format!("/ui/links/{}", name.replace(' ', "%20"))
}

/// `GET /ui/links/{name}`.
pub(super) async fn link(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    wanted: Wanted,
) -> Response {
    if let Some(answer) = of_one_tenant(&actor) {
        return answer;
    }
    let asked = name.clone();
    let found = shared.engine.look(move |state| {
        let link = state.links().into_iter().find(|link| link.name == asked)?;
        Some((link, state.tenants_on(&asked).unwrap_or_default()))
    });
    let (link, tenants) = match found.await {
        Ok(Some(found)) => found,
        Ok(None) => {
            let detail = format!("there is no link `{name}`");
            return refused(&actor, &Problem::new(404, "NotFound", "path", detail));
        }
        Err(problem) => return refused(&actor, &problem),
    };
    apart(move || {
        let survey = shared.books.latest();
        let carried = survey.links().find(|(known, ..)| *known == name);
        let used = carried.map_or([0; 2], |(_, used, _)| used);
        let borrowed = survey.borrowed(&name);
        let told = html! {
            table {
                thead { tr { th { "direction" } th { "may promise" } th { "promised" } th { "pairs send" } } }
                tbody {
                    @for (way, word) in ["up", "down"].into_iter().enumerate() {
                        tr {
                            td { (word) }
                            td { (rate(link.may[way].as_bps())) }
                            td { (bar(link.has[way].as_bps(), link.may[way].as_bps())) }
                            td { (bar(used[way], link.may[way].as_bps())) }
                        }
                    }
                }
            }
            table.sorted {
                caption { "Tenants with a reservation" }
                thead { tr { th { "tenant" } th { "queue" } th { "borrows up" } th { "borrows down" } } }
                tbody {
                    @for tenant in tenants.iter().take(ROWS) {
                        @let stored = shared.view.get(Kind::Tenant, tenant);
                        @let tag = stored.and_then(|stored| stored.object.status.queue).map_or(0, |queue| queue.tag);
                        tr {
                            td { a href=(format!("/ui/tenants/{tenant}")) { (tenant) } }
                            td { @if tag == 0 { "shared queue" } @else { "code point " (tag) } }
                            @for way in &borrowed { td { (rate(way.get(tenant).copied().unwrap_or_default())) } }
                        }
                    }
                }
            }
            @if tenants.is_empty() { p { "None." } }
            @if tenants.len() > ROWS { p { (tenants.len() - ROWS) " more" } }
            (hour(&shared, tenants.iter().map(String::as_str)))
        };
        shell(&actor, &format!("Link {name}"), &wanted.live("link", 5, || told))
    })
    .await
}

/// Tenants × time: which tenants had a queue of their own in the last hour. A tenant's queue is one on all links of its tree.
fn hour<'a>(shared: &Shared, tenants: impl Iterator<Item = &'a str>) -> Markup {
    const LEFT: u64 = 130;
    const WIDE: u64 = 720;
    const TALL: usize = 14;
    const DRAWN: usize = 100;
    let now = shared.clock.now();
    let begin = now.as_millis().saturating_sub(HOUR);
    let at = |ms: u64| LEFT + ms.saturating_sub(begin) * WIDE / HOUR;
    let own = |tenant: &'a str| {
        let mut own = shared.books.own_queues(tenant, now);
        // What begins at one point of the picture is drawn once.
        own.dedup_by(|later, kept| {
            let is_same = at(later.from) == at(kept.from);
            if is_same {
                kept.until = later.until;
            }
            is_same
        });
        (tenant, own)
    };
    let rows = tenants.map(own).filter(|(_, own)| !own.is_empty()).take(DRAWN);
    let rows: Vec<_> = rows.collect();
    html! {
        h2 { "Own queues, last hour" }
        @if rows.is_empty() { p { "No tenant had a queue of its own." } }
        @else {
            svg.map viewBox=(format!("0 0 {} {}", LEFT + WIDE, rows.len() * TALL + 4)) role="img"
                aria-label="Tenants with a queue of their own by time" {
                @for (row, (name, own)) in rows.iter().enumerate() {
                    text x="0" y=(row * TALL + 11) { (name) }
                    rect.hour x=(LEFT) y=(row * TALL + 1) width=(WIDE) height=(TALL - 2) {}
                    @for span in own {
                        rect.own x=(at(span.from)) y=(row * TALL + 1) width=((at(span.until) - at(span.from)).max(1))
                            height=(TALL - 2) {
                            title {
                                (name) ", code point " (span.code_point) ": " (Moment::from_millis(span.from).to_string())
                                " to " (Moment::from_millis(span.until).to_string())
                            }
                        }
                    }
                }
            }
            p { "From an hour ago to now. Changes between two looks, two seconds apart, are not seen." }
        }
    }
}

/// A part of a whole, as a bar with its number.
fn bar(part: u64, whole: u64) -> Markup {
    let share = part as f64 / whole.max(1) as f64;
    html! {
        svg.bar viewBox="0 0 60 10" aria-hidden="true" {
            rect.whole x="0" y="0" width="60" height="10" {}
            rect.part x="0" y="0" width=(format!("{:.0}", share.min(1.0) * 60.0)) height="10" {}
        }
        " " (rate(part)) @if part > 0 { ", " (show::percent(share)) }
    }
}

/// `GET /ui/queues`.
pub(super) async fn queues(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    wanted: Wanted,
) -> Response {
    if let Some(answer) = of_one_tenant(&actor) {
        return answer;
    }
    apart(move || {
        let (tenants, _) = shared.view.all(&[Kind::Tenant]);
        let (switches, _) = shared.view.all(&[Kind::Switch]);
        let content = html! {
            table.sorted {
                caption { "Tenants and their queue" }
                thead { tr { th { "tenant" } th { "code point" } th { "its VMs" } th { "tree" } th { "says" } } }
                tbody {
                    @for stored in tenants.iter().take(ROWS) {
                        @let status = &stored.object.status;
                        @let queue = status.queue.unwrap_or_default();
                        tr {
                            td { a href=(format!("/ui/tenants/{}", stored.object.name())) { (stored.object.name()) } }
                            td { @if queue.tag == 0 { "shared queue" } @else { (queue.tag) } }
                            td { (if queue.free { "as fast as they like" } else { "limited by their floors" }) }
                            td { @if let Some(tree) = &status.routing { (tree.root) } @else { "–" } }
                            td { @if let Some(says) = status.condition("Queue") { (says.reason) ": " (says.message) } }
                        }
                    }
                }
            }
            (more(tenants.len(), ROWS, "weir get tenants"))
            table {
                caption { "Switches" }
                thead { tr { th { "switch" } th { "driver" } th { "ports" } th { "state" } } }
                tbody {
                    @for stored in switches.iter().take(ROWS) {
                        @if let Spec::Switch(spec) = &stored.object.spec {
                            tr {
                                td { (stored.object.name()) }
                                td { (plain(&spec.driver)) }
                                td { (spec.ports.len()) }
                                td { (state(&stored.object)) }
                            }
                        }
                    }
                }
            }
            (more(switches.len(), ROWS, "weir get switches"))
            @if switches.is_empty() { p { "No switch is known, so all tenants share one queue." } }
            (hour(&shared, tenants.iter().map(|stored| stored.object.name())))
        };
        shell(&actor, "Queues", &wanted.live("queues", 2, || content))
    })
    .await
}
