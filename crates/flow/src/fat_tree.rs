//! A fat tree of switches with k ports, and a cap in and out for every host.
//!
//! Source    Al-Fares, Loukissas & Vahdat, SIGCOMM 2008: k pods of k/2 edge and k/2 aggregation
//!           switches, (k/2)² core switches, k³/4 hosts.

use crate::world::World;
use weir_units::Rate;

/// A fat tree; hosts are numbered pod by pod, edge switch by edge switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatTree {
    half: u32,
}

impl FatTree {
    /// Switches with `ports` ports; `None` unless that is even, from 2 to 128.
    pub const fn new(ports: u32) -> Option<Self> {
        if ports < 2 || ports > 128 || !ports.is_multiple_of(2) {
            return None;
        }
        Some(Self { half: ports / 2 })
    }

    /// k³/4.
    pub const fn hosts(self) -> u32 {
        2 * self.half * self.half * self.half
    }

    /// Links of `rate`; what each host sends, and what it receives, is capped to `cap`.
    ///
    /// In this order, one per host each: up from hosts, down to hosts, up from edge switches, down
    /// to them, up from aggregation switches, down to them, caps out, caps in.
    pub fn world(self, rate: Rate, cap: Rate) -> World {
        let hosts = self.hosts() as usize;
        let mut links = vec![rate; 6 * hosts];
        links.resize(8 * hosts, cap);
        World { links, hoses: Vec::new() }
    }

    /// The links from host `src` to host `dst`, caps included; `choice` picks among the equal paths
    /// through the core (of which there are (k/2)²) or the pod (k/2). Only the caps if both are one.
    ///
    /// # Panics
    /// There is no such host.
    pub fn path(self, src: u32, dst: u32, choice: u32) -> Vec<u32> {
        let (hosts, half) = (self.hosts(), self.half);
        assert!(src.max(dst) < hosts, "hosts {src} and {dst} of {hosts}");
        let (edge_src, edge_dst) = (src / half, dst / half);
        let (pod_src, pod_dst) = (edge_src / half, edge_dst / half);
        let (agg, core) = (choice % half, choice / half % half);
        let mut path = vec![6 * hosts + src];
        if src != dst {
            path.push(src);
            if edge_src != edge_dst {
                path.push(2 * hosts + edge_src * half + agg);
                if pod_src != pod_dst {
                    path.push(4 * hosts + (pod_src * half + agg) * half + core);
                    path.push(5 * hosts + (pod_dst * half + agg) * half + core);
                }
                path.push(3 * hosts + edge_dst * half + agg);
            }
            path.push(hosts + dst);
        }
        path.push(7 * hosts + dst);
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_four_ports_has_the_paths_of_the_paper() {
        let tree = FatTree::new(4).expect("even");
        assert_eq!(tree.hosts(), 16);
        assert_eq!(tree.world(Rate::from_mbps(10), Rate::from_mbps(5)).links.len(), 128);
        // One host, one edge switch, one pod, through the core.
        assert_eq!(tree.path(3, 3, 0), [99, 115]);
        assert_eq!(tree.path(0, 1, 3), [96, 0, 17, 113]);
        assert_eq!(tree.path(0, 2, 1), [96, 0, 33, 51, 18, 114]);
        assert_eq!(tree.path(0, 15, 3), [96, 0, 33, 67, 95, 63, 31, 127]);
    }

    #[test]
    fn every_pair_of_hosts_has_as_many_different_paths_as_cores() {
        let tree = FatTree::new(6).expect("even");
        let mut paths: Vec<Vec<u32>> = (0..9).map(|choice| tree.path(0, 53, choice)).collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 9);
        assert!(paths.iter().flatten().all(|&link| link < 8 * tree.hosts()));
    }

    #[test]
    fn switches_have_an_even_number_of_ports() {
        assert_eq!([0, 3, 130].map(FatTree::new), [None; 3]);
    }
}
