//! Damages inputs, the same way every time.
//!
//! Problem   A parser is broken by what is almost right.
//! Approach  A few damages on top of each other: bits, octets, cuts, repeats, splices with another
//!           input, numbers made huge, words of the format, nesting.
//! Promises  Same generator, same damage. No input grows beyond [`LONGEST`].
//! Source    The mutations are those of AFL and libFuzzer, without coverage.

use weir_units::SplitMix64;

/// Octets of the longest input that is made.
pub const LONGEST: usize = 64 * 1024;

/// All chance of a run.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound.max(1) as u64) as usize
    }
}

/// Numbers at which counts and lengths break.
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "255",
    "256",
    "9999",
    "65536",
    "4294967296",
    "9223372036854775808",
    "18446744073709551616",
    "1e999",
    "0.0000000000000000000000001",
    "-1",
];

const OPENING: [&[u8]; 6] = [b"[", b"{", b"(", b"- ", b"{a: ", b"[["];

/// `input` with one to four damages; `other` is an input to splice with.
pub fn mutate(random: &mut Random, input: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
    let mut octets = input.to_vec();
    for _ in 0..1 + random.below(4) {
        damage(random, &mut octets, other, words);
        octets.truncate(LONGEST);
    }
    octets
}

fn damage(random: &mut Random, octets: &mut Vec<u8>, other: &[u8], words: &[&str]) {
    let at = random.below(octets.len() + 1);
    let some = 1 + random.below(16);
    let end = (at + some).min(octets.len());
    match random.below(12) {
        0 | 1 if at < octets.len() => octets[at] ^= 1 << random.below(8),
        2 if at < octets.len() => octets[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        3 => octets.truncate(at),
        4 => drop(octets.drain(at..end)),
        5 => {
            let part = octets[at..end].to_vec();
            insert(octets, at, &part);
        }
        6 => {
            let from = random.below(other.len() + 1);
            let to = (from + random.below(200)).min(other.len());
            insert(octets, at, &other[from..to]);
        }
        7 | 8 if !words.is_empty() => {
            insert(octets, at, words[random.below(words.len())].as_bytes())
        }
        9 => enlarge(random, octets, at),
        10 => {
            let depth = [3, 30, 300, 3000][random.below(4)];
            let nest = OPENING[random.below(OPENING.len())].repeat(depth);
            insert(octets, at, &nest);
        }
        11 => swap_lines(random, octets),
        _ => octets.push(random.number() as u8),
    }
}

fn insert(octets: &mut Vec<u8>, at: usize, part: &[u8]) {
    drop(octets.splice(at..at, part.iter().copied()));
}

/// The first number behind `at` becomes another.
fn enlarge(random: &mut Random, octets: &mut Vec<u8>, at: usize) {
    let Some(from) = octets[at..].iter().position(u8::is_ascii_digit).map(|n| at + n) else {
        return;
    };
    let digits = octets[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    let new = NUMBERS[random.below(NUMBERS.len())].bytes();
    drop(octets.splice(from..from + digits, new));
}

/// Two lines change places: keys under other parents.
fn swap_lines(random: &mut Random, octets: &mut Vec<u8>) {
    let mut lines: Vec<&[u8]> = octets.split(|c| *c == b'\n').collect();
    let (a, b) = (random.below(lines.len()), random.below(lines.len()));
    lines.swap(a, b);
    *octets = lines.join(&b'\n');
}
