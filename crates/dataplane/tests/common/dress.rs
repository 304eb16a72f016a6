//! Frames with more than TCP in IP: VLAN tags, IPv6 extension headers, and super-packets, also
//! those that are too long to state their length.

use crate::random::Random;
use crate::vcc_port::checksum;

const ETHERNET: usize = 14;
const TYPE: usize = 12;
const IP6_END: usize = 54;
const TCP: u8 = 6;
/// Octets of each extension header: all of one option that is padding.
const EXTENSION: usize = 8;

#[derive(Clone, Default, Debug)]
pub(crate) struct Dress {
    tags: usize,
    /// The kinds of extension headers, from the first on; not with IPv4.
    kinds: Vec<u8>,
    /// Octets of each segment of a super-packet, and zero if it is none.
    pub(crate) size: u32,
    /// As super-packets beyond 64 kB have it: its length is said to be zero.
    is_boundless: bool,
}

fn is_v4(frame: &[u8]) -> bool {
    frame[TYPE..ETHERNET] == [8, 0]
}

impl Dress {
    /// A dress that fits this frame; none for half of them.
    pub(crate) fn any(random: &mut Random, frame: &[u8]) -> Self {
        if random.one_in(2) {
            return Self::default();
        }
        let is_long = frame.len() > 1_000;
        let many = if is_v4(frame) { 0 } else { random.below(4) };
        // Hop by hop comes first or not at all.
        let one = |n| random.of(if n == 0 { &[0, 60] } else { &[43, 60] });
        let kinds = (0..many).map(one).collect();
        let size = if is_long { random.of(&[0, 500, 900]) } else { 0 };
        let is_boundless = size > 0 && random.one_in(2);
        Self { tags: random.below(3) as usize, kinds, size, is_boundless }
    }

    pub(crate) fn tagged(tags: usize) -> Self {
        Self { tags, ..Self::default() }
    }

    /// Behind extension headers of these kinds.
    pub(crate) fn behind(kinds: &[u8]) -> Self {
        Self { kinds: kinds.to_vec(), ..Self::default() }
    }

    /// Whether it has tags, extension headers, is a super-packet, and one without a length.
    pub(crate) fn what(&self) -> [bool; 4] {
        [self.tags > 0, !self.kinds.is_empty(), self.size > 0, self.is_boundless]
    }

    /// The frame in it.
    pub(crate) fn on(&self, frame: &[u8]) -> Vec<u8> {
        let mut worn = frame.to_vec();
        let extra = self.kinds.len() * EXTENSION;
        if let Some(first) = self.kinds.first() {
            worn[20] = *first;
            let length = u16::from_be_bytes([worn[18], worn[19]]) + extra as u16;
            worn[18..20].copy_from_slice(&length.to_be_bytes());
            let next = self.kinds.iter().skip(1).copied().chain([TCP]);
            let headers: Vec<u8> = next.flat_map(|next| [next, 0, 1, 4, 0, 0, 0, 0]).collect();
            worn.splice(IP6_END..IP6_END, headers);
        }
        if self.is_boundless {
            self.say_length(&mut worn, 0);
        }
        for _ in 0..self.tags {
            worn.splice(TYPE..TYPE, [0x81, 0, 0, 5]);
        }
        worn
    }

    /// The frame that [`on`](Self::on) was given, with what has become of it.
    pub(crate) fn off(&self, worn: &[u8]) -> Vec<u8> {
        let mut frame = worn.to_vec();
        frame.drain(TYPE..TYPE + 4 * self.tags);
        if !self.kinds.is_empty() {
            frame.drain(IP6_END..IP6_END + self.kinds.len() * EXTENSION);
            frame[20] = TCP;
        }
        let before = if is_v4(&frame) { ETHERNET } else { IP6_END };
        if self.is_boundless || !self.kinds.is_empty() {
            let length = (frame.len() - before) as u16;
            self.say_length(&mut frame, length);
        }
        frame
    }

    /// IPv4's length is part of its header's checksum.
    fn say_length(&self, frame: &mut [u8], length: u16) {
        if !is_v4(frame) {
            frame[18..20].copy_from_slice(&length.to_be_bytes());
            return;
        }
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame[24..26].fill(0);
        let sum = checksum(&[&frame[ETHERNET..ETHERNET + 20]]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}
