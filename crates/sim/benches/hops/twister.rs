//! The random numbers of another language's standard library, so that its networks can be made
//! here.
//!
//! Source    MT19937 (Matsumoto and Nishimura 1998) with 53-bit fractions; seeded by an array of
//!           one word. Whole numbers below n: as many bits as n has, again until it is below.

const N: usize = 624;
const M: usize = 397;

/// A generator seeded with a small number.
pub(crate) struct Twister {
    state: [u32; N],
    used: usize,
}

impl Twister {
    pub(crate) fn new(seed: u32) -> Self {
        let mut state = [0u32; N];
        state[0] = 19_650_218;
        let mix = |state: &[u32; N], i: usize| state[i - 1] ^ (state[i - 1] >> 30);
        for i in 1..N {
            state[i] = mix(&state, i).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        let mut i = 1;
        let mut step = |state: &mut [u32; N], factor: u32, plus: &dyn Fn(usize) -> u32| {
            state[i] = (state[i] ^ mix(state, i).wrapping_mul(factor)).wrapping_add(plus(i));
            i += 1;
            if i == N {
                state[0] = state[N - 1];
                i = 1;
            }
        };
        (0..N).for_each(|_| step(&mut state, 1_664_525, &|_| seed));
        (1..N).for_each(|_| step(&mut state, 1_566_083_941, &|i| (i as u32).wrapping_neg()));
        state[0] = 1 << 31;
        Self { state, used: N }
    }

    fn next(&mut self) -> u32 {
        if self.used == N {
            self.used = 0;
            for i in 0..N {
                let y = self.state[i] & (1 << 31) | self.state[(i + 1) % N] & !(1 << 31);
                let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
            }
        }
        let mut y = self.state[self.used];
        self.used += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }

    /// From 0 to below 1.
    pub(crate) fn part(&mut self) -> f64 {
        let (a, b) = (self.next() >> 5, self.next() >> 6);
        (f64::from(a) * 67_108_864.0 + f64::from(b)) / 9_007_199_254_740_992.0
    }

    /// From 0 to below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        let bits = usize::BITS - n.leading_zeros();
        loop {
            let drawn = (self.next() >> (32 - bits)) as usize;
            if drawn < n {
                return drawn;
            }
        }
    }

    pub(crate) fn shuffle(&mut self, all: &mut [usize]) {
        for i in (1..all.len()).rev() {
            all.swap(i, self.below(i + 1));
        }
    }
}
