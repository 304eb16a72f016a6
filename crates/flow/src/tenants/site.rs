//! The datacenter: its links, the tenants that arrive, and where they go.

use super::{Numbers, Watch, part};
use weir_core::binding::{Fabric, LastQueue, LinkPorts, MostWeight};
use weir_core::ledger::{
    Config, FatTreeShape, Ledger, LinkId, Need, Node, Survival, TenantRequest, Topology,
};
use weir_core::placement::{Policy, Weight};
use weir_model::scenario::Datacenter;
use weir_units::{Rate, SplitMix64, TenantId};

/// Floors of VMs in Mbit/s, each as likely as the others (QShare §7.3.1).
const FLOORS: [u64; 5] = [10, 50, 100, 200, 300];
/// QShare's table has ports with fewer tenants than the first, and with more than the second.
const FEW: usize = 9;
const MANY: usize = 12;

/// Tenants that arrive one after another until the datacenter is full.
#[derive(Clone, Debug)]
pub struct Fill {
    random: SplitMix64,
    seed: u64,
    of: Datacenter,
    arrived: u32,
    in_a_row: u32,
    /// Slots that are free, and what the last one to arrive wants of them.
    free: u64,
    wanted: u64,
}

impl Fill {
    /// The same tenants for the same seed, whatever the network and the claims.
    pub fn new(of: &Datacenter, seed: u64) -> Self {
        Self {
            random: SplitMix64::new(seed),
            seed: SplitMix64::mix(seed ^ 0x11a5),
            of: of.clone(),
            arrived: 0,
            in_a_row: 0,
            free: slots(of),
            wanted: 0,
        }
    }

    /// The next tenant, and what it asks for of what it needs.
    pub fn arrive(&mut self) -> (TenantRequest, f64) {
        let vms = (-self.of.vms * self.random.unit().ln()).round().max(2.0) as u32;
        let floor = FLOORS[(self.random.next() % FLOORS.len() as u64) as usize] * 1_000_000;
        let tenant = TenantId(self.arrived);
        self.arrived += 1;
        self.wanted = vms.into();
        let lot = SplitMix64::new(SplitMix64::mix(self.seed ^ u64::from(tenant.0))).unit();
        let asks = if lot <= self.of.liars { self.of.asks } else { 1.0 };
        let floor = Rate::from_bps((floor as f64 * asks).round() as u64);
        let mut request = TenantRequest::uniform(tenant, vms, floor);
        let host_permille = (self.of.survival * 1000.0).round() as u16;
        request.survival = Survival { host_permille, rack_permille: 0 };
        (request, asks)
    }

    /// Is told of the last one's answer. Returns whether another is to come.
    pub fn answered(&mut self, is_accepted: bool) -> bool {
        if is_accepted {
            self.free = self.free.saturating_sub(self.wanted);
        }
        self.in_a_row = if is_accepted { 0 } else { self.in_a_row + 1 };
        self.in_a_row < self.of.refusals && self.free > 0
    }

    /// Which part of all slots is taken.
    pub fn taken(&self) -> f64 {
        1.0 - self.free as f64 / slots(&self.of) as f64
    }

    /// How many have arrived.
    pub fn arrived(&self) -> u32 {
        self.arrived
    }
}

/// A tenant that has a place.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its number.
    pub id: TenantId,
    /// Its VMs.
    pub vms: u32,
    /// What it pays for: the sum of its floors.
    pub payment: Rate,
    /// What it asks for of what it needs: 1 for an honest one.
    pub asks: f64,
    /// What it has reserved, by link.
    pub needs: Vec<Need>,
}

/// A datacenter with its tenants.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its promises.
    pub ledger: Ledger,
    /// Those that were accepted, by number.
    pub tenants: Vec<Tenant>,
    /// How many arrived.
    pub arrived: u32,
    /// How long requests took in the mean and at most, in seconds.
    pub took: (f64, f64),
    queues: usize,
}

impl Site {
    /// An empty one.
    ///
    /// # Panics
    /// The datacenter's numbers were not checked: see [`weir_model::scenario::DatacenterFile`].
    pub fn ledger(of: &Datacenter) -> Ledger {
        let (edge_uplinks, aggregation_uplinks) = uplinks(of.k, of.ratio);
        let topology = Topology::fat_tree(FatTreeShape {
            k: of.k,
            slots: of.slots,
            host_rate: of.host_rate,
            port_rate: of.port_rate,
            edge_uplinks,
            aggregation_uplinks,
            spread: false,
        });
        let policy = Policy::Balanced(Weight::Fixed(of.cost_weight));
        let config = Config { headroom: of.headroom, policy, ..Config::default() };
        Ledger::new(topology, config).expect("a fat tree is a topology")
    }

    /// Filled with tenants until so many in a row were refused.
    pub fn filled(of: &Datacenter, seed: u64, watch: &mut dyn Watch) -> Option<Self> {
        let mut ledger = Self::ledger(of);
        let mut fill = Fill::new(of, seed);
        let mut tenants = Vec::new();
        let (mut sum, mut most) = (0.0, 0.0f64);
        loop {
            if !watch.goes_on(0.5 * fill.taken()) {
                return None;
            }
            let (request, asks) = fill.arrive();
            let begin = watch.now();
            let answer = ledger.place(&request);
            let took = watch.now().since(begin).as_secs_f64();
            (sum, most) = (sum + took, most.max(took));
            let is_accepted = answer.is_ok();
            if let Ok(placement) = answer {
                tenants.push(Tenant::new(&request, asks, placement.links));
            }
            if !fill.answered(is_accepted) {
                break;
            }
        }
        let took = (sum / f64::from(fill.arrived()), most);
        let queues = most_dedicated(of);
        Some(Self { ledger, tenants, arrived: fill.arrived(), took, queues })
    }

    /// What a tenant has reserved at its hosts' links.
    pub fn cards<'a>(&'a self, tenant: &'a Tenant) -> impl Iterator<Item = &'a Need> {
        let topology = self.ledger.topology();
        tenant.needs.iter().filter(|need| is_hosts(topology, need.link))
    }

    /// What there is, and how crowded ports are.
    pub fn numbers(&self) -> Numbers {
        let links = self.ledger.topology().links.len() as u32;
        let counts: Vec<usize> =
            (0..links).map(|link| self.ledger.tenants_on(LinkId(link)).len()).collect();
        let ports = |is: &dyn Fn(usize) -> bool| {
            part(counts.iter().filter(|count| is(**count)).count(), counts.len())
        };
        let is_permanent = |tenant: &&Tenant| {
            tenant.needs.iter().all(|need| counts[need.link.0 as usize] <= self.queues)
        };
        let permanent = self.tenants.iter().filter(is_permanent).count();
        let slots: u32 = self.ledger.topology().hosts.iter().map(|host| host.slots).sum();
        let vms: u32 = self.tenants.iter().map(|tenant| tenant.vms).sum();
        let demand: Rate = self.tenants.iter().map(|tenant| tenant.payment).sum();
        let numbers = [
            ("tenants", self.tenants.len() as f64),
            ("slots_used", part(vms as usize, slots as usize)),
            ("demand_accepted", demand.as_f64()),
            ("ports_below_9", ports(&|count| count < FEW)),
            ("ports_9_to_12", ports(&|count| (FEW..=MANY).contains(&count))),
            ("ports_above_12", ports(&|count| count > MANY)),
            ("port_tenants_max", counts.iter().copied().max().unwrap_or(0) as f64),
            ("tenants_permanent", part(permanent, self.tenants.len())),
            ("placement_mean_s", self.took.0),
            ("placement_max_s", self.took.1),
        ];
        numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl Tenant {
    /// As it asked.
    pub(super) fn new(request: &TenantRequest, asks: f64, needs: Vec<Need>) -> Self {
        let floor = request.classes[0].hoses[0].floors.out;
        let vms = request.vms.len() as u32;
        let payment = Rate::from_bps(floor.as_bps() * u64::from(vms));
        Self { id: request.tenant, vms, payment, asks, needs }
    }
}

/// Slots of all hosts.
pub(super) fn slots(of: &Datacenter) -> u64 {
    u64::from(of.k).pow(3) / 4 * u64::from(of.slots)
}

/// Most tenants of a port that all have a queue there at any time.
pub(super) fn most_dedicated(of: &Datacenter) -> usize {
    usize::from(if of.last_dedicated { of.queues } else { of.queues.saturating_sub(1) })
}

/// What tenants are bound to.
pub(super) fn fabric(of: &Datacenter, topology: &Topology) -> Fabric {
    let ports = |link: &weir_core::ledger::Link| LinkPorts {
        rate: Rate::from_bps(link.rate.as_bps() * u64::from(link.members)),
        queues: of.queues,
    };
    Fabric {
        links: topology.links.iter().map(ports).collect(),
        codepoints: Fabric::all_codepoints(),
        most_weight: MostWeight::new(of.weights),
        last_queue: if of.last_dedicated {
            LastQueue::SharedIfCrowded
        } else {
            LastQueue::AlwaysShared
        },
    }
}

/// Whether a link is a host's.
fn is_hosts(topology: &Topology, link: LinkId) -> bool {
    matches!(topology.links[link.0 as usize].a, Node::Host(_))
}

/// Uplinks in use of edge and aggregation switches. With a quarter of the edge switches' uplinks there
/// is as much above them as below, where ports are four times as fast as hosts.
fn uplinks(k: u32, ratio: u32) -> (u32, u32) {
    let half = k / 2;
    let quarter = (half / 4).max(1);
    match ratio {
        1 => (quarter, half),
        4 => ((quarter / 2).max(1), (half / 2).max(1)),
        16 => ((quarter / 2).max(1), (half / 8).max(1)),
        _ => (half, half),
    }
}
