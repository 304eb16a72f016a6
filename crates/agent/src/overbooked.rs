//! Floors beyond the uplink: seen at the start from the configuration, and while running from the
//! shaper.
//!
//! Problem   A floor that the uplink cannot hold is scaled down by the shaper; the tenant gets less
//!           than was promised, without a visible reason.
//! Approach  At the start the hoses are held against the uplink less the headroom of admission;
//!           while running, the pairs' floors against what the shaper can keep.
//! Promises  Beginning, end and a changed factor are said, at most once in ten seconds, and the
//!           last state always; `weir top` and `weir explain` carry it at any time.
//! Not here  Scaling: see the shapers' levels. A refusal: admission uses the hose cut, the smaller
//!           side of each tenant's hoses, and an agent knows only its own side; so more than the
//!           uplink may be sound, and only pairs' floors, which both sides have agreed on, show
//!           that it is not.

use weir_core::classes::Overbooked;
use weir_model::status;
use weir_units::{Rate, Span, Time};

use crate::config::Setup;

/// The part of a link that admission leaves free, in percent: as in scenarios (`headroom`).
const HEADROOM: u64 = 10;
/// What changes is said at most once in this time.
const GAP: Span = Span::from_secs(10);

/// What the shaper says of floors that exceed the uplink, for people.
pub(crate) const fn of(over: Overbooked) -> status::Overbooked {
    let Overbooked { floors, budget } = over;
    status::Overbooked { floors_bps: floors.as_bps(), budget_bps: budget.as_bps() }
}

/// What was said of it last, and when.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    said: Option<Overbooked>,
    at: Option<Time>,
}

impl Teller {
    /// What to say now, if anything.
    pub(crate) fn look(&mut self, now: Time, over: Option<Overbooked>) -> Option<String> {
        if over == self.said || self.at.is_some_and(|at| now.since(at) < GAP) {
            return None;
        }
        let percent = |o: &Overbooked| (o.factor() * 100.0).round() as u64;
        let is_news = over.as_ref().map(percent) != self.said.as_ref().map(percent);
        self.said = over;
        if !is_news {
            return None;
        }
        self.at = Some(now);
        Some(match over {
            Some(over) => {
                format!("overbooked: {} Move VMs to other hosts, or lower their floors", over)
            }
            None => "no longer overbooked: the uplink holds the floors of all pairs".into(),
        })
    }
}

/// What the configuration promises beyond the uplink less its headroom, a sentence for each
/// direction.
pub(crate) fn warnings(setup: &Setup) -> Vec<String> {
    let line = setup.host.line;
    let own = setup.file.uplink.host_floor.map_or(Rate::ZERO, |floor| floor.0);
    let mut said = Vec::new();
    for (direction, field) in [("out", "floor_out"), ("in", "floor_in")] {
        let (mut room, mut kept) =
            (line.mul_ratio(100 - HEADROOM, 100), format!("{HEADROOM} % are headroom"));
        let mut promised = setup.host.promised_elsewhere(direction == "out");
        if direction == "out" && !own.is_zero() {
            room = room.saturating_sub(own);
            kept += &format!(", {own} are the host's own");
        }
        if direction == "out" {
            let external = setup.file.vms.iter().filter_map(|vm| vm.external_floor);
            promised += external.map(|floor| floor.0).sum();
        }
        // Each floor was rounded to a whole bit/s on its own: that is no overbooking.
        let rounding = Rate::from_bps(setup.host.vms().count() as u64);
        if promised <= room + rounding {
            continue;
        }
        said.push(format!(
            "the VMs of host `{}` are promised {promised} {direction} over an uplink of {line}, of \
             which {room} are for floors ({kept}). Unless their tenants are \
             promised less at the other end, floors will be scaled down: lower {field}, move VMs to \
             other hosts, or use a faster uplink",
            setup.file.host
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::text::RateText;

    const DIRECTORY: &str = "
hosts:
  - {name: h0, control: 10.0.0.1:7001}
  - {name: h1, control: 10.0.0.2:7001}
vms:
  - {name: a, tenant: red, host: h0, addresses: [10.1.0.1]}
  - {name: b, tenant: red, host: h0, addresses: [10.1.0.2]}
  - {name: c, tenant: red, host: h1, addresses: [10.1.0.3]}
";

    fn setup(floors: [(u64, u64); 2], mechanism: &str, directory: &str) -> Setup {
        let vm = |name: &str, (out, in_): (u64, u64)| {
            format!(
                "[[vm]]\nname = \"{name}\"\nport = \"p{name}\"\nfloor_out = \"{out}Mbit\"\n\
                 floor_in = \"{in_}Mbit\"\n"
            )
        };
        let text = format!(
            "instance = \"h0\"\nhost = \"h0\"\nlisten = \"10.0.0.1:7001\"\nkey_file = \"key\"\n\
             directory = \"directory.yaml\"\nuplink = {{ interface = \"up\", rate = \"1Gbit\" }}\n\
             mechanism = {{ {mechanism} }}\n{}{}",
            vm("a", floors[0]),
            vm("b", floors[1])
        );
        Setup::parse(&text, directory).expect("sound")
    }

    const ES: &str = "name = \"elasticswitch\"";

    #[test]
    fn what_is_promised_beyond_the_uplink_less_its_headroom_is_told_at_the_start_with_numbers() {
        let said = warnings(&setup([(450, 450), (451, 450)], ES, DIRECTORY));
        assert_eq!(
            said,
            [
                "the VMs of host `h0` are promised 901 Mb/s out over an uplink of 1 Gb/s, of which 900 Mb/s \
              are for floors (10 % are headroom). Unless their tenants are promised less at the other \
              end, floors will be scaled down: lower floor_out, move VMs to other hosts, or use a \
              faster uplink"
            ]
        );
        let with_own = |mbps| {
            let mut setup = setup([(350, 450), (451, 450)], ES, DIRECTORY);
            setup.file.uplink.host_floor = Some(RateText(Rate::from_mbps(mbps)));
            warnings(&setup)
        };
        assert_eq!(with_own(99), [""; 0], "just fits");
        let said = with_own(100);
        assert!(said.len() == 1 && said[0].contains("800 Mb/s are for floors"), "{said:?}");
        assert!(said[0].contains("(10 % are headroom, 100 Mb/s are the host's own)"), "{said:?}");
        let said = warnings(&setup([(450, 900), (450, 900)], ES, DIRECTORY));
        assert!(said.len() == 1 && said[0].contains("1.8 Gb/s in over"), "{said:?}");
        assert_eq!(warnings(&setup([(450, 450), (450, 450)], ES, DIRECTORY)), [""; 0], "just fits");
    }

    #[test]
    fn what_crosses_no_uplink_or_is_no_floor_is_not_held_against_it() {
        let here = DIRECTORY.replace("tenant: red, host: h1", "tenant: blue, host: h1");
        assert_eq!(warnings(&setup([(900, 900); 2], ES, &here)), [""; 0], "a tenant of this host");
        let seawall = "name = \"seawall\"";
        assert_eq!(warnings(&setup([(900, 900); 2], seawall, DIRECTORY)), [""; 0], "weights");
        let reserve = "name = \"reservation\", reserve = [{ from = \"a\", to = \"c\", rate = \
                       \"950Mbit\" }, { from = \"b\", to = \"a\", rate = \"950Mbit\" }]";
        let said = warnings(&setup([(1, 1); 2], reserve, DIRECTORY));
        assert!(said.len() == 1 && said[0].contains("promised 950 Mb/s out"), "{said:?}");
    }

    #[test]
    fn beginning_change_and_end_are_said_and_nothing_twice_nor_in_a_flood() {
        let at = |s: u64| Time::ZERO + Span::from_secs(s);
        let mut teller = Teller::default();
        let over = |mbps| {
            let (floors, budget) = (Rate::from_mbps(mbps), Rate::from_mbps(195));
            Some(Overbooked { floors, budget })
        };
        assert_eq!(teller.look(at(0), None), None);
        let said = teller.look(at(1), over(360)).expect("it begins");
        assert!(said.contains("sum to 360 Mb/s") && said.contains("scaled to 54.2 %"), "{said}");
        assert_eq!(teller.look(at(20), over(360)), None, "nothing is new");
        let said = teller.look(at(21), over(400)).expect("a smaller factor");
        assert!(said.contains("48.8 %"), "{said}");
        assert_eq!(teller.look(at(22), None), None, "too soon");
        assert_eq!(teller.look(at(30), over(400)), None, "it came back");
        let said = teller.look(at(31), None).expect("the end");
        assert!(said.starts_with("no longer overbooked"), "{said}");
    }
}
