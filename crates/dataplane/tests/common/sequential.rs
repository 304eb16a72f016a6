//! Whether the median of a noisy ratio is at least so much: measured until that is clear.
//!
//! Problem   A tester who measures again until the median looks good finds it good in the end.
//! Approach  The sign test, which asks nothing of how the noise is distributed: of a median that is
//!           too small at most half of the ratios reach what is asked, of one that is not at least
//!           half. After each ratio those that do are counted, and compared with two limits. How
//!           often chance alone may pass a limit in any of the looks is laid down beforehand, and
//!           divided among them (Lan and DeMets 1983): so looking again is paid for. The
//!           probabilities are exact, summed over all ways in which ratios can come.
//! Promises  Whatever the noise: a limit holds a median that is too small to be sufficient with a
//!           probability of [`WRONGLY_ENOUGH`] at most, and one that suffices to be too small with
//!           [`WRONGLY_FEW`]. There is an end: what no limit has decided by then is, for its noise,
//!           too near to what is asked for so many ratios to tell. Then the majority decides, but
//!           it takes more to fail: it must be shown as well that the ratio is not one. So what
//!           costs nothing fails at the end with [`WRONGLY_COSTLY`] at most, again whatever the
//!           noise. How much noise hides a tenth, a test says.
//! Not here  What is measured; and that ratios do not depend on each other: the caller plays in
//!           turn for that.

use crate::random::Random;

/// How often a median that is too small may be held sufficient before the end,
const WRONGLY_ENOUGH: f64 = 0.05;
/// one that suffices too small,
const WRONGLY_FEW: f64 = 0.01;
/// and one that is 1 less than that, at the end: of many cases none should fail by chance.
const WRONGLY_COSTLY: f64 = 0.02;

/// When there are enough ratios, and what they say.
pub(crate) struct Rule {
    least: f64,
    /// By number of ratios, less one: how many of them must suffice.
    enough: Vec<usize>,
    /// With so many that do not it is too small.
    few: Vec<usize>,
    /// With no more than so many of 1 and above, of all that there may be, it is not 1.
    costly: usize,
}

/// How probable each number of heads is, of so many coins as were thrown, on the ways that have not
/// ended.
struct Ways(Vec<f64>);

impl Ways {
    fn throw(&mut self) {
        let mut next = vec![0.0; self.0.len() + 1];
        for (heads, before) in self.0.iter().enumerate() {
            next[heads] += before / 2.0;
            next[heads + 1] += before / 2.0;
        }
        self.0 = next;
    }
}

/// The numbers of heads with which it is over, throw by throw: chance comes to one of them with
/// `level` at most. Two thirds are for the beginning, so that what is clear is soon over.
fn limits(most: usize, level: f64) -> Vec<usize> {
    let (mut ways, mut spent) = (Ways(vec![1.0]), 0.0);
    let throw = |thrown: usize| {
        ways.throw();
        let allowed = level * (2.0 + thrown as f64 / most as f64) / 3.0;
        let mut limit = thrown + 1;
        while limit > 0 && spent + ways.0[limit - 1] <= allowed {
            limit -= 1;
            spent += std::mem::take(&mut ways.0[limit]);
        }
        limit
    };
    (1..=most).map(throw).collect()
}

/// As many heads as chance comes to, or to fewer, with `level` at most.
fn rarely(most: usize, level: f64) -> usize {
    let mut ways = Ways(vec![1.0]);
    (0..most).for_each(|_| ways.throw());
    let mut sum = 0.0;
    let likely = ways.0.iter().position(|way| {
        sum += way;
        sum > level
    });
    likely.expect("all together are 1").checked_sub(1).expect("enough throws to tell")
}

impl Rule {
    /// Whether a median is `least`, of so many ratios at most.
    pub(crate) fn new(least: f64, most: usize) -> Self {
        let (enough, few) = (limits(most, WRONGLY_ENOUGH), limits(most, WRONGLY_FEW));
        Self { least, enough, few, costly: rarely(most, WRONGLY_COSTLY) }
    }

    /// What these ratios say, once that is clear. To be asked after each of them.
    pub(crate) fn decides(&self, ratios: &[f64]) -> Option<bool> {
        let count = |least: f64| ratios.iter().filter(|ratio| **ratio >= least).count();
        let (all, suffice) = (ratios.len(), count(self.least));
        if suffice >= self.enough[all - 1] {
            return Some(true);
        }
        if all - suffice >= self.few[all - 1] {
            return Some(false);
        }
        let is_end = all == self.enough.len();
        is_end.then(|| 2 * suffice > all || count(1.0) > self.costly)
    }
}

/// Of ratios of two measurements that are off by noise, the second `truly` as large as the first:
/// how often they are held to be 0.95 or more, of 31 at most, and how many it takes.
fn played(truly: f64, noise: &dyn Fn(&mut Random) -> f64) -> (f64, f64) {
    const TIMES: usize = 2_000;
    let (rule, mut random) = (Rule::new(0.95, 31), Random(5));
    let (mut enough, mut all) = (0, 0);
    for _ in 0..TIMES {
        let mut ratios = Vec::new();
        let decided = loop {
            ratios.push(truly * noise(&mut random) / noise(&mut random));
            if let Some(decided) = rule.decides(&ratios) {
                break decided;
            }
        };
        enough += usize::from(decided);
        all += ratios.len();
    }
    (enough as f64 / TIMES as f64, all as f64 / TIMES as f64)
}

/// So wide that the logarithm of a ratio of two has this standard deviation.
fn normal(deviation: f64) -> impl Fn(&mut Random) -> f64 {
    move |random| {
        let mut one = || (random.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64;
        let (radius, angle) = ((-2.0 * one().ln()).sqrt(), one() * std::f64::consts::TAU);
        (radius * angle.cos() * deviation / std::f64::consts::SQRT_2).exp()
    }
}

#[test]
fn looking_again_is_paid_for() {
    const TIMES: usize = 40_000;
    // A median that is exactly what is asked is at both limits' worst.
    for level in [WRONGLY_ENOUGH, WRONGLY_FEW] {
        let (mut random, limits) = (Random(11), limits(31, level));
        let reached = (0..TIMES).filter(|_| {
            let mut heads = 0;
            limits.iter().any(|limit| {
                heads += usize::from(random.below(2) == 1);
                heads >= *limit
            })
        });
        let part = reached.count() as f64 / TIMES as f64;
        // Three standard deviations above what is allowed; and most of it is used.
        assert!(part < level + 3.0 * (level / TIMES as f64).sqrt(), "{part} of {level}");
        assert!(part > level * 0.8, "{part} of {level}");
    }
    // Of 31 coins, 9 or fewer: 0.015; 10 or fewer: 0.035.
    assert_eq!(rarely(31, WRONGLY_COSTLY), 9);
}

#[test]
fn what_is_clear_is_soon_over_and_the_end_takes_more_to_fail() {
    let rule = Rule::new(0.95, 31);
    let first = |ratio: f64| (1..=31).find_map(|n| Some((n, rule.decides(&vec![ratio; n])?)));
    assert_eq!(first(0.95), Some((5, true)));
    assert_eq!(first(0.949), Some((8, false)));
    // Fifteen of 31 suffice.
    let end = |whole: usize| {
        let mut ratios = vec![0.9; 16];
        ratios.resize(31 - whole, 0.96);
        ratios.resize(31, 1.0);
        rule.decides(&ratios)
    };
    assert_eq!((end(9), end(10)), (Some(false), Some(true)));
}

#[test]
fn a_tenth_that_is_missing_is_found_and_what_costs_nothing_passes_however_noisy() {
    // By the deviation of a ratio: how often 0.90 may pass, and 0.94; and how often 1.00 has to.
    let cases = [
        (0.02, [0.001, 0.05, 0.999]),
        (0.05, [0.001, 0.25, 0.999]),
        (0.1, [0.04, 0.5, 0.995]),
        (0.15, [0.25, 0.8, 0.98]),
        (0.2, [0.5, 0.9, 0.98]),
        (0.5, [1.0, 1.0, 0.98]),
    ];
    for (deviation, [bad, little, good]) in cases {
        let of = |truly: f64| {
            let (passed, mean) = played(truly, &normal(deviation));
            println!("{truly:.2} with {deviation:.2}: {passed:.3}, of {mean:.1}");
            passed
        };
        let got = [0.90, 0.94, 1.00].map(of);
        assert!(got[0] <= bad && got[1] <= little && got[2] >= good, "{deviation}: {got:?}");
    }
    // One measurement in five is half as large: a median hardly sees it.
    let small = normal(0.02);
    let lame = |random: &mut Random| small(random) * if random.below(5) == 0 { 0.5 } else { 1.0 };
    let [(bad, _), (good, _)] = [0.90, 1.00].map(|truly| played(truly, &lame));
    assert!(bad <= 0.02 && good >= 0.995, "{bad}, {good}");
}
