//! From a topology's kind and numbers to its hosts, switches and links.
//!
//! Problem   A dumbbell of ten hosts has thirteen links, which is too much to write by hand.
//! Approach  A few kinds; names follow from the kind, so that tenants and `--set` can use them.
//! Promises  Every host has one link and reaches every other; no rate is zero.

mod clos;
mod ports;

use super::error::{Error, did_you_mean};
use super::expr::Scope;
use super::formula::Formula;
use super::spec::links::LinkSpec;
use super::spec::{Shape, TopologySpec, Uplink, Word};
use super::{Ecmp, Link, Queueing, Topology};
use weir_units::{Bytes, Rate, Span};

/// Drop-tail buffer of a port when the file does not say.
const BUFFER: Bytes = Bytes::new(128_000);

impl TopologySpec {
    /// Builds and checks it. Rates are as written; `scale` comes later.
    pub(crate) fn build(&self, scope: &Scope) -> Result<Topology, Error> {
        let mut usual = Link {
            name: String::new(),
            a: 0,
            b: 0,
            rate: Rate::ZERO,
            buffer: BUFFER,
            delay: Span::ZERO,
            queueing: Queueing::default(),
        };
        ports::apply(&mut usual, &self.ports, scope)?;
        let ecmp = self.ecmp()?;
        let built = Topology { hosts: vec![], switches: vec![], links: vec![], ecmp };
        let mut plan = Plan { scope, usual, built };
        match &self.shape {
            Shape::Dumbbell { left, right, edge, core } => {
                plan.dumbbell(left, right, edge, core)?
            }
            Shape::SingleSwitch { hosts, link } => plan.single_switch(hosts, link)?,
            Shape::TwoTier { racks, per_rack, link, up } => {
                plan.two_tier(racks, per_rack, link, up)?
            }
            Shape::LeafSpine { leaves, spines, per_leaf, link, up } => {
                plan.leaf_spine((leaves, spines), per_leaf, link, up)?
            }
            Shape::FatTree { k, per_edge, link, up } => {
                plan.fat_tree(k, per_edge.as_ref(), link, up.as_ref())?
            }
            Shape::Links { hosts, switches, links } => plan.links(hosts, switches, links)?,
        }
        let mut built = plan.built;
        for (word, spec) in &self.of_links {
            let names: Vec<String> = built.links.iter().map(|link| link.name.clone()).collect();
            let Some(index) = names.iter().position(|name| *name == word.text) else {
                let help = did_you_mean(&word.text, names.iter().map(String::as_str));
                return Err(word.error(format!("there is no link `{}`", word.text), help));
            };
            ports::apply(&mut built.links[index], spec, scope)?;
        }
        self.check(&built)?;
        Ok(built)
    }

    /// How equal ways are used: by flow where the kind has them, else the first alone.
    fn ecmp(&self) -> Result<Option<Ecmp>, Error> {
        let usual = match self.shape {
            Shape::LeafSpine { .. } | Shape::FatTree { .. } => Some(Ecmp::Flow),
            _ => None,
        };
        let Some(word) = &self.ecmp else { return Ok(usual) };
        match word.text.as_str() {
            "none" => Ok(None),
            "flow" => Ok(Some(Ecmp::Flow)),
            "packet" => Ok(Some(Ecmp::Packet)),
            "host" => Ok(Some(Ecmp::Host)),
            other => {
                let help = did_you_mean(other, ["none", "flow", "packet", "host"]);
                Err(word.error(format!("equal ways by `{other}`"), help))
            }
        }
    }

    /// One link per host, and a way between any two hosts.
    fn check(&self, built: &Topology) -> Result<(), Error> {
        if built.hosts.is_empty() {
            return Err(self.whole.error("has no host", "a topology needs at least one host"));
        }
        let blame = |node: usize| match &self.shape {
            Shape::Links { hosts, switches, .. } => {
                hosts.iter().chain(switches).nth(node).unwrap_or(&self.whole)
            }
            _ => &self.whole,
        };
        for (host, name) in built.hosts.iter().enumerate() {
            let links = built.links.iter().filter(|l| l.a == host || l.b == host).count();
            if links != 1 && built.nodes() > 1 {
                let message = match links {
                    0 => format!("not connected: host `{name}` has no link"),
                    _ => format!("host `{name}` has {links} links"),
                };
                return Err(blame(host).error(message, "a host has exactly one link, to a switch"));
            }
        }
        let routes = built.routes_to(0);
        if let Some(node) = (1..built.nodes()).find(|&node| routes[node].is_none()) {
            let (name, first) = (built.node_name(node), &built.hosts[0]);
            let message = format!("not connected: there is no way from `{name}` to host `{first}`");
            return Err(blame(node).error(message, "add a link that joins the two parts"));
        }
        Ok(())
    }
}

struct Plan<'a> {
    scope: &'a Scope,
    /// A link as all are unless they say otherwise.
    usual: Link,
    built: Topology,
}

impl Plan<'_> {
    fn host(&mut self, name: String) -> usize {
        self.built.hosts.push(name);
        self.built.hosts.len() - 1
    }

    fn link(&mut self, name: String, a: usize, b: usize, rate: Rate) {
        self.built.links.push(Link { name, a, b, rate, ..self.usual.clone() });
    }

    /// A link from host `host` to node `switch`, named after the host.
    fn edge(&mut self, host: usize, switch: usize, rate: Rate) {
        self.link(self.built.hosts[host].clone(), host, switch, rate);
    }

    fn rate(&self, formula: &Formula) -> Result<Rate, Error> {
        formula.positive_rate(self.scope, "a link")
    }

    fn dumbbell(
        &mut self,
        left: &Formula,
        right: &Formula,
        edge: &Formula,
        core: &Formula,
    ) -> Result<(), Error> {
        let (lefts, rights) = (left.count(self.scope, 1)?, right.count(self.scope, 1)?);
        let (edge, core) = (self.rate(edge)?, self.rate(core)?);
        let hosts: Vec<usize> = (0..lefts)
            .map(|i| format!("left-{i}"))
            .chain((0..rights).map(|i| format!("right-{i}")))
            .map(|name| self.host(name))
            .collect();
        self.built.switches = vec!["left".into(), "right".into()];
        let (a, b) = (hosts.len(), hosts.len() + 1);
        self.link("core".into(), a, b, core);
        for host in hosts {
            self.edge(host, if host < lefts as usize { a } else { b }, edge);
        }
        Ok(())
    }

    fn single_switch(&mut self, hosts: &Formula, link: &Formula) -> Result<(), Error> {
        let count = hosts.count(self.scope, 1)? as usize;
        let rate = self.rate(link)?;
        self.built.switches = vec!["switch".into()];
        for i in 0..count {
            let host = self.host(format!("host-{i}"));
            self.edge(host, count, rate);
        }
        Ok(())
    }

    fn two_tier(
        &mut self,
        racks: &Formula,
        per_rack: &Formula,
        link: &Formula,
        up: &Uplink,
    ) -> Result<(), Error> {
        let count = racks.count(self.scope, 1)? as usize;
        let each = per_rack.count(self.scope, 1)? as usize;
        if count * each > super::formula::MOST as usize {
            let message = format!("{count} racks of {each} hosts are too many");
            return Err(per_rack.error(message, "at most 10000 hosts"));
        }
        let edge = self.rate(link)?;
        let uplink = self.uplink(up, edge * each as u64, 1)?;
        let root = count * each;
        self.built.switches.push("root".into());
        for rack in 0..count {
            let switch = root + 1 + rack;
            self.built.switches.push(format!("rack-{rack}"));
            self.link(format!("rack-{rack}"), switch, root, uplink);
            for slot in 0..each {
                let host = self.host(format!("host-{rack}-{slot}"));
                self.edge(host, switch, edge);
            }
        }
        Ok(())
    }

    fn links(
        &mut self,
        hosts: &[Word],
        switches: &[Word],
        links: &[LinkSpec],
    ) -> Result<(), Error> {
        let nodes: Vec<&Word> = hosts.iter().chain(switches).collect();
        distinct(&nodes, "node")?;
        self.built.hosts = hosts.iter().map(|w| w.text.clone()).collect();
        self.built.switches = switches.iter().map(|w| w.text.clone()).collect();
        let find = |word: &Word| {
            nodes.iter().position(|n| n.text == word.text).ok_or_else(|| {
                let help = did_you_mean(&word.text, nodes.iter().map(|n| n.text.as_str()));
                word.error(format!("there is no host or switch `{}`", word.text), help)
            })
        };
        for spec in links {
            let (a, b) = (find(&spec.a)?, find(&spec.b)?);
            if a == b {
                let message = format!("a link from `{}` to itself", spec.b.text);
                return Err(spec.b.error(message, "a link joins two nodes"));
            }
            let ends = || format!("{}-{}", spec.a.text, spec.b.text);
            let name = spec.name.as_ref().map_or_else(ends, |word| word.text.clone());
            if self.built.links.iter().any(|link| link.name == name) {
                let word = spec.name.as_ref().unwrap_or(&spec.a);
                let message = format!("two links are called `{name}`");
                return Err(word.error(message, "give each link a `name` of its own"));
            }
            let rate = self.rate(&spec.rate)?;
            self.link(name, a, b, rate);
            let built = self.built.links.last_mut().expect("just pushed");
            ports::apply(built, &spec.ports, self.scope)?;
        }
        Ok(())
    }
}

/// No two of the words are the same.
pub(crate) fn distinct(words: &[&Word], what: &str) -> Result<(), Error> {
    for (index, word) in words.iter().enumerate() {
        if let Some(first) = words[..index].iter().find(|w| w.text == word.text) {
            let message = format!("two {what}s are called `{}`", word.text);
            let help = match first.place {
                super::Place::File { line, .. } => {
                    format!("the first is in line {line}; rename one")
                }
                _ => "rename one".into(),
            };
            return Err(word.error(message, help));
        }
    }
    Ok(())
}
