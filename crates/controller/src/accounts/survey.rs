//! All pairs over all links: what a link carries, which tenant borrows on it, and what each pair would have ideally.
//!
//! Problem   A host sees its own pairs only. Which tenant fills a link between switches, and what a pair would have if
//!           all that is spare were divided by floors, is seen where all pairs and all ways are known.
//! Approach  Every few seconds the pairs that agents told last are laid over the trees of their tenants. A pair that
//!           wants more may have any rate, another what it has; [`allocate`] divides the links between them.
//! Promises  Pure: from pairs and ways. A host may say what it likes: a pair has no larger floor than its VMs were
//!           promised, and sends no more than its host's card. Floors that hosts agreed on for a moment may exceed a
//!           link; then all on it are scaled.
//! Not here  When it is made: see [`Books::survey_all`](super::Books::survey_all).

use super::{IN, OUT, key};
use crate::state::{LinkWay, Ways};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_core::oracle::{Flow, World, allocate};
use weir_model::moment::Moment;
use weir_rpc::messages::PairNow;
use weir_units::Rate;

/// A pair, with what the controller knows of its ends.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) pair: PairNow,
    /// The tenants that send and receive.
    pub(super) tenants: [String; 2],
    /// The hosts that send and receive.
    pub(super) hosts: [String; 2],
    /// What its VMs were promised together, the lesser of out and in, bit/s.
    pub(super) promised: u64,
}

/// What all pairs did at one moment.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    at: Option<Moment>,
    ways: Arc<Ways>,
    /// By [`LinkWay`].
    loads: Vec<Load>,
    /// By sender and receiver, bit/s.
    ideals: BTreeMap<(String, String), u64>,
    /// By the [`key`] of a VM, out and in, bit/s.
    vms: BTreeMap<String, [u64; 2]>,
}

/// What a link carries in one direction.
#[derive(Clone, Debug, Default)]
struct Load {
    /// bit/s.
    used: u64,
    /// Beyond floors, by tenant.
    borrowed: BTreeMap<String, u64>,
}

impl Survey {
    pub(super) fn of(pairs: Vec<Placed>, ways: Arc<Ways>, at: Moment) -> Self {
        let known = |mut placed: Placed| {
            let [from, to] = &placed.hosts;
            let way = ways.way(&placed.tenants[0], from, to)?;
            placed.pair.floor = placed.pair.floor.min(placed.promised);
            placed.pair.sent = placed.pair.sent.min(ways.card(from)?.as_bps());
            Some((placed, way))
        };
        let pairs: Vec<(Placed, Vec<LinkWay>)> = pairs.into_iter().filter_map(known).collect();
        let loads = loads(&pairs, &ways);
        let (mut ideals, mut vms) = (BTreeMap::new(), BTreeMap::<String, [u64; 2]>::new());
        let rates = ideal(&pairs, &ways);
        for ((placed, _), rate) in pairs.into_iter().zip(rates) {
            let PairNow { from, to, .. } = placed.pair;
            let [sends, receives] = &placed.tenants;
            for (tenant, vm, way) in [(sends, &from, OUT), (receives, &to, IN)] {
                let sum = &mut vms.entry(key(tenant, vm)).or_default()[way];
                *sum = sum.saturating_add(rate);
            }
            ideals.insert((from, to), rate);
        }
        Self { at: Some(at), ways, loads, ideals, vms }
    }

    /// Whether it is of this time, or at most so many milliseconds older.
    pub(super) fn is_of(&self, now: Moment, most: u64) -> bool {
        self.at.is_some_and(|at| at.plus_millis(most) >= now)
    }

    /// All VMs with pairs, by their keys, and what would leave them ideally, bit/s.
    pub(super) fn out(&self) -> impl Iterator<Item = (&String, u64)> {
        self.vms.iter().map(|(key, rates)| (key, rates[OUT]))
    }

    /// What a pair would have ideally, bit/s.
    pub(super) fn pair(&self, from: &str, to: &str) -> Option<u64> {
        self.ideals.get(&(from.to_owned(), to.to_owned())).copied()
    }

    /// What the pairs of a VM would have ideally, out and in, bit/s, by its key.
    pub(super) fn vm(&self, key: &str) -> [u64; 2] {
        self.vms.get(key).copied().unwrap_or_default()
    }

    /// What pairs send over each link, up and down, bit/s, and the tenant that borrows most in the fuller direction.
    pub(crate) fn links(&self) -> impl Iterator<Item = (&str, [u64; 2], Option<&str>)> {
        let names = self.ways.links.iter().map(|(name, _)| name.as_str());
        names.zip(self.loads.chunks_exact(2)).map(|(name, ways)| {
            let fuller = ways.iter().max_by_key(|load| load.used);
            (name, [ways[0].used, ways[1].used], fuller.and_then(Load::borrower))
        })
    }

    /// What tenants borrow on a link, up and down, bit/s.
    pub(crate) fn borrowed(&self, link: &str) -> [BTreeMap<String, u64>; 2] {
        let number = self.ways.links.iter().position(|(name, _)| name == link);
        let of = |way: usize| number.map(|number| self.loads[2 * number + way].borrowed.clone());
        [0, 1].map(|way| of(way).unwrap_or_default())
    }

    /// The tenant that borrows most on the fullest link of a way.
    pub(super) fn borrower(&self, tenant: &str, from: &str, to: &str) -> Option<String> {
        let way = self.ways.way(tenant, from, to)?;
        let part = |at: &&LinkWay| {
            let rate = self.ways.links[**at / 2].1.as_bps().max(1);
            (u128::from(self.loads[**at].used) << 32) / u128::from(rate)
        };
        let fullest = way.iter().max_by_key(part)?;
        self.loads[*fullest].borrower().map(ToOwned::to_owned)
    }
}

impl Load {
    fn borrower(&self) -> Option<&str> {
        let most = self.borrowed.iter().max_by_key(|(_, rate)| **rate)?;
        Some(most.0)
    }
}

fn loads(pairs: &[(Placed, Vec<LinkWay>)], ways: &Ways) -> Vec<Load> {
    let mut loads = vec![Load::default(); 2 * ways.links.len()];
    for (placed, way) in pairs {
        let beyond = placed.pair.sent.saturating_sub(placed.pair.floor);
        for at in way {
            let load = &mut loads[*at];
            load.used = load.used.saturating_add(placed.pair.sent);
            if beyond > 0 {
                let sum = load.borrowed.entry(placed.tenants[0].clone()).or_default();
                *sum = sum.saturating_add(beyond);
            }
        }
    }
    loads
}

/// The ideal rate of each pair, bit/s.
fn ideal(pairs: &[(Placed, Vec<LinkWay>)], ways: &Ways) -> Vec<u64> {
    let links: Vec<Rate> = ways.links.iter().flat_map(|(_, rate)| [*rate, *rate]).collect();
    let flow = |(placed, way): &(Placed, Vec<LinkWay>)| {
        let PairNow { floor, sent, wants, .. } = placed.pair;
        // Within a host no link limits it: what it has is what it could have.
        let demand = (!wants || way.is_empty()).then_some(Rate::from_bps(sent));
        Flow { path: way.clone(), demand, floor: Rate::from_bps(floor) }
    };
    let mut world = World { links, flows: pairs.iter().map(flow).collect() };
    let mut owed = vec![Rate::ZERO; world.links.len()];
    for flow in &world.flows {
        flow.path.iter().for_each(|at| owed[*at] += flow.owed());
    }
    for flow in &mut world.flows {
        let owes = flow.owed();
        let fits = |at: &usize| match owed[*at] > world.links[*at] {
            true => owes.mul_ratio(world.links[*at].as_bps(), owed[*at].as_bps()),
            false => owes,
        };
        flow.floor = flow.path.iter().map(fits).min().unwrap_or(owes);
    }
    let rates = allocate(&world).map(|allocation| allocation.rates).unwrap_or_default();
    rates.into_iter().map(Rate::as_bps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::tests::state_of;
    use serde_json::json;

    /// Two racks under one root with links of 1 Gb/s; `a` and `c` send from the first rack to the second.
    fn ways() -> Arc<Ways> {
        let host = |name: &str, switch: &str| {
            ("Host", name.to_owned(), json!({"switch": switch, "rate": "1Gbit", "slots": 10}))
        };
        let link = |name: &str, lower: &str| {
            let spec = json!({"lower": lower, "upper": "root", "rate": "1Gbit"});
            ("Link", name.to_owned(), spec)
        };
        let mut objects = vec![
            host("h0", "tor0"),
            host("h1", "tor0"),
            host("h2", "tor1"),
            host("h3", "tor1"),
            link("up0", "tor0"),
            link("up1", "tor1"),
        ];
        for tenant in ["gold", "blue"] {
            objects.push(("Tenant", tenant.into(), json!({})));
        }
        for (vm, tenant, host) in
            [("a", "gold", "h0"), ("b", "gold", "h2"), ("c", "blue", "h1"), ("d", "blue", "h3")]
        {
            let floor = json!({"out": "100Mbit", "in": "100Mbit"});
            objects.push((
                "VM",
                vm.into(),
                json!({"tenant": tenant, "host": host, "floor": floor}),
            ));
        }
        Arc::new(state_of(objects).ways())
    }

    fn at() -> Moment {
        Moment::from_millis(5)
    }

    fn pair(
        names: [&str; 2],
        tenant: &str,
        hosts: [&str; 2],
        mbps: [u64; 2],
        wants: bool,
    ) -> Placed {
        let [from, to] = names.map(ToOwned::to_owned);
        let [floor, sent] = mbps.map(|rate| rate * 1_000_000);
        let pair = PairNow { from, to, floor, sent, wants, ..PairNow::default() };
        let promised = 1_000_000_000;
        let tenants = [tenant, tenant].map(ToOwned::to_owned);
        Placed { pair, tenants, hosts: hosts.map(ToOwned::to_owned), promised }
    }

    #[test]
    fn a_link_between_switches_is_divided_by_floors_and_names_the_tenant_that_borrows_there() {
        let pairs = vec![
            pair(["a", "b"], "gold", ["h0", "h2"], [100, 90], true),
            pair(["c", "d"], "blue", ["h1", "h3"], [300, 900], true),
        ];
        let survey = Survey::of(pairs, ways(), at());
        assert_eq!(survey.pair("a", "b"), Some(250_000_000));
        assert_eq!(survey.pair("c", "d"), Some(750_000_000));
        assert_eq!(
            (survey.vm("gold/b"), survey.vm("blue/c")),
            ([0, 250_000_000], [750_000_000, 0])
        );
        let links: BTreeMap<&str, _> =
            survey.links().map(|(name, used, most)| (name, (used, most))).collect();
        assert_eq!(links["up0"], ([990_000_000, 0], Some("blue")));
        assert_eq!(links["up1"], ([0, 990_000_000], Some("blue")));
        assert_eq!(links["nic of h0"], ([90_000_000, 0], None));
        assert_eq!(survey.borrower("gold", "h0", "h2").as_deref(), Some("blue"));
        assert_eq!(survey.borrower("gold", "h2", "h0"), None, "nothing goes the other way");
    }

    #[test]
    fn a_pair_that_wants_no_more_leaves_its_part_to_others_and_one_within_a_host_has_what_it_has() {
        let pairs = vec![
            pair(["a", "b"], "gold", ["h0", "h2"], [100, 20], false),
            pair(["c", "d"], "blue", ["h1", "h3"], [300, 400], true),
            pair(["a", "e"], "gold", ["h0", "h0"], [50, 5000], true),
            pair(["x", "y"], "gold", ["h0", "elsewhere"], [50, 50], true),
        ];
        let survey = Survey::of(pairs, ways(), at());
        assert_eq!(survey.pair("a", "b"), Some(20_000_000));
        assert_eq!(survey.pair("c", "d"), Some(980_000_000));
        assert_eq!(survey.pair("a", "e"), Some(1_000_000_000), "not more than its host's card");
        assert_eq!(survey.pair("x", "y"), None, "its host is not known");
    }

    #[test]
    fn floors_that_exceed_a_link_for_a_moment_are_scaled() {
        let pairs = vec![
            pair(["a", "b"], "gold", ["h0", "h2"], [900, 500], true),
            pair(["c", "d"], "blue", ["h1", "h3"], [900, 500], true),
        ];
        let survey = Survey::of(pairs, ways(), at());
        assert_eq!(survey.pair("a", "b"), Some(500_000_000));
        assert_eq!(survey.pair("c", "d"), Some(500_000_000));
    }

    #[test]
    fn a_host_that_lies_takes_no_more_than_its_vms_were_promised_and_all_others_keep_their_ideal() {
        let lie = |names: [&str; 2]| {
            let mut placed = pair(names, "gold", ["h0", "h2"], [0, 0], true);
            (placed.pair.floor, placed.pair.sent) = (u64::MAX, u64::MAX);
            placed.promised = 100_000_000;
            placed
        };
        let honest = pair(["c", "d"], "blue", ["h1", "h3"], [300, 100], true);
        let local = Placed { hosts: ["h0".into(), "h0".into()], ..lie(["a", "e"]) };
        let survey =
            Survey::of(vec![lie(["a", "b"]), lie(["x", "b"]), local, honest], ways(), at());
        assert_eq!(survey.pair("c", "d"), Some(600_000_000), "300 of 500 Mb/s are promised to it");
        assert_eq!(
            (survey.pair("a", "b"), survey.vm("gold/a")[OUT]),
            (Some(200_000_000), 1_200_000_000)
        );
        assert!(survey.is_of(at(), 0) && !survey.is_of(at().plus_millis(11), 10));
        assert!(!Survey::default().is_of(at(), 1000), "there was none");
    }
}
