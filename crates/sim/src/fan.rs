//! Several paths of one flow: each packet takes the next one.
//!
//! Approach  The paths stand one after the other in the table of routes, all of one length. A place
//!           in that table with a fan's number instead of a link's stands for all of them. It is
//!           read once per packet, where the packet leaves its host.
//! Promises  Of n packets each path gets n divided by the number of paths, within one. The seed
//!           decides which path the first packet takes.

/// Numbers from this one on in the table of routes are fans and not links.
pub(crate) const FANS: u32 = 1 << 31;

#[derive(Debug)]
pub(crate) struct Fan {
    /// Where the first way begins, and how far the next one is from that.
    begin: u32,
    stride: u32,
    count: u32,
    turn: u32,
}

impl Fan {
    /// Adds paths of one length to the table of routes, each followed by `end`. The first packet
    /// takes path `first`, modulo the number of paths.
    pub(crate) fn new(routes: &mut Vec<u32>, ways: &[&[u32]], end: u32, first: u64) -> Self {
        let (count, length) = (ways.len(), ways[0].len());
        assert!(ways.iter().all(|way| way.len() == length), "networks check that");
        let begin = routes.len() as u32;
        for way in ways {
            routes.extend_from_slice(way);
            routes.push(end);
        }
        let turn = (first % count as u64) as u32;
        Self { begin, stride: length as u32 + 1, count: count as u32, turn }
    }

    /// Where the next packet's way begins.
    pub(crate) fn next(&mut self) -> u32 {
        let turn = self.turn;
        self.turn = if turn + 1 == self.count { 0 } else { turn + 1 };
        self.begin + turn * self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_take_all_ways_in_turn() {
        let mut routes = vec![9];
        let mut fan = Fan::new(&mut routes, &[&[1, 2], &[3, 4], &[5, 6]], 99, 7);
        let begins: Vec<u32> = (0..4).map(|_| fan.next()).map(|at| routes[at as usize]).collect();
        assert_eq!(begins, [3, 5, 1, 3]);
        assert_eq!(routes, [9, 1, 2, 99, 3, 4, 99, 5, 6, 99]);
    }
}
