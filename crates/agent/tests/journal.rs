//! The journal of a real agent: it replays, also after a kill, and a full disk costs no more than the journal. Needs root.

use crate::common::{Agent, World, daemon, pause, sh, until};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_journal::{Error, replay, segments};

/// A disk of 16 kB.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Self {
        std::fs::create_dir(at).unwrap();
        sh(&format!("mount -t tmpfs -o size=16k tmpfs {}", at.display()));
        Self(at.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

/// Host 1's agent with a journal in `dir`.
fn start_recorded<'a>(world: &'a World, dir: &Path) -> Agent<'a> {
    let line = format!("exec \"$@\" --journal {}", dir.display());
    world.start_as(1, &daemon(), &["sh", "-c", &line, "sh"].map(String::from), &[])
}

/// Traffic from VM 1 to VM 2 until the pair has more than 5 Mbit/s.
fn begin(world: &World, sender: &Agent<'_>) {
    let (from, _sink) = (world.udp(1), world.udp(2));
    until("a floor", 10, || {
        for _ in 0..60 {
            from.send_to(&[0xff; 600], "10.0.0.2:9000").unwrap();
        }
        sender.pair().is_some_and(|pair| pair.floor_bps > 5_000_000)
    });
}

fn counter(agent: &Agent<'_>, name: &str) -> Option<u64> {
    let counters = agent.top().counters;
    counters.iter().find(|(n, _)| n == name).map(|(_, value)| *value)
}

#[test]
fn what_an_agent_recorded_replays_and_after_a_kill_up_to_the_last_record() {
    let world = World::new();
    let journal = world.dir.join("journal");
    let _receiver = world.start(2);
    let sender = start_recorded(&world, &journal);
    begin(&world, &sender);
    sender.explain();
    until("records are on the disk", 10, || counter(&sender, "journal.records") > Some(100));
    sender.kill();
    let killed: Vec<PathBuf> = segments(&journal).expect("written");
    let (_, error) = replay(&journal, &mut |_, _| {}).expect_err("it has no end");
    assert!(matches!(error, Error::CutOff { record } if record > 100), "{error}");

    let sender = start_recorded(&world, &journal);
    assert!(sender.pair().is_some(), "the pair was adopted");
    pause(1000);
    assert_eq!(counter(&sender, "journal.dropped_records"), Some(0));
    sender.stop();
    killed.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let mut works = 0;
    let replayed = replay(&journal, &mut |_, found| works += found.works);
    assert!(replayed.is_ok(), "{replayed:?}");
    assert!(works > 20, "{works} orders were compared");
}

#[test]
fn a_full_disk_ends_the_journal_with_a_warning_and_a_counter_and_not_the_agent() {
    let world = World::new();
    let journal = world.dir.join("journal");
    let _disk = Disk::mount(&journal);
    let _receiver = world.start(2);
    let sender = start_recorded(&world, &journal);
    begin(&world, &sender);
    until("the disk is full", 30, || counter(&sender, "journal.ended") == Some(1));
    until("it is told", 10, || sender.log().contains("the journal has ended"));
    until("records are dropped", 10, || counter(&sender, "journal.dropped_records") > Some(0));
    begin(&world, &sender);
    sender.stop();
}

#[test]
fn an_agent_without_a_journal_counts_none_and_one_that_cannot_be_made_is_told() {
    let world = World::new();
    let agent = world.start(1);
    assert_eq!(counter(&agent, "journal.records"), None);
    agent.stop();
    std::fs::write(world.dir.join("file"), "").unwrap();
    let agent = start_recorded(&world, &world.dir.join("file"));
    assert_eq!(counter(&agent, "journal.ended"), Some(1));
    assert!(agent.log().contains("no journal is written"), "{}", agent.log());
    agent.stop();
}
