//! Topologies, small ones of each kind.

use super::draw::Draw;

/// A topology as its file has it, and the names in it.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    pub(crate) text: String,
    pub(crate) hosts: Vec<String>,
    /// All links, those of hosts too.
    pub(crate) links: Vec<String>,
}

/// Rates are of links of 1 Gbit/s; `scale` makes them smaller. `marks`: switches set ECN marks.
pub(crate) fn draw(draw: &mut Draw, marks: bool) -> Fabric {
    let buffer = draw.of(&["64kB", "128kB", "256kB"]);
    let mut rest = format!("buffer: {buffer}");
    if draw.one_in(2) {
        rest += &format!(", delay: {}", draw.of(&["20us", "100us", "500us"]));
    }
    if marks {
        rest += &format!(", ecn: {}", draw.of(&["20kB", "40kB"]));
    }
    match draw.index(5) {
        0 => dumbbell(draw, &rest),
        1 => single_switch(draw, &rest),
        2 => two_tier(draw, &rest),
        3 => leaf_spine(draw, &rest),
        _ => fat_tree(draw, &rest),
    }
}

fn dumbbell(draw: &mut Draw, rest: &str) -> Fabric {
    let [left, right] = [draw.within(1, 3), draw.within(1, 3)];
    let core = draw.of(&["500Mbit", "1Gbit", "2Gbit"]);
    let text =
        format!("dumbbell: {{left: {left}, right: {right}, edge: 1Gbit, core: {core}, {rest}}}");
    let hosts = (0..left).map(|n| format!("left-{n}"));
    let hosts: Vec<_> = hosts.chain((0..right).map(|n| format!("right-{n}"))).collect();
    Fabric { text, links: with(&hosts, ["core".into()]), hosts }
}

fn single_switch(draw: &mut Draw, rest: &str) -> Fabric {
    let n = draw.within(2, 5);
    let hosts: Vec<_> = (0..n).map(|n| format!("host-{n}")).collect();
    let text = format!("single-switch: {{hosts: {n}, link: 1Gbit, {rest}}}");
    Fabric { text, links: hosts.clone(), hosts }
}

fn two_tier(draw: &mut Draw, rest: &str) -> Fabric {
    let (racks, slots) = (draw.within(2, 3), draw.within(1, 3));
    let text = format!(
        "two-tier: {{racks: {racks}, hosts_per_rack: {slots}, link: 1Gbit, oversubscription: {}, \
         {rest}}}",
        draw.within(1, 3)
    );
    let hosts = grid(racks, slots);
    Fabric { text, links: with(&hosts, (0..racks).map(|n| format!("rack-{n}"))), hosts }
}

fn leaf_spine(draw: &mut Draw, rest: &str) -> Fabric {
    let (leaves, slots) = (draw.within(2, 3), draw.within(1, 2));
    let text = format!(
        "leaf-spine: {{leaves: {leaves}, spines: 2, hosts_per_leaf: {slots}, link: 1Gbit, \
         oversubscription: {}, ecmp: {}, {rest}}}",
        draw.within(1, 2),
        ecmp(draw)
    );
    let hosts = grid(leaves, slots);
    let up = (0..leaves).flat_map(|l| (0..2).map(move |s| format!("leaf-{l}-spine-{s}")));
    Fabric { text, links: with(&hosts, up), hosts }
}

fn fat_tree(draw: &mut Draw, rest: &str) -> Fabric {
    let text =
        format!("fat-tree: {{k: 4, hosts_per_edge: 1, link: 1Gbit, ecmp: {}, {rest}}}", ecmp(draw));
    let edges = || (0..4).flat_map(|pod| (0..2).map(move |edge| (pod, edge)));
    let hosts: Vec<_> = edges().map(|(pod, edge)| format!("host-{pod}-{edge}-0")).collect();
    let up = edges().flat_map(|(p, e)| (0..2).map(move |a| format!("edge-{p}-{e}-agg-{a}")));
    Fabric { text, links: with(&hosts, up), hosts }
}

fn ecmp(draw: &mut Draw) -> &'static str {
    draw.of(&["flow", "packet", "none"])
}

fn grid(racks: u64, slots: u64) -> Vec<String> {
    (0..racks).flat_map(|r| (0..slots).map(move |s| format!("host-{r}-{s}"))).collect()
}

fn with(hosts: &[String], more: impl IntoIterator<Item = String>) -> Vec<String> {
    hosts.iter().cloned().chain(more).collect()
}
