//! What breaks, and heals.
//!
//! Limits    All of it happens within three seconds, and a clock jumps by no more than one and a half:
//!           together less than a sender's hold (5.6 s). Beyond that a receiver that is not heard gives
//!           to others what a dead host's shaper still has; docs/STATUS.md, Known limits, says so.
//!           A host's agent dies at most once.

use super::draw::Draw;
use super::fabric::Fabric;

/// Faults begin here, ms.
const FROM: u64 = 1000;
/// And all is healed by now.
const TO: u64 = 4000;
/// Letters that are held back come so much later (docs/scenarios.md, `reorder`), ms.
const HELD_BACK: u64 = 100;

/// What breaks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Steps as their file has them.
    pub(crate) steps: Vec<String>,
    /// When the last one is healed, ms.
    pub(crate) healed: u64,
}

/// Up to six faults, each with what heals it; none for one seed in eight.
pub(crate) fn draw(draw: &mut Draw, fabric: &Fabric) -> Faults {
    let mut faults = Faults::default();
    if draw.one_in(8) {
        return faults;
    }
    let (mut agents, mut links) = (fabric.hosts.clone(), fabric.links.clone());
    let (mut clocks, mut still) = (fabric.hosts.clone(), fabric.hosts.clone());
    for _ in 0..draw.within(1, 6) {
        match draw.index(8) {
            0 | 1 => faults.control(draw, &fabric.hosts),
            2 | 3 => {
                let Some(host) = draw.take(&mut agents) else { continue };
                let guardian = if draw.one_in(3) { ", guardian: true" } else { "" };
                let (from, to) = times(draw, 50, 2500);
                faults.step(from, &format!("kill-agent: {host}{guardian}"));
                faults.step(to, &format!("start-agent: {host}"));
            }
            4 => {
                let Some(host) = draw.take(&mut agents) else { continue };
                faults.step(draw.within(FROM, TO), &format!("restart-agent: {host}"));
            }
            5 => {
                let Some(link) = draw.take(&mut links) else { continue };
                let (from, to) = times(draw, 20, 1000);
                faults.step(from, &format!("link-down: {link}"));
                faults.step(to, &format!("link-up: {link}"));
            }
            6 => {
                let Some(host) = draw.take(&mut still) else { continue };
                let (from, to) = times(draw, 5, 800);
                faults.step(from, &format!("pause-host: {host}, for: {}ms", to - from));
                faults.healed = faults.healed.max(to);
            }
            _ => {
                let Some(host) = draw.take(&mut clocks) else { continue };
                let by = draw.within(1, 1500);
                faults.step(draw.within(FROM, TO), &format!("step-clock: {host}, by: {by}ms"));
            }
        }
    }
    faults
}

/// When something breaks that lasts so many ms, and when it heals.
fn times(draw: &mut Draw, least: u64, most: u64) -> (u64, u64) {
    let lasts = draw.within(least, most);
    let from = draw.within(FROM, TO - lasts);
    (from, from + lasts)
}

impl Faults {
    fn step(&mut self, at: u64, what: &str) {
        self.steps.push(format!("    - {{at: {at}ms, {what}}}\n"));
        self.healed = self.healed.max(at);
    }

    fn control(&mut self, draw: &mut Draw, hosts: &[String]) {
        let mut suffers = Vec::new();
        for key in ["loss", "duplicate", "reorder"] {
            if draw.one_in(2) {
                let most = draw.of(&[0.1, 0.5, 1.0]);
                suffers.push(format!("{key}: {}", draw.part(most)));
            }
        }
        let mut late = 0;
        if draw.one_in(2) || suffers.is_empty() {
            late = draw.within(1, 80);
            let jitter = draw.within(0, late);
            suffers.push(format!("delay: {late}ms, jitter: {jitter}ms"));
            late += jitter;
        }
        if draw.one_in(2) {
            suffers.push(format!("hosts: [{}]", hosts[draw.index(hosts.len())]));
        }
        let (from, to) = times(draw, 100, 2500);
        self.step(from, &format!("control: {{{}, for: {}ms}}", suffers.join(", "), to - from));
        self.healed = self.healed.max(to + late + HELD_BACK);
    }
}
