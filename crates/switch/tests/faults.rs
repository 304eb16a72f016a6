//! Switches that fail half-way, are late, or are reset between two steps.

use crate::common::{
    Folder, PORT, apply, failure, managed, name, port, settings, sh, switch, world,
};
use std::time::Duration;
use weir_core::binding::switch::{Cannot, PortName, Stage};
use weir_switch::linux::LinuxTc;
use weir_switch::{
    Backend, Driver, Failed, Found, Group, Limit, Managed, Outcome, Owner, Saves, Step, Why,
};

/// What goes wrong, once, at the first group of a stage.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    None,
    /// The switch forgets all that is not in its startup configuration.
    Reboot(Stage),
    /// Only the first change of the group is made.
    Half(Stage),
    /// The group takes longer than the time limit.
    Slow(Stage),
    /// Another controller leaves its mark while this one leaves its own.
    Rival,
}

struct Faulty {
    linux: LinuxTc,
    fault: Fault,
}

impl Backend for Faulty {
    type Saved = <LinuxTc as Backend>::Saved;

    const PROVES: bool = true;

    fn read(&mut self, limit: &Limit) -> Result<Found, Failed> {
        self.linux.read(limit)
    }

    fn save(&mut self, limit: &Limit) -> Result<Self::Saved, Failed> {
        self.linux.save(limit)
    }

    fn covers(saved: &Self::Saved, port: &PortName) -> bool {
        LinuxTc::covers(saved, port)
    }

    fn extend(saved: &mut Self::Saved, now: Self::Saved) {
        LinuxTc::extend(saved, now);
    }

    fn mark(&mut self, owner: &Owner, limit: &Limit) -> Result<(), Failed> {
        if std::mem::replace(&mut self.fault, Fault::None) == Fault::Rival {
            sh("ip link property add dev swp1 altname weir.rival.swp1");
        }
        self.linux.mark(owner, limit)
    }

    fn unmark(&mut self, owner: &Owner, limit: &Limit) -> Result<(), Failed> {
        self.linux.unmark(owner, limit)
    }

    fn make(&mut self, group: &Group<'_, Self::Saved>, limit: &Limit) -> Result<(), Failed> {
        let (fault, stage) = (self.fault, group.stage);
        match fault {
            Fault::Reboot(at) if at == stage => {
                self.fault = Fault::None;
                sh("tc qdisc del dev swp1 root");
                sh("ip link property del dev swp1 altname weir.test.swp1");
            }
            Fault::Half(at) if at == stage => {
                self.fault = Fault::None;
                self.linux.make(&Group { changes: &group.changes[..1], ..*group }, limit)?;
                let step = Step::Make(stage);
                return Err(Failed::new(step, Why::Refused("connection reset".into())));
            }
            Fault::Slow(at) if at == stage => {
                self.fault = Fault::None;
                while limit.left(Step::Read).is_ok() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {}
        }
        self.linux.make(group, limit)
    }

    fn restore(&mut self, saved: &Self::Saved, limit: &Limit) -> Result<(), Failed> {
        self.linux.restore(saved, limit)
    }
}

fn faulty(folder: &Folder, fault: Fault, limit: Duration) -> Managed<Faulty> {
    let linux = LinuxTc::open(settings(100)).unwrap();
    let saves = Saves::new(&folder.0, "one");
    Managed::new(Faulty { linux, fault }, Owner::new("test").unwrap(), saves, limit)
}

/// Every stage has changes from the first to the second.
fn two() -> [weir_core::binding::switch::SwitchConfig; 2] {
    [
        switch(port(100, &[(0, 1), (1, 2), (2, 3)], &[(11, 1), (12, 2)])),
        switch(port(100, &[(0, 2), (1, 2), (3, 4)], &[(12, 1), (13, 3)])),
    ]
}

const STAGES: [Stage; 4] = [Stage::Make, Stage::Unbind, Stage::Bind, Stage::Remove];

#[test]
fn after_a_failure_at_any_stage_the_next_call_finishes() {
    let _sink = world();
    for stage in STAGES {
        for fault in [Fault::Reboot(stage), Fault::Half(stage)] {
            let folder = Folder::new();
            let [first, second] = two();
            let mut driver = faulty(&folder, Fault::None, crate::common::LIMIT);
            apply(&mut driver, &first);
            driver.backend().fault = fault;
            let failed = failure(driver.apply(&second));
            // A reset in the last stage leaves nothing to refuse: it is seen when it is read back.
            assert!(matches!(failed.step, Step::Make(_) | Step::Verify), "{fault:?}: {failed}");
            apply(&mut driver, &second);
            assert_eq!(driver.read().unwrap().config, second, "{fault:?}");
            assert_eq!(driver.rollback(), Outcome::Applied(Vec::new()), "{fault:?}");
            assert!(!sh(&format!("tc qdisc show dev {PORT}")).contains("htb"));
        }
    }
}

#[test]
fn a_late_switch_is_told_as_late_and_goes_on_with_the_next_call() {
    let _sink = world();
    let folder = Folder::new();
    let [first, second] = two();
    apply(&mut faulty(&folder, Fault::None, crate::common::LIMIT), &first);
    let mut slow = faulty(&folder, Fault::Slow(Stage::Make), Duration::from_secs(3));
    let failed = failure(slow.apply(&second));
    assert_eq!(failed.why, Why::Late, "{failed}");
    apply(&mut faulty(&folder, Fault::None, crate::common::LIMIT), &second);
    let mut none = faulty(&folder, Fault::None, Duration::ZERO);
    assert_eq!(failure(none.apply(&first)), Failed::new(Step::Read, Why::Late));
}

#[test]
fn two_controllers_that_come_at_once_both_give_way() {
    let _sink = world();
    let folder = Folder::new();
    let [first, _] = two();
    let mut driver = faulty(&folder, Fault::Rival, crate::common::LIMIT);
    assert_eq!(failure(driver.apply(&first)).why, Why::Owned("rival".into()));
    let shown = sh("ip link show swp1");
    assert!(!shown.contains("weir.test.swp1") && shown.contains("weir.rival.swp1"), "{shown}");
    assert!(!sh("tc qdisc show dev swp1").contains("htb"));
}

#[test]
fn what_the_switch_cannot_hold_changes_nothing() {
    let _sink = world();
    let folder = Folder::new();
    let mut settings = settings(100);
    settings.reserved_codepoints = [46].into();
    settings.ports.get_mut(&name()).unwrap().queues = 4;
    let mut driver = managed(LinuxTc::open(settings).unwrap(), "test", &folder);
    let queue =
        |queue: u8, weight, at| switch(port(100, &[(0, 1), (queue, weight)], &[(at, queue)]));
    let at = name();
    let cases = [
        (queue(5, 1, 9), Cannot::NoSuchQueue { port: at.clone(), queue: 5, has: 4 }),
        (queue(1, 16, 9), Cannot::Weight { port: at.clone(), queue: 1, weight: 16, most: 15 }),
        (queue(1, 0, 9), Cannot::Weight { port: at.clone(), queue: 1, weight: 0, most: 15 }),
        (queue(1, 1, 46), Cannot::ReservedCodepoint(46)),
    ];
    for (wanted, cannot) in cases {
        let plan = driver.plan(&wanted).unwrap();
        assert!(plan.to_string().contains("stays in the shared queue"), "{plan}");
        assert_eq!(failure(driver.apply(&wanted)).why, Why::Cannot(cannot));
        assert!(!sh("tc qdisc show dev swp1").contains("htb"));
        assert!(!sh("ip link show swp1").contains("altname"));
    }
    let mut gone = queue(1, 1, 9);
    let ports = std::mem::take(&mut gone.ports);
    gone.ports = ports.into_values().map(|port| ("swp9".into(), port)).collect();
    let failed = failure(driver.apply(&gone));
    assert_eq!(failed.why, Why::Cannot(Cannot::NoSuchPort("swp9".into())));
}
