//! A machine that is written down and read again goes on as if nothing had happened, to the octet.

use weir_core::elasticswitch::ElasticSwitch;
use weir_core::eyeq::EyeQ;
use weir_core::host::{
    Direction, Hose, HostMachine, Input, Location, Metered, Observed, Outbox, Part, Policy,
    ReceiveCount, SendCount, Timed, Told,
};
use weir_core::level::{Level, LevelLaw};
use weir_core::mechanism::Law;
use weir_core::message::{Congestion, LevelWord, Message, Offer};
use weir_core::path::MAX_PATHS;
use weir_core::reservation::Reservation;
use weir_core::vcc::BudgetConfig;
use weir_units::{Bytes, HostId, PairId, PathId, Rate, Span, TenantId, Time, VmId};

/// VMs 0 and 1 are here, 2 to 9 on hosts 1 and 2 in turn.
const VMS: u32 = 10;

fn pair(src: u32, dst: u32) -> PairId {
    PairId::new(VmId(src), VmId(dst))
}

fn octets(machine: &HostMachine) -> Vec<u8> {
    postcard::to_stdvec(machine).expect("memory has room")
}

fn policy(law: Law) -> Policy {
    let host = |vm: u32| if vm < 2 { 0 } else { 1 + vm % 2 };
    let place = |vm: u32| Location { tenant: TenantId(vm % 3), host: HostId(host(vm)) };
    let mut policy = Policy::new(HostId(0), Rate::from_mbps(10_000), law)
        .with_vms([0, 1].map(|vm| (VmId(vm), Hose::both(Rate::from_mbps(700)))))
        .with_directory((0..VMS).map(|vm| (VmId(vm), place(vm))));
    policy.can.paths = MAX_PATHS;
    let classes = [("all".into(), 1, 0..=u16::MAX)];
    let budget = BudgetConfig::by_remote_ports(Bytes::new(90_000), 9, classes.into_iter());
    policy.windows.insert(VmId(0), budget);
    policy
}

/// The n-th turn of a driver: some of everything, no two alike.
fn turn(machine: &mut HostMachine, n: u64) -> Vec<(HostId, Message)> {
    let (now, mut out) = (Time::ZERO + Span::from_millis(5 * n), Outbox::default());
    let src = (n % 2) as u32;
    let dst = 2 + (n % 8) as u32;
    let (to, from) = (pair(src, dst), pair(dst, src));
    machine.handle(now, Input::Seen(to, Direction::Send), &mut out);
    machine.handle(now, Input::Seen(from, Direction::Receive), &mut out);
    let sent = |(i, dst): (u64, u32)| {
        let octets = n * (i + 1) * 40_000;
        let count =
            SendCount { octets, numbered: octets, segments: octets / 1514, ..SendCount::default() };
        (pair(src, dst), count)
    };
    let came = |(i, dst): (u64, u32)| {
        let octets = n * (i + 2) * 30_000;
        let (segments, lost) = (octets / 1514, n * i / 20);
        let numbered = Some(segments);
        (pair(dst, src), ReceiveCount { octets, segments, numbered, lost, marked: n / 7 })
    };
    let on_path = |(pair, count)| (pair, PathId((n % 2) as u32), count);
    let send: Vec<_> = (0..).zip(2..VMS).map(sent).collect();
    let receive: Vec<_> = (0..).zip(2..VMS).map(came).collect();
    let told = Told { rate: Rate::from_mbps(50 + n % 90), times: n };
    let metered = Metered { octets: n * 90_000, steps: n, advertised: told.rate };
    let observed = Observed {
        send_paths: send.iter().copied().map(on_path).collect(),
        receive_paths: receive.iter().copied().map(|(p, c)| (p, PathId(0), c)).collect(),
        send,
        receive,
        meters: Part::ALL.map(|part| (VmId(src), part, metered)).to_vec(),
        limits: vec![(to, told)],
        connections: vec![(VmId(src), vec![(n % 7) as u32])],
        timed: vec![(HostId(1 + dst % 2), Timed { sent: (n * 5000) as u16, came: now })],
    };
    machine.handle(now, Input::Observed(&observed), &mut out);
    let peer = HostId(1 + dst % 2);
    let floor = Rate::from_mbps(20 + n % 50);
    let (serial, confirm) = (n as u32, n.is_multiple_of(5));
    let offer = Offer {
        pair: to,
        serial,
        floor,
        unbounded: n.is_multiple_of(3),
        confirm,
        round_trip: None,
    };
    machine.handle(now, Input::Message(peer, Message::Offer(offer)), &mut out);
    let report = Congestion { pair: to, lost: (n % 4) as u32, marked: 0, received: 30 };
    machine.handle(now, Input::Message(peer, Message::Congestion(report)), &mut out);
    let word = LevelWord::May(Level::from_raw(n * 100));
    machine.handle(now, Input::Message(peer, Message::Level(word)), &mut out);
    machine.handle(now, Input::Tick, &mut out);
    machine.orders(now);
    out.take()
}

#[test]
fn a_machine_that_was_written_down_goes_on_to_the_octet_with_every_mechanism() {
    let es =
        |name: &str| Law::ElasticSwitch(Box::new(ElasticSwitch::preset(name).expect("a preset")));
    let rates = [(pair(0, 2), Rate::from_mbps(30))].into();
    let reservation = Law::Reservation(Reservation { rates, other: Rate::from_mbps(1) });
    let eyeq = || policy(Law::EyeQ(Box::default()));
    let mut metered = eyeq();
    metered.can.meters = true;
    let mut policies: Vec<Policy> =
        ElasticSwitch::ALL_PRESETS.iter().map(|name| policy(es(name))).collect();
    policies.push(policy(Law::ElasticSwitch(Box::new(ElasticSwitch::seawall()))));
    let level = Law::Level(Box::<LevelLaw>::default());
    let trinity = Law::Trinity(Box::default());
    policies.extend([policy(reservation), policy(level), policy(trinity), metered, eyeq()]);
    let paper = EyeQ::preset("eyeq-paper").expect("a preset");
    policies.push(policy(Law::EyeQ(Box::new(paper))));
    for policy in policies {
        let law = format!("{:?}", policy.law);
        let mut machine = HostMachine::new(policy, Time::ZERO).expect("nothing speaks against it");
        for n in 1..200 {
            turn(&mut machine, n);
        }
        let written = octets(&machine);
        let mut read: HostMachine = postcard::from_bytes(&written).expect("its own octets");
        assert!(octets(&read) == written, "{law}");
        for n in 200..400 {
            assert_eq!(turn(&mut read, n), turn(&mut machine, n), "{law}");
        }
        assert!(octets(&read) == octets(&machine), "{law}");
    }
}
