//! Control intervals: what tenants want, what the queues give, which tenants have a queue next.

use super::share::{Claim, Shared, share};
use super::site::{Site, Tenant, fabric};
use super::{Numbers, Watch, lies, mean, part, quantile};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::binding::{Binder, CardUse, Contender, Place, Why, Wish, score, usage_factor};
use weir_core::ledger::{Direction, LinkId};
use weir_model::scenario::Datacenter;
use weir_units::{Rate, SplitMix64, TenantId};

/// A port that carries this part of its rate is full.
const FULL: f64 = 0.999;
/// Steps in which the distribution of the links' use is kept.
const STEPS: u32 = 100;

/// A datacenter whose control intervals are played one after another.
pub struct Play<'a> {
    of: &'a Datacenter,
    site: &'a Site,
    random: SplitMix64,
    binder: Binder,
    /// Rate of each port: two per link.
    rates: Vec<f64>,
    /// By tenant: multiples of what it needs that it wants.
    wants: Vec<f64>,
    /// By tenant: multiples of what it has reserved that it got.
    gains: Vec<f64>,
    /// What every port carries.
    used: Vec<f64>,
    /// Intervals so far in which queues were given.
    intervals: u32,
    /// By tenant: in how many of them it had a queue, or needed none.
    had: Vec<u32>,
    seen: Seen,
    lies: lies::Tally,
}

/// What intervals showed, one entry each unless said otherwise.
#[derive(Default)]
struct Seen {
    dedicated: Vec<f64>,
    codepoints: usize,
    gains: Vec<f64>,
    /// Of those with a queue.
    own: Vec<f64>,
    /// Of liars and of honest tenants, by what they need; and how many of these have a queue.
    of_need: [Vec<f64>; 2],
    with_queue: [Vec<f64>; 2],
    /// The worst of all intervals.
    floor: f64,
    circles: u32,
    /// The use of all ports, in all intervals together.
    use_of_links: Vec<f64>,
    /// The same if nobody had more than its floor.
    use_if_static: Vec<f64>,
    binding: f64,
}

impl<'a> Play<'a> {
    /// An interval in which all tenants share has been played.
    pub fn new(of: &'a Datacenter, site: &'a Site, seed: u64) -> Self {
        let topology = site.ledger.topology();
        let fabric = fabric(of, topology);
        let rate = |link: &weir_core::binding::LinkPorts| link.rate.as_f64();
        let rates = fabric.links.iter().flat_map(|link| [rate(link); 2]).collect();
        let mut play = Self {
            of,
            site,
            random: SplitMix64::new(SplitMix64::mix(seed ^ 0xde3a)),
            binder: Binder::new(fabric),
            rates,
            wants: vec![0.0; site.tenants.len()],
            gains: vec![0.0; site.tenants.len()],
            used: Vec::new(),
            intervals: 0,
            had: vec![0; site.tenants.len()],
            seen: Seen { floor: f64::INFINITY, ..Seen::default() },
            lies: lies::Tally::default(),
        };
        (0..site.tenants.len()).for_each(|tenant| play.draw(tenant));
        play.carry();
        play
    }

    /// Draws what a tenant wants.
    fn draw(&mut self, tenant: usize) {
        let (lot, size) = (self.random.unit(), self.random.unit());
        let wants = if self.of.greedy { f64::INFINITY } else { size };
        self.wants[tenant] = if lot <= self.of.inactive { 0.0 } else { wants };
    }

    /// Ends an interval: binds by what was used in it, and plays the next one.
    pub fn interval(&mut self, watch: &mut dyn Watch) {
        let contenders: Vec<Contender> = (0..self.site.tenants.len())
            .map(|tenant| contender(&self.site.tenants[tenant], self.usage(tenant)))
            .collect();
        let seed = u64::from(self.intervals);
        if self.of.deviations > 0 {
            let trial = lies::Trial {
                of: self.of,
                site: self.site,
                binder: &self.binder,
                contenders: &contenders,
                wants: &self.wants,
                seed,
            };
            trial.run(&mut self.random, &mut self.lies);
        }
        let begin = watch.now();
        self.binder.bind(&contenders, seed);
        self.seen.binding = self.seen.binding.max(watch.now().since(begin).as_secs_f64());
        for tenant in 0..self.site.tenants.len() {
            if self.random.unit() <= self.of.change {
                self.draw(tenant);
            }
        }
        self.intervals += 1;
        self.carry();
        self.look();
    }

    /// The U-factor by what crossed the tenant's cards. Its traffic is spread by what it has reserved.
    fn usage(&self, tenant: usize) -> f64 {
        let gain = self.gains[tenant];
        let cards = self.site.cards(&self.site.tenants[tenant]);
        usage_factor(cards.flat_map(|need| [need.forward, need.backward]).map(|reserved| {
            let used = Rate::from_bps((reserved.as_f64() * gain).round() as u64);
            CardUse { used, reserved }
        }))
    }

    /// What the tenant wants, as a multiple of what it has reserved.
    fn most(&self, tenant: usize) -> f64 {
        self.wants[tenant] / self.site.tenants[tenant].asks
    }

    fn is_dedicated(&self, tenant: usize) -> bool {
        matches!(self.binder.place(self.site.tenants[tenant].id), Some(Place::Dedicated(_)))
    }

    /// Divides the ports among those that send.
    fn carry(&mut self) {
        let mut used = vec![0.0; self.rates.len()];
        let mut dedicated = Vec::new();
        for tenant in 0..self.site.tenants.len() {
            if self.is_dedicated(tenant) {
                dedicated.push(tenant);
            } else {
                // Hosts hold it to its floors, which the shared queue's weight has for it.
                self.gains[tenant] = self.most(tenant).min(1.0);
                add(&mut used, &self.site.tenants[tenant], self.gains[tenant]);
            }
        }
        let weights = self.weights();
        let weight = |port: u32, tenant: TenantId| {
            weights.get(&(port, tenant)).map_or(1.0, |weight| f64::from(*weight))
        };
        let claim = |tenant: &usize| {
            let of = &self.site.tenants[*tenant];
            let ports = ports(of).map(|(port, reserved)| (port, reserved, weight(port, of.id)));
            Claim { ports: ports.collect(), most: self.most(*tenant) }
        };
        let claims: Vec<Claim> = dedicated.iter().map(claim).collect();
        let free: Vec<f64> = self.rates.iter().zip(&used).map(|(rate, used)| rate - used).collect();
        let Shared { gains, circles } = share(&free, &claims);
        self.seen.circles += circles;
        for (tenant, gain) in dedicated.into_iter().zip(gains) {
            self.gains[tenant] = gain;
            add(&mut used, &self.site.tenants[tenant], gain);
        }
        let is_over = |(used, rate): (&f64, &f64)| *used > rate * (1.0 + 1e-9);
        assert!(!used.iter().zip(&self.rates).any(is_over), "more than a port has");
        self.used = used;
    }

    /// Weights of the dedicated queues.
    fn weights(&self) -> BTreeMap<(u32, TenantId), u16> {
        let mut weights = BTreeMap::new();
        for link in 0..self.rates.len() as u32 / 2 {
            for direction in [Direction::Forward, Direction::Backward] {
                for queue in self.binder.port(LinkId(link), direction) {
                    if let Some((tenant, _)) = queue.of {
                        weights.insert((2 * link + direction as u32, tenant), queue.weight);
                    }
                }
            }
        }
        weights
    }

    /// Notes what the interval showed.
    fn look(&mut self) {
        let tenants = &self.site.tenants;
        let mut count = 0;
        let mut codepoints = BTreeSet::new();
        let mut groups = [[0usize; 2]; 2];
        for (tenant, of) in tenants.iter().enumerate() {
            let place = self.binder.place(of.id);
            if let Some(Place::Dedicated(codepoint)) = place {
                codepoints.insert(codepoint);
            }
            let has = matches!(place, Some(Place::Dedicated(_) | Place::Shared(Why::NeedsNone)));
            self.had[tenant] += u32::from(has);
            count += usize::from(has);
            if of.needs.is_empty() {
                continue;
            }
            let group = usize::from(of.asks == 1.0);
            groups[group][0] += usize::from(has);
            groups[group][1] += 1;
            if self.wants[tenant] <= 0.0 {
                continue;
            }
            let gain = self.gains[tenant];
            self.seen.gains.push(gain);
            self.seen.of_need[group].push(gain * of.asks);
            if self.is_dedicated(tenant) {
                self.seen.own.push(gain);
            }
            self.seen.floor = self.seen.floor.min(gain / self.most(tenant).min(1.0));
        }
        for (seen, [with, all]) in self.seen.with_queue.iter_mut().zip(groups) {
            if all > 0 {
                seen.push(part(with, all));
            }
        }
        self.seen.dedicated.push(part(count, tenants.len()));
        self.seen.codepoints = self.seen.codepoints.max(codepoints.len());
        let parts = self.used.iter().zip(&self.rates).map(|(used, rate)| used / rate);
        self.seen.use_of_links.extend(parts);
        let mut used = vec![0.0; self.rates.len()];
        for (tenant, of) in tenants.iter().enumerate() {
            add(&mut used, of, self.most(tenant).min(1.0));
        }
        let parts = used.iter().zip(&self.rates).map(|(used, rate)| used / rate);
        self.seen.use_if_static.extend(parts);
    }

    /// What all intervals showed.
    pub fn numbers(mut self) -> Numbers {
        let mut numbers = Numbers::new();
        let mut put = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                numbers.insert(name.to_owned(), value);
            }
        };
        let seen = &mut self.seen;
        let all = self.site.tenants.len();
        let among = |is: &dyn Fn(u32) -> bool| {
            (self.intervals > 0).then(|| part(self.had.iter().filter(|had| is(**had)).count(), all))
        };
        put("tenants_dedicated", mean(seen.dedicated.iter().copied()));
        put("tenants_ever", among(&|had| had > 0));
        put("tenants_always", among(&|had| had == self.intervals));
        put("codepoints_used", (self.intervals > 0).then_some(seen.codepoints as f64));
        put("gain_mean", mean(seen.gains.iter().copied()));
        put("gain_dedicated", mean(seen.own.iter().copied()));
        seen.gains.sort_by(f64::total_cmp);
        put("gain_p50", quantile(&seen.gains, 0.5));
        put("tenant_floor_ratio", Some(seen.floor).filter(|floor| floor.is_finite()));
        put("port_circles", Some(f64::from(seen.circles)));
        put("binding_max_s", Some(seen.binding));
        let [liars, honest] = &seen.of_need;
        put("of_need_liars", mean(liars.iter().copied()));
        put("of_need_honest", mean(honest.iter().copied()));
        let [liars, honest] = &seen.with_queue;
        put("dedicated_liars", mean(liars.iter().copied()));
        put("dedicated_honest", mean(honest.iter().copied()));
        let mut medians = [None; 2];
        for (at, (links, name)) in
            [(&mut seen.use_of_links, ""), (&mut seen.use_if_static, "static_")]
                .into_iter()
                .enumerate()
        {
            put(&format!("{name}link_use_mean"), mean(links.iter().copied()));
            links.sort_by(f64::total_cmp);
            medians[at] = quantile(links, 0.5);
            put(&format!("{name}link_use_p50"), medians[at]);
            let full = links.iter().filter(|part| **part >= FULL).count();
            let of_all = (!links.is_empty()).then(|| part(full, links.len()));
            put(&format!("{name}links_full"), of_all);
        }
        put("link_use_p50_over_static", medians[0].zip(medians[1]).map(|(with, of)| with - of));
        let links = &seen.use_of_links;
        for step in 1..=STEPS {
            let name = format!("link_use.{step:03}");
            put(&name, quantile(links, f64::from(step) / f64::from(STEPS)));
        }
        for (why, count) in self.without() {
            put(&format!("without_queue.{why}"), Some(part(count, all)));
        }
        numbers.extend(self.lies.numbers());
        numbers
    }

    /// Why tenants have no queue in the last interval.
    fn without(&self) -> BTreeMap<&'static str, usize> {
        let names = ["score", "weights", "codepoints", "other"];
        let mut without: BTreeMap<&str, usize> = names.map(|name| (name, 0)).into();
        for (_, place) in self.binder.places() {
            let name = match place {
                Place::Dedicated(_) | Place::Shared(Why::NeedsNone) => continue,
                Place::Shared(Why::Outscored(_) | Why::Preempted(..)) => "score",
                Place::Shared(Why::Weights(_)) => "weights",
                Place::Shared(Why::Codepoints) => "codepoints",
                Place::Shared(_) => "other",
            };
            *without.entry(name).or_default() += 1;
        }
        without
    }
}

/// A tenant as it competes for a queue.
pub(super) fn contender(tenant: &Tenant, usage: f64) -> Contender {
    Contender {
        tenant: tenant.id,
        needs: tenant.needs.clone(),
        score: score(tenant.payment, usage),
        wish: Wish::ByScore,
        is_new: false,
    }
}

/// The ports of a tenant with what it has reserved there: twice the link's number, and one more on the
/// way back.
fn ports(tenant: &Tenant) -> impl Iterator<Item = (u32, f64)> + '_ {
    let both = tenant
        .needs
        .iter()
        .flat_map(|need| [(2 * need.link.0, need.forward), (2 * need.link.0 + 1, need.backward)]);
    both.filter(|(_, rate)| !rate.is_zero()).map(|(port, rate)| (port, rate.as_f64()))
}

fn add(used: &mut [f64], tenant: &Tenant, gain: f64) {
    // What needs no link may want any multiple of nothing.
    if gain > 0.0 {
        ports(tenant).for_each(|(port, reserved)| used[port as usize] += gain * reserved);
    }
}
