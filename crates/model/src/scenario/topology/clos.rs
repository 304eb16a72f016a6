//! Topologies with several equal ways between two hosts: leaf-spine, and the fat tree.
//!
//! Promises  Names say where a node is; a link is called after its two ends. At most as many hosts
//!           as any world builds.
//! Source    Fat tree: Al-Fares, Loukissas, Vahdat 2008, §3.

use super::Plan;
use crate::scenario::error::Error;
use crate::scenario::formula::{Formula, MOST};
use crate::scenario::spec::Uplink;
use weir_units::Rate;

/// The largest fat tree: 10000 hosts are not many more.
const K_MOST: u32 = 34;

impl Plan<'_> {
    /// Every leaf has a link to every spine.
    pub(super) fn leaf_spine(
        &mut self,
        (leaves, spines): (&Formula, &Formula),
        per_leaf: &Formula,
        link: &Formula,
        up: &Uplink,
    ) -> Result<(), Error> {
        let each = per_leaf.count(self.scope, 1)? as usize;
        let (count, tops) = (leaves.count(self.scope, 1)?, spines.count(self.scope, 1)?);
        let (count, tops) = (count as usize, tops as usize);
        if count * each > MOST as usize || count * tops > MOST as usize {
            let message =
                format!("{count} leaves of {each} hosts under {tops} spines are too many");
            return Err(leaves.error(message, format!("at most {MOST} hosts, and {MOST} uplinks")));
        }
        let edge = self.rate(link)?;
        let uplink = self.uplink(up, edge * each as u64, tops)?;
        let first = count * each;
        self.built.switches.extend((0..tops).map(|spine| format!("spine-{spine}")));
        for leaf in 0..count {
            let switch = first + tops + leaf;
            self.built.switches.push(format!("leaf-{leaf}"));
            for spine in 0..tops {
                self.link(format!("leaf-{leaf}-spine-{spine}"), switch, first + spine, uplink);
            }
            for slot in 0..each {
                let host = self.host(format!("host-{leaf}-{slot}"));
                self.edge(host, switch, edge);
            }
        }
        Ok(())
    }

    /// `k` pods of `k/2` edge and `k/2` aggregation switches, and `k²/4` cores.
    pub(super) fn fat_tree(
        &mut self,
        k: &Formula,
        per_edge: Option<&Formula>,
        link: &Formula,
        up: Option<&Uplink>,
    ) -> Result<(), Error> {
        let ports = k.count(self.scope, 2)?;
        if ports % 2 == 1 || ports > K_MOST {
            let message = format!("a fat tree of {ports}");
            return Err(k.error(message, format!("write an even number from 2 to {K_MOST}")));
        }
        let (pods, half) = (ports as usize, ports as usize / 2);
        let each = per_edge.map_or(Ok(half), |f| f.count(self.scope, 1).map(|n| n as usize))?;
        let first = pods * half * each;
        if first > MOST as usize {
            let blame = per_edge.unwrap_or(k);
            return Err(
                blame.error(format!("{first} hosts are too many"), format!("at most {MOST}"))
            );
        }
        let edge = self.rate(link)?;
        let below = edge * each as u64;
        let uplink = match up {
            Some(up) => self.uplink(up, below, half)?,
            None => below.split(half),
        };
        let core = |core: usize| first + core;
        let agg = |pod: usize, agg: usize| first + half * half + pod * pods + agg;
        self.built.switches.extend((0..half * half).map(|core| format!("core-{core}")));
        for pod in 0..pods {
            self.built.switches.extend((0..half).map(|a| format!("agg-{pod}-{a}")));
            self.built.switches.extend((0..half).map(|e| format!("edge-{pod}-{e}")));
            for a in 0..half {
                for c in a * half..(a + 1) * half {
                    self.link(format!("agg-{pod}-{a}-core-{c}"), agg(pod, a), core(c), uplink);
                }
            }
            for e in 0..half {
                let switch = agg(pod, half + e);
                for a in 0..half {
                    self.link(format!("edge-{pod}-{e}-agg-{a}"), switch, agg(pod, a), uplink);
                }
                for slot in 0..each {
                    let host = self.host(format!("host-{pod}-{e}-{slot}"));
                    self.edge(host, switch, edge);
                }
            }
        }
        Ok(())
    }

    /// The rate of each of `parts` uplinks above links that sum to `below`.
    pub(super) fn uplink(&self, up: &Uplink, below: Rate, parts: usize) -> Result<Rate, Error> {
        match up {
            Uplink::Rate(rate) => self.rate(rate),
            Uplink::Oversubscription(ratio) => {
                let number = ratio.number(self.scope)?;
                if number < 1.0 {
                    let message = format!("an oversubscription of {number}");
                    return Err(ratio.error(message, "1 is none; 4 gives a rack a quarter"));
                }
                Ok(below.scale(1.0 / number / parts as f64))
            }
        }
    }
}
