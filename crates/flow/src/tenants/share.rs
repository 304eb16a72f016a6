//! What weighted queues give tenants whose traffic crosses several ports.
//!
//! Problem   A port divides its rate in proportion to weights among those that send; what a tenant cannot
//!           take because of another port is left to the others there.
//! Approach  In rounds: a port at which each tenant that is not settled finds its least part settles them
//!           all. What they take elsewhere is no more than their part there, so that no other tenant's part
//!           falls. Where integer weights make a circle of ports of which none is such a one, the tenant
//!           with the least is settled; `circles` counts these. What that leaves is divided again in the
//!           same way, among those that find room on all their ports.
//! Promises  No port gives more than it has. Each tenant has what it wants, or a port that gives all that it
//!           has. No tenant has less than its part by weight of any port where all send. Without circles a
//!           tenant's part by weight of what is left to those that are held back at its port is exact.
//! Source    WFQ as in QShare §7.3.2; weighted max-min (Bertsekas & Gallager §6.5.2) where all ports
//!           weigh alike.

/// Parts nearer to each other than this are equal.
const SAME: f64 = 1e-12;

/// What a tenant wants, and what it has where.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Port, what is reserved there (above zero), and the weight of the queue (above zero).
    pub ports: Vec<(u32, f64, f64)>,
    /// The most it takes, as a multiple of what is reserved; may be infinite with at least one port.
    pub most: f64,
}

/// What each has.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// Multiples of what is reserved, in the order of the claims.
    pub gains: Vec<f64>,
    /// How often no port was the bottleneck of all that were not settled there.
    pub circles: u32,
}

/// A port of which no more is left is full.
const NOTHING: f64 = 1e-9;

/// Divides what ports have (`free`, by number) among the claims.
pub fn share(free: &[f64], claims: &[Claim]) -> Shared {
    let mut shared = Shared { gains: vec![0.0; claims.len()], circles: 0 };
    let mut left = free.to_vec();
    let mut open: Vec<usize> = (0..claims.len()).collect();
    // Each time a port is full, or a tenant has all that it wants.
    while !open.is_empty() {
        let rest = |claim: &usize| Claim {
            ports: claims[*claim].ports.clone(),
            most: claims[*claim].most - shared.gains[*claim],
        };
        let rest: Vec<Claim> = open.iter().map(rest).collect();
        let circles = divide(&mut left, &rest, |claim, gain| shared.gains[open[claim]] += gain);
        shared.circles += circles;
        if circles == 0 {
            break;
        }
        open.retain(|claim| {
            let has_room = |(port, ..): &(u32, f64, f64)| {
                let port = *port as usize;
                left[port] > free[port] * NOTHING
            };
            let of = &claims[*claim];
            let wants = shared.gains[*claim] < of.most * (1.0 - NOTHING);
            wants && of.ports.iter().all(has_room)
        });
    }
    shared
}

/// Divides once, and says how many circles there were.
fn divide(free: &mut Vec<f64>, claims: &[Claim], mut gains: impl FnMut(usize, f64)) -> u32 {
    let mut round = Round::new(free, claims);
    let mut open: Vec<usize> = (0..claims.len()).collect();
    let mut circles = 0;
    while !open.is_empty() {
        let settled = round.settle(&open);
        if settled == 0 {
            circles += 1;
            let by_gain = |a: &usize, b: &usize| round.gains[*a].total_cmp(&round.gains[*b]);
            let least = open.iter().copied().min_by(by_gain).expect("some are open");
            round.is_settled[least] = true;
        }
        for &claim in open.iter().filter(|claim| round.is_settled[**claim]) {
            gains(claim, round.gains[claim]);
            for &(port, reserved, weight) in &claims[claim].ports {
                let port = port as usize;
                round.free[port] = (round.free[port] - round.gains[claim] * reserved).max(0.0);
                round.weight[port] -= weight;
                round.count[port] -= 1;
            }
        }
        open.retain(|claim| !round.is_settled[*claim]);
    }
    *free = round.free;
    circles
}

struct Round<'a> {
    claims: &'a [Claim],
    /// By port: what is left, and the weight and number of those that are not settled.
    free: Vec<f64>,
    weight: Vec<f64>,
    count: Vec<u32>,
    /// By port: how many find their least part here.
    held: Vec<u32>,
    /// By claim: its least part, and whether that is final.
    gains: Vec<f64>,
    is_settled: Vec<bool>,
}

impl<'a> Round<'a> {
    fn new(free: &[f64], claims: &'a [Claim]) -> Self {
        let (mut weight, mut count) = (vec![0.0; free.len()], vec![0; free.len()]);
        for (port, _, of) in claims.iter().flat_map(|claim| &claim.ports) {
            weight[*port as usize] += of;
            count[*port as usize] += 1;
        }
        Self {
            claims,
            free: free.to_vec(),
            weight,
            count,
            held: vec![0; free.len()],
            gains: vec![0.0; claims.len()],
            is_settled: vec![false; claims.len()],
        }
    }

    /// A claim's part of a port, as a multiple of what is reserved.
    fn part(&self, (port, reserved, weight): (u32, f64, f64)) -> f64 {
        let port = port as usize;
        self.free[port] * (weight / self.weight[port].max(weight)) / reserved
    }

    /// Settles what can be, and says how many that were.
    fn settle(&mut self, open: &[usize]) -> usize {
        let claims = self.claims;
        self.held.fill(0);
        for &claim in open {
            let of = &claims[claim];
            let parts = of.ports.iter().map(|port| self.part(*port));
            self.gains[claim] = parts.fold(of.most, f64::min);
            for port in &of.ports {
                if self.is_held(claim, *port) {
                    self.held[port.0 as usize] += 1;
                }
            }
        }
        let mut settled = 0;
        for &claim in open {
            let of = &claims[claim];
            let is_final = |port: &(u32, f64, f64)| {
                let at = port.0 as usize;
                self.is_held(claim, *port) && self.held[at] == self.count[at]
            };
            if self.gains[claim] >= of.most || of.ports.iter().any(is_final) {
                self.is_settled[claim] = true;
                settled += 1;
            }
        }
        settled
    }

    fn is_held(&self, claim: usize, port: (u32, f64, f64)) -> bool {
        self.part(port) <= self.gains[claim] * (1.0 + SAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(ports: &[(u32, f64, f64)], most: f64) -> Claim {
        Claim { ports: ports.to_vec(), most }
    }

    #[test]
    fn fig_3c_of_the_paper_a_has_the_link_alone_and_a_third_beside_b_and_c() {
        let all = f64::INFINITY;
        let a = claim(&[(0, 300.0, 1.0)], all);
        assert_eq!(share(&[1000.0], std::slice::from_ref(&a)).gains, [1000.0 / 300.0]);
        // B and C have their floors in the shared queue: 600 of 1000.
        assert_eq!(share(&[400.0], &[a]).gains, [400.0 / 300.0]);
    }

    #[test]
    fn what_one_cannot_take_goes_to_those_beside_it_by_their_weights() {
        let all = f64::INFINITY;
        let claims = [
            claim(&[(0, 10.0, 1.0), (1, 10.0, 1.0)], all),
            claim(&[(0, 10.0, 1.0)], all),
            claim(&[(0, 10.0, 2.0)], all),
            claim(&[(1, 90.0, 9.0)], all),
        ];
        let shared = share(&[1000.0, 100.0], &claims);
        assert_eq!((shared.gains, shared.circles), (vec![1.0, 33.0, 66.0, 1.0], 0));
    }

    #[test]
    fn who_wants_less_leaves_the_rest() {
        let claims = [claim(&[(0, 10.0, 1.0)], 0.5), claim(&[(0, 10.0, 1.0)], f64::INFINITY)];
        assert_eq!(share(&[100.0], &claims).gains, [0.5, 9.5]);
        assert_eq!(share(&[], &[claim(&[], 0.3)]).gains, [0.3]);
    }

    #[test]
    fn a_circle_of_ports_is_broken_where_least_is_lost() {
        // Each port is the bottleneck of one of the two that cross it, and not of the other.
        let all = f64::INFINITY;
        let claims = [
            claim(&[(0, 10.0, 1.0), (1, 10.0, 2.0)], all),
            claim(&[(1, 10.0, 1.0), (2, 10.0, 2.0)], all),
            claim(&[(2, 10.0, 1.0), (0, 10.0, 2.0)], all),
        ];
        let shared = share(&[30.0, 30.0, 30.0], &claims);
        assert_eq!(shared.circles, 1);
        // The third port is the first one's, too, and is full.
        assert_eq!(shared.gains, [1.0, 2.0, 1.0]);
    }

    prop_compose! {
        fn any_claim(ports: u32, is_even: bool)(
            on in proptest::collection::btree_map(0..ports, (1u32..10, 1u32..16), 1..4),
            most in prop_oneof![Just(f64::INFINITY), 0.0..3.0],
        ) -> Claim {
            let port = |(port, (reserved, weight)): (u32, (u32, u32))| {
                let reserved = f64::from(reserved);
                (port, reserved, if is_even { reserved } else { f64::from(weight) })
            };
            Claim { ports: on.into_iter().map(port).collect(), most }
        }
    }

    /// What the header promises.
    fn check(free: &[f64], claims: &[Claim]) -> Result<Shared, TestCaseError> {
        let shared = share(free, claims);
        let mut used = vec![0.0; free.len()];
        for (claim, gain) in claims.iter().zip(&shared.gains) {
            prop_assert!(*gain <= claim.most);
            claim.ports.iter().for_each(|(port, of, _)| used[*port as usize] += gain * of);
        }
        for (port, used) in used.iter().enumerate() {
            prop_assert!(*used <= free[port] * (1.0 + 1e-9), "{used} at {port}");
        }
        for (claim, gain) in claims.iter().zip(&shared.gains) {
            let least = claim.ports.iter().map(|(port, of, weight)| {
                let others = claims.iter().flat_map(|other| &other.ports);
                let all: f64 = others.filter(|other| other.0 == *port).map(|other| other.2).sum();
                free[*port as usize] * weight / all / of
            });
            let least = least.fold(claim.most, f64::min);
            prop_assert!(*gain >= least * (1.0 - 1e-9), "{gain}, but its part is {least}");
            if *gain < claim.most * (1.0 - 1e-9) {
                let is_full = |port: usize| used[port] >= free[port] * (1.0 - 1e-8);
                let is_here = claim.ports.iter().any(|(port, ..)| is_full(*port as usize));
                prop_assert!(is_here, "idle ports while a tenant waits");
            }
        }
        Ok(shared)
    }

    proptest! {
        #[test]
        fn no_port_is_overfilled_and_no_tenant_has_less_than_its_part(
            free in proptest::collection::vec(1.0..100.0, 5),
            claims in proptest::collection::vec(any_claim(5, false), 0..12),
        ) {
            check(&free, &claims)?;
        }

        #[test]
        fn with_weights_in_proportion_to_floors_there_are_no_circles(
            free in proptest::collection::vec(1.0..100.0, 5),
            claims in proptest::collection::vec(any_claim(5, true), 0..12),
        ) {
            prop_assert_eq!(check(&free, &claims)?.circles, 0);
        }
    }
}
