//! The rate control law, in whole numbers of 64 bits.
//!
//! Problem   One rate R for all that send to an endpoint, without knowing how many they are or what
//!           they want; and the same law must run in BPF, which has neither reals nor 128 bits.
//! Approach  R ← R·(1 − α·(y − C)/C)·(1 − β/2), in fractions of 2⁻¹⁶, on plain numbers. Whatever is
//!           larger than the law can multiply is first cut to what it can ([`RATE_MOST`],
//!           [`ELAPSED_MOST_NS`]), so that every input has a result and nothing wraps.
//! Promises  min(floor, C) ≤ R ≤ C. y = C leaves R as it is. One step multiplies R by no more than 1 + α and
//!           no less than `least_factor` (β apart). Rounding is always downward, by less than 2⁻¹⁵ of R and
//!           1 bit/s; no step is larger than the law in reals would make it.
//! Not here  What C is: see `scheduler`. Whether the loop is stable: see `stability`.
//! Source    EyeQ §3.4. Departs: y is cut at 3·C and R at both ends, since the printed law makes R
//!           negative above y = 3·C for α = ½, and lets it grow without bound while senders are idle.

/// One, in the fractions of the law: 2¹⁶.
pub const ONE: u32 = 1 << 16;
/// Rates above are cut to this, bit/s: 549 Gb/s.
pub const RATE_MOST: u64 = (1 << 39) - 1;
/// A longer time between two steps counts as this, ns: 1.07 s. What arrived then seems faster than it was.
pub const ELAPSED_MOST_NS: u64 = 1 << 30;
/// No rate is below this, bit/s, unless C is: a smaller one could be too small to grow by a whole bit/s.
pub const RATE_LEAST: u64 = 1_000;
/// Arrivals count up to this many times C (as the authors' code bounds them).
pub const LOAD_MOST: u64 = 3;
/// α is cut to this, in fractions. Above 2 nothing is stable (EyeQ §3.4).
const ALPHA_MOST: u32 = 4 * ONE;
/// Segments above are cut to this. More do not pass within [`ELAPSED_MOST_NS`].
const SEGMENTS_MOST: u64 = (1 << 40) - 1;

/// What one step goes by. Plain numbers, in the order of a C struct without holes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RcpInput {
    /// R before the step, bit/s.
    pub rate_bps: u64,
    /// C, what the endpoint may receive, bit/s.
    pub capacity_bps: u64,
    /// R is not below this, bit/s, unless C is.
    pub floor_bps: u64,
    /// Since the last step, ns.
    pub elapsed_ns: u64,
    /// Octets that arrived in that time: y.
    pub received_octets: u64,
    /// Segments that arrived in that time.
    pub segments: u64,
    /// Of these, marked CE. β is their part.
    pub marked: u64,
    /// α, in 1/65536.
    pub alpha: u32,
    /// The least that one step multiplies R by, in 1/65536.
    pub least_factor: u32,
    /// How marks count. 0: R falls by β/2 (the paper). Else, in octets: where anything was marked a queue
    /// of this much × (1 + β) is taken for waiting, and added to what arrived (the authors' code).
    pub queue_octets: u32,
    /// Nothing; keeps the size a multiple of eight.
    pub spare: u32,
}

/// What one step comes to.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RcpOutput {
    /// R after the step, bit/s.
    pub rate_bps: u64,
    /// y / C as the law saw it, in 1/65536, rounded up, at most [`LOAD_MOST`].
    pub load: u64,
}

/// One step of the law. Without time or without capacity only the bounds of R apply.
pub fn rcp_step(input: RcpInput) -> RcpOutput {
    let one = u64::from(ONE);
    let capacity = input.capacity_bps.min(RATE_MOST);
    let floor = input.floor_bps.max(RATE_LEAST).min(capacity);
    let rate = input.rate_bps.clamp(floor, capacity);
    let budget = octets_in(capacity, input.elapsed_ns);
    if budget == 0 {
        return RcpOutput { rate_bps: rate, load: 0 };
    }
    let beta = part(input.marked, input.segments);
    let queue = u64::from(input.queue_octets);
    let waiting = if beta > 0 { (queue * (one + beta)).div_ceil(one) } else { 0 };
    // Below: budget < 2³⁷, load ≤ 3·2¹⁶, alpha ≤ 2¹⁸, rate < 2³⁹: no product reaches 2⁶⁰.
    let most = LOAD_MOST * budget;
    let seen = (input.received_octets.min(most) + waiting).min(most);
    let load = (seen << 16).div_ceil(budget);

    let alpha = u64::from(input.alpha.min(ALPHA_MOST));
    let cut = (alpha * load).div_ceil(one);
    let least = u64::from(input.least_factor.min(ONE));
    let factor = (one + alpha).saturating_sub(cut).max(least);
    let mut next = (rate * factor) >> 16;
    if input.queue_octets == 0 {
        next = (next * (2 * one - beta)) >> 17;
    }
    RcpOutput { rate_bps: next.clamp(floor, capacity), load }
}

/// Octets that fit into `elapsed_ns` at `bps`, rounded down; time is taken in steps of 64 ns.
fn octets_in(bps: u64, elapsed_ns: u64) -> u64 {
    // 8 bits × 10⁹ ns / 64; bps < 2³⁹ times 2²⁴ steps stays below 2⁶³.
    const STEPS: u64 = 125_000_000;
    bps * (elapsed_ns.min(ELAPSED_MOST_NS) >> 6) / STEPS
}

/// `marked` of `segments`, in 1/65536, rounded up.
fn part(marked: u64, segments: u64) -> u64 {
    let segments = segments.min(SEGMENTS_MOST);
    if segments == 0 {
        return 0;
    }
    (marked.min(segments) << 16).div_ceil(segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GBPS: u64 = 1_000_000_000;
    /// Octets that 9 Gb/s carry in 200 µs.
    const FULL: u64 = 225_000;

    /// The paper's constants at 9 of 10 Gb/s.
    fn paper(rate_bps: u64, received_octets: u64) -> RcpInput {
        RcpInput {
            rate_bps,
            capacity_bps: 9 * GBPS,
            floor_bps: 900_000,
            elapsed_ns: 200_000,
            received_octets,
            segments: 150,
            alpha: ONE / 2,
            least_factor: ONE / 10,
            ..RcpInput::default()
        }
    }

    #[test]
    fn a_quarter_too_much_takes_an_eighth() {
        let out = rcp_step(paper(GBPS, FULL * 5 / 4));
        assert_eq!(out.rate_bps, GBPS * 7 / 8);
        assert_eq!(out.load, u64::from(ONE) * 5 / 4);
    }

    #[test]
    fn what_is_just_right_changes_nothing() {
        for rate in [900_000, 90_000_001, GBPS, 9 * GBPS] {
            assert_eq!(rcp_step(paper(rate, FULL)).rate_bps, rate);
        }
    }

    #[test]
    fn an_idle_endpoint_grows_by_half_and_stops_at_its_capacity() {
        assert_eq!(rcp_step(paper(4 * GBPS, 0)).rate_bps, 6 * GBPS);
        assert_eq!(rcp_step(paper(8 * GBPS, 0)).rate_bps, 9 * GBPS);
    }

    #[test]
    fn three_times_the_capacity_and_more_takes_nine_tenths_and_never_all() {
        for received in [3 * FULL, 100 * FULL, u64::MAX] {
            let out = rcp_step(paper(GBPS, received));
            assert_eq!(out.rate_bps, (GBPS * u64::from(ONE / 10)) >> 16);
        }
        assert_eq!(rcp_step(paper(1, u64::MAX)).rate_bps, 900_000, "the floor");
    }

    #[test]
    fn marks_on_everything_take_half_and_marks_on_half_a_quarter() {
        let marked = |marked| rcp_step(RcpInput { marked, ..paper(GBPS, FULL) }).rate_bps;
        assert_eq!(marked(150), GBPS / 2);
        assert_eq!(marked(75), GBPS * 3 / 4);
        assert_eq!(marked(0), GBPS);
    }

    #[test]
    fn marks_may_count_as_a_queue_that_waits() {
        let marked = |marked| {
            rcp_step(RcpInput { marked, queue_octets: 45_000, ..paper(GBPS, FULL) }).rate_bps
        };
        assert_eq!(marked(0), GBPS);
        // 45 kB × 2 more than the 225 kB that fit: y = 1.4 C.
        assert_eq!(marked(150), (GBPS * 52_428) >> 16, "0.8, rounded down");
    }

    #[test]
    fn without_time_or_capacity_only_the_bounds_apply() {
        let no_time = RcpInput { elapsed_ns: 0, ..paper(20 * GBPS, FULL) };
        assert_eq!(rcp_step(no_time), RcpOutput { rate_bps: 9 * GBPS, load: 0 });
        let nothing = RcpInput { capacity_bps: 0, ..paper(GBPS, FULL) };
        assert_eq!(rcp_step(nothing), RcpOutput { rate_bps: 0, load: 0 });
    }

    /// The law in reals, with the same bounds.
    fn in_reals(i: RcpInput) -> f64 {
        let one = f64::from(ONE);
        let capacity = i.capacity_bps.min(RATE_MOST) as f64;
        let floor = (i.floor_bps.max(RATE_LEAST) as f64).min(capacity);
        let rate = (i.rate_bps as f64).clamp(floor, capacity);
        let elapsed = (i.elapsed_ns.min(ELAPSED_MOST_NS) >> 6 << 6) as f64 / 1e9;
        let budget = capacity * elapsed / 8.0;
        if budget < 1.0 {
            return rate;
        }
        let segments = i.segments.min(SEGMENTS_MOST) as f64;
        let beta = if i.segments == 0 { 0.0 } else { (i.marked as f64).min(segments) / segments };
        let mut load = i.received_octets as f64 / budget;
        if i.queue_octets > 0 && beta > 0.0 {
            load = load.min(3.0) + f64::from(i.queue_octets) * (1.0 + beta) / budget;
        }
        let alpha = f64::from(i.alpha.min(ALPHA_MOST)) / one;
        let least = f64::from(i.least_factor.min(ONE)) / one;
        let mut next = rate * (1.0 - alpha * (load.min(3.0) - 1.0)).max(least);
        if i.queue_octets == 0 {
            next *= 1.0 - beta / 2.0;
        }
        next.clamp(floor, capacity)
    }

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..2_000, 0u64..1_000_000, 0u64..20 * GBPS, any::<u64>(), Just(u64::MAX)]
    }

    prop_compose! {
        fn any_input()(
            n in prop::array::uniform7(number()),
            alpha in any::<u32>(),
            least_factor in any::<u32>(),
            queue_octets in prop_oneof![Just(0), Just(45_000), any::<u32>()],
        ) -> RcpInput {
            let [rate_bps, capacity_bps, floor_bps, elapsed_ns, received_octets, segments, marked] = n;
            RcpInput {
                rate_bps, capacity_bps, floor_bps, elapsed_ns, received_octets, segments, marked,
                alpha, least_factor, queue_octets, spare: 0,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        /// Debug builds panic where a product would wrap.
        #[test]
        fn any_numbers_have_a_result_between_the_bounds(input in any_input()) {
            let out = rcp_step(input);
            let capacity = input.capacity_bps.min(RATE_MOST);
            prop_assert!(out.rate_bps <= capacity);
            prop_assert!(out.rate_bps >= input.floor_bps.min(capacity));
            prop_assert!(out.load <= LOAD_MOST * u64::from(ONE));
        }

        #[test]
        fn a_step_is_that_of_the_reals_rounded_down(
            rate in 1_000u64..10 * GBPS,
            capacity in 100_000_000u64..100 * GBPS,
            elapsed_ns in 200_000u64..2_000_000,
            load in 0u64..300,
            marked in 0u64..=100,
            alpha in 1..=2 * ONE,
            queue_octets in prop_oneof![Just(0), Just(45_000)],
        ) {
            let input = RcpInput {
                rate_bps: rate,
                capacity_bps: capacity,
                floor_bps: capacity / 10_000,
                elapsed_ns,
                received_octets: octets_in(capacity, elapsed_ns) * load / 100,
                segments: 100,
                marked,
                alpha,
                least_factor: ONE / 10,
                queue_octets,
                spare: 0,
            };
            let (got, want) = (rcp_step(input).rate_bps as f64, in_reals(input));
            // Octets are whole: one of the budget's is worth alpha / budget of R.
            let octet = 3.0 * f64::from(alpha) / f64::from(ONE) / octets_in(capacity, elapsed_ns) as f64;
            let before = rate.clamp(capacity / 10_000, capacity) as f64;
            prop_assert!(got <= want * (1.0 + 1e-12) + before * octet, "{got} above {want}");
            let slack = before * (5.0 / f64::from(ONE) + octet) + 2.0;
            prop_assert!(got >= want - slack, "{got} far below {want}");
        }
    }
}
