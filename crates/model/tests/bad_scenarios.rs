//! Bad input: each mistake gets one error with file, line, field, what is wrong and what would be
//! right.

use weir_core::host::HoseKey;
use weir_model::scenario::{Error, File, Hoses, Scenario};
use weir_units::{HoseId, Rate};

/// A good file; line numbers are those of the comments.
const GOOD: &str = "\
apiVersion: weir/v1alpha1
kind: Scenario
metadata: {name: good}
spec:
  params: {senders: 2, share: 450Mbit}                              # 5
  duration: 30s
  topology:
    dumbbell: {left: 3, right: 2, edge: 1Gbit, core: 1Gbit}         # 8
  tenants:
    - name: x                                                       # 10
      vms:
        - {name: x-src, host: left-0, floor: share}
        - {name: x-dst, host: right-0, floor: share}                # 13
    - name: y
      vms:
        - name: y-src                                               # 16
          hosts: [left-1..left-2]
          count: senders
          floor: share / max(senders, 1)                            # 19
        - {name: y-dst, host: right-1, floor: share}
  traffic:
    - {group: x, from: x-src, to: x-dst, tcp: {connections: 1}}     # 22
    - {group: y, from: y-src, to: y-dst, udp: {rate: 500Mbit}, start: 5s, stop: 25s}
  congested: [core]
  mechanisms: [none, elasticswitch]                                 # 25
  expect:
    - {metric: goodput.x, at_least: 400Mbit, when: senders > 0}     # 27
";

fn play(text: &str, overrides: &[(&str, &str)]) -> Result<Vec<Scenario>, Error> {
    let overrides: Vec<(String, String)> =
        overrides.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    File::parse("bad.yaml", text, &overrides)?.points()
}

/// The error after `from` was replaced by `to` in the good file.
fn changed(from: &str, to: &str) -> Error {
    assert!(GOOD.contains(from), "`{from}` is in the good file");
    play(&GOOD.replacen(from, to, 1), &[]).expect_err("the change is a mistake")
}

#[track_caller]
fn check(error: &Error, line: u32, field: &str, message: &str, help: &str) {
    assert_eq!(error.file, "bad.yaml");
    assert_eq!((error.line(), error.field.as_str()), (line, field), "{error}");
    assert!(error.message.contains(message), "{error}");
    assert!(error.help.contains(help), "{error}");
    assert!(error.to_string().starts_with(&format!("bad.yaml:{line}:{}: ", error.column())));
}

#[track_caller]
fn check_set(error: &Error, set: &str, field: &str, message: &str, help: &str) {
    assert_eq!((error.line(), error.field.as_str()), (0, field), "{error}");
    assert!(error.to_string().starts_with(&format!("bad.yaml: --set {set}: ")), "{error}");
    assert!(error.message.contains(message), "{error}");
    assert!(error.help.contains(help), "{error}");
}

#[test]
fn the_good_file_is_good() {
    let points = play(GOOD, &[]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(points.len(), 1);
    assert_eq!((points[0].vms.len(), points[0].traffic.len()), (5, 3));
    assert_eq!(points[0].expect[0].at_least, Some(400e6));
}

#[test]
fn a_guest_has_ecn_or_not_and_its_port_translates_or_not() {
    let with = |keys: &str| {
        GOOD.replacen("host: left-0, floor: share}", &format!("host: left-0, {keys}}}"), 1)
    };
    let vm = |keys: &str| play(&with(keys), &[]).expect("good")[0].vms[0].clone();
    assert_eq!((vm("floor: share").ecn, vm("floor: share").translated), (None, true));
    let told = vm("ecn: 0, translated: senders - 2");
    assert_eq!((told.ecn, told.translated), (Some(false), false));
    assert_eq!((told.rack, told.backpressure), (true, false), "as Linux has it, and VMs");
    let other = vm("rack: 0, backpressure: 1, deaf: 1");
    assert_eq!((other.rack, other.backpressure, other.deaf), (false, true, true));
    assert!(!told.deaf);
    let octets = |keys: &str| vm(keys).policing.map(weir_units::Bytes::get);
    assert_eq!((octets("floor: share"), octets("policing: 15kB")), (None, Some(15_000)));
    let error = play(&with("policing: 2GB"), &[]).expect_err("no window is so large");
    let at = "spec.tenants.x.vms.x-src.policing";
    check(&error, 12, at, "2GB is more than any window", "15kB");
    let error = play(&with("ecn: 2"), &[]).expect_err("no such thing");
    check(&error, 12, "spec.tenants.x.vms.x-src.ecn", "2 is neither yes nor no", "1 or 0");
    let error = changed("[none, elasticswitch]", "[none+ecn, elasticswitch]");
    check(&error, 25, "spec.mechanisms.0", "unknown translation `ecn`", "virtual-ecn");
}

#[test]
fn a_hose_has_a_floor_at_either_end_and_its_own_cut() {
    let (src, dst) = ("x-src, host: left-0, floor: share}", "x-dst, host: right-0, floor: share}");
    let with = |out: &str, into: &str| {
        let text =
            GOOD.replacen(src, &format!("x-src, host: left-0, hoses: {{h: {{{out}}}}}}}"), 1);
        text.replacen(dst, &format!("x-dst, host: right-0, hoses: {{h: {{{into}}}}}}}"), 1)
    };
    let scenario = &play(&with("floor_out: share", "floor_in: share / 2"), &[]).expect("good")[0];
    let (hoses, rate) = (Hoses::of(scenario), Rate::from_mbps);
    assert_eq!(hoses.of_pair(0, 1), HoseKey::Further(HoseId(0)));
    assert_eq!((hoses.of_pair(1, 0), hoses.of_pair(0, 2)), (HoseKey::Default, HoseKey::Default));
    let of = |vm| hoses.get(vm, HoseKey::Further(HoseId(0))).expect("it is in the hose");
    assert_eq!((of(0).floor_out, of(1).floor_in), (rate(450), rate(225)));
    let (from, to) = hoses.places(0, 1).expect("it covers the pair");
    assert_eq!((hoses.list()[from], hoses.list()[to]), (of(0), of(1)));

    let wrong = |out: &str, into: &str| play(&with(out, into), &[]).expect_err("a mistake");
    let (field, other) = ("spec.tenants.x.vms.x-src.hoses.h", "floor_in: share / 2");
    let error = wrong("floor_out: share", "floor_out: share");
    check(&error, 12, field, "no VM receives in the hose `h`", "{floor_in: 50Mbit}");
    check(&wrong("", other), 12, field, "has no floor", "{floor_out: 50Mbit}");
    let error = wrong("floor: share, floor_out: share", other);
    check(&error, 12, &format!("{field}.floor_out"), "`floor_out` beside `floor`", "keep `floor`");
    // The core carries 900 Mbit/s of floors, and y needs 450 of them.
    let error = wrong("floor_out: 460Mbit", "floor_in: 460Mbit");
    assert!(error.message.contains("the floors need 910 Mb/s of link core"), "{error}");
}

#[test]
fn a_budget_is_of_groups_in_which_its_vm_sends_and_leaves_each_two_segments() {
    let with = |budget: &str| {
        let from = "host: left-0, floor: share}";
        GOOD.replacen(from, &format!("host: left-0, floor: share, budget: {budget}}}"), 1)
    };
    let good = "{total: 9 * 14kB, flows_most: 5, classes: [{group: x, weight: senders + 1}]}";
    let vm = play(&with(good), &[]).expect("good")[0].vms[0].clone();
    let budget = vm.budget.expect("a budget");
    assert_eq!((budget.total.get(), budget.flows_most), (126_000, 5));
    assert_eq!((budget.classes[0].group.as_str(), budget.classes[0].weight), ("x", 3));
    let field = |key: &str| format!("spec.tenants.x.vms.x-src.budget{key}");
    let wrong = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        play(&with(&good.replacen(from, to, 1)), &[]).expect_err(to)
    };
    let error = wrong("group: x", "group: z");
    check(&error, 12, &field(".classes.z.group"), "no group `z` in `traffic`", "x");
    let error = wrong("group: x", "group: y");
    check(&error, 12, &field(".classes.y.group"), "`x-src` sends no TCP in group `y`", "it sends");
    // Two segments of 1460 for each of five.
    let error = wrong("9 * 14kB", "14599B");
    check(&error, 12, &field(".total"), "14599 B for 5 flows", "14600 B or more");
    let error = wrong("9 * 14kB", "2GB");
    check(&error, 12, &field(".total"), "a window of 2000000000 B", "or less");
    let error = wrong("9 * 14kB", "9");
    check(&error, 12, &field(".total"), "size", "128kB");
    let error = wrong("senders + 1", "0.5");
    check(&error, 12, &field(".classes.x.weight"), "`0.5` is 0.5", "whole number from 1");
    let error = wrong("[{group: x, weight: senders + 1}]", "[]");
    check(&error, 12, &field(""), "0 classes", "1 to 16");
    let twice = "[{group: x, weight: 1}, {group: x, weight: 2}]";
    let error = wrong("[{group: x, weight: senders + 1}]", twice);
    check(&error, 12, &field(".classes.1.group"), "two groups are called `x`", "rename one");
    let error = wrong("flows_most", "flows");
    check(&error, 12, &field(".flows"), "flows", "flows_most");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = File::load(std::path::Path::new("no/such.yaml"), &[]).unwrap_err();
    assert!(error.to_string().starts_with("no/such.yaml: cannot be read: No such file"), "{error}");
}

#[test]
fn text_that_is_not_yaml_has_a_line() {
    let error = changed("  duration: 30s", "  duration: [30s");
    assert!(error.message.starts_with("not valid YAML"), "{error}");
    assert!(error.line() >= 6 && error.column() > 0, "{error}");
    check(&changed("  duration: 30s", "  params: {}"), 6, "params", "written twice", "keep one");
}

#[test]
fn another_kind_of_object_is_refused() {
    let error = changed("kind: Scenario", "kind: Tenant");
    check(&error, 2, "kind", "`Tenant` is not `Scenario`", "write `kind: Scenario`");
    let error = changed("apiVersion: weir/v1alpha1\n", "");
    check(&error, 1, "apiVersion", "`apiVersion` is missing", "write `apiVersion: weir/v1alpha1`");
    check(&changed("  duration: 30s\n", ""), 5, "spec.duration", "is missing", "duration: 30s");
}

#[test]
fn an_unknown_key_is_met_with_what_was_meant() {
    let error = changed("duration: 30s", "durration: 30s");
    check(&error, 6, "spec.durration", "unknown key `durration`", "did you mean `duration`?");
    let error = changed("{name: x-dst, host", "{name: x-dst, hots");
    check(&error, 13, "spec.tenants.x.vms.x-dst.hots", "unknown key", "did you mean `host`?");
    let error = changed("connections: 1", "conections: 1");
    check(&error, 22, "spec.traffic.x.tcp.conections", "unknown", "did you mean `connections`?");
    assert_eq!(error.column(), 48, "the key's own column");
}

#[test]
fn a_wrong_unit_is_refused() {
    let core = "spec.topology.dumbbell.core";
    check(&changed("core: 1Gbit", "core: 128kB"), 8, core, "is a size, not a rate", "450Mbit");
    check(&changed("core: 1Gbit", "core: 1000"), 8, core, "`1000` has no unit", "450Mbit");
    check(&changed("core: 1Gbit", "core: 1Gbps"), 8, core, "octets to tc and bits to people", "");
    let error = changed("duration: 30s", "duration: 30");
    check(&error, 6, "spec.duration", "`30` has no unit: a time is wanted", "30s");
    let error = changed("count: senders", "count: share");
    check(&error, 18, "spec.tenants.y.vms.y-src.count", "is a rate, not a plain number", "");
    let error = changed("at_least: 400Mbit", "at_least: 0.4");
    check(&error, 27, "spec.expect.0.at_least", "`0.4` has no unit", "450Mbit");
}

#[test]
fn a_fault_in_an_expression_has_its_column() {
    let error = changed("share / max(senders, 1)", "share / max(sender, 1)");
    let field = "spec.tenants.y.vms.y-src.floor";
    check(&error, 19, field, "`sender` is not a parameter", "did you mean `senders`?");
    assert_eq!(error.column(), 30);
    let error = changed("share / max(senders, 1)", "\"share / (senders - 2)\"");
    check(&error, 19, field, "division by zero", "max(senders, 1)");
    assert_eq!(error.column(), 36, "one further for the quote");
    let error = changed("share / max(senders, 1)", "share + 3ms");
    check(&error, 19, field, "a rate + a time", "of the same kind");
}

#[test]
fn a_count_is_a_whole_number() {
    let field = "spec.tenants.y.vms.y-src.count";
    check(&changed("count: senders", "count: senders / 4"), 18, field, "is 0.5", "ceil()");
    check(&changed("count: senders", "count: -1"), 18, field, "is -1", "from 0 to 10000");
    let error = changed("connections: 1", "connections: 0");
    check(&error, 22, "spec.traffic.x.tcp.connections", "is 0", "from 1");
}

#[test]
fn a_vm_needs_a_host_that_exists() {
    let error = changed("{name: x-dst, host: right-0,", "{name: x-dst,");
    let entry = "spec.tenants.x.vms.x-dst";
    check(&error, 13, entry, "VM `x-dst` is on no host", "write `host: left-0`");
    let error = changed("host: right-0", "host: rihgt-0");
    check(&error, 13, &format!("{entry}.host"), "no host `rihgt-0`", "did you mean `right-0`?");
    let error = changed("[left-1..left-2]", "[left-1..left-3]");
    check(&error, 17, "spec.tenants.y.vms.y-src.hosts.0", "no host `left-3`", "known here: left-0");
    let error = changed("[left-1..left-2]", "[left-2..left-1]");
    check(&error, 17, "spec.tenants.y.vms.y-src.hosts.0", "not a range", "left-1..left-10");
}

#[test]
fn a_name_is_given_once() {
    let error = changed("{name: x-dst,", "{name: x-src,");
    check(&error, 13, "spec.tenants.x.vms.1.name", "two VMs are called `x-src`", "line 12");
    let error = changed("- name: y\n", "- name: x\n");
    check(&error, 14, "spec.tenants.1.name", "two tenants are called `x`", "line 10");
    let error = changed("{name: y-dst,", "{name: y-src-1,");
    check(&error, 20, "spec.tenants.y.vms.y-src-1.name", "two VMs are called `y-src-1`", "rename");
    let error = changed("[none, elasticswitch]", "[none, none]");
    check(&error, 25, "spec.mechanisms.1", "two mechanisms are called `none`", "rename");
    let error = changed("{name: x-dst,", "{name: x dst,");
    check(&error, 13, "spec.tenants.x.vms.x dst.name", "`x dst` is not a name", "letters, digits");
}

/// The good file's first VMs on a topology of one's own.
fn links(topology: &str) -> Error {
    let text = GOOD.replace("dumbbell: {left: 3, right: 2, edge: 1Gbit, core: 1Gbit}", topology);
    play(&text, &[]).expect_err("the topology is wrong")
}

#[test]
fn a_topology_is_connected() {
    let error = links(
        "links: {hosts: [a, b], switches: [s, t], links: [{a: a, b: s, rate: 1G}, {a: b, b: t, rate: 1G}]}",
    );
    let field = "spec.topology.links.hosts.1";
    check(&error, 8, field, "no way from `b` to host `a`", "add a link that joins the two parts");
    let error = links("links: {hosts: [a, b], switches: [s], links: [{a: a, b: s, rate: 1G}]}");
    check(&error, 8, field, "not connected: host `b` has no link", "exactly one link");
    let error = links("links: {hosts: [a], switches: [s], links: [{a: a, b: z, rate: 1G}]}");
    check(&error, 8, "spec.topology.links.links.0.b", "no host or switch `z`", "known here: a, s");
    let error = links("links: {hosts: [a], switches: [s], links: [{a: s, b: s, rate: 1G}]}");
    check(&error, 8, "spec.topology.links.links.0.b", "from `s` to itself", "joins two nodes");
    let error = links(
        "links: {hosts: [a], switches: [s], links: [{a: a, b: s, rate: 1G}, {a: a, b: s, rate: 1G}]}",
    );
    check(&error, 8, "spec.topology.links.links.1.a", "two links are called `a-s`", "`name`");
    let error = links("ring: {hosts: 3}");
    check(&error, 8, "spec.topology.ring", "unknown key `ring`", "dumbbell, single-switch");
}

#[test]
fn a_rate_of_zero_is_refused() {
    let error = changed("core: 1Gbit", "core: 0Gbit");
    check(&error, 8, "spec.topology.dumbbell.core", "a link has a rate of zero", "above zero");
    let error = changed("rate: 500Mbit", "rate: 0");
    check(&error, 23, "spec.traffic.y.udp.rate", "a UDP sender has a rate of zero", "above zero");
    let error = changed("rate: 500Mbit", "rate: 100Mbit - share");
    check(&error, 23, "spec.traffic.y.udp.rate", "out of range: -350000000", "not negative");
}

#[test]
fn times_are_in_order() {
    let error = changed("stop: 25s", "stop: 4s");
    check(
        &error,
        23,
        "spec.traffic.y.stop",
        "stops at 4 s, which is not after its start at 5 s",
        "",
    );
    let error = changed("duration: 30s", "duration: 5s");
    check(&error, 6, "spec.duration", "the warmup of 5 s leaves nothing", "longer");
    let error = changed("start: 5s, stop: 25s", "start: 40s");
    check(&error, 23, "spec.traffic.y.start", "starts at 40 s", "part of `duration`");
    let error = changed("duration: 30s", "duration: 30s\n  warmup: 60s");
    check(&error, 7, "spec.warmup", "the warmup of 60 s", "shorter");
}

#[test]
fn traffic_runs_between_two_vms_that_exist() {
    let error = changed("to: x-dst", "to: x-src");
    check(&error, 22, "spec.traffic.x.to", "traffic from VM `x-src` to itself", "another VM");
    let error = changed("to: x-dst", "to: x-dest");
    check(&error, 22, "spec.traffic.x.to", "there is no VM `x-dest`", "did you mean `x-dst`?");
    let error = changed("tcp: {connections: 1}", "tpc: 1");
    check(&error, 22, "spec.traffic.x.tpc", "unknown key `tpc`", "did you mean `tcp`?");
    let error = changed(", tcp: {connections: 1}", "");
    check(&error, 22, "spec.traffic.x", "has none of `tcp`, `udp`", "write one of");
    let error = changed("rate: 500Mbit", "rate: 500Mbit, on: 5ms");
    check(&error, 23, "spec.traffic.y.udp.off", "`off` is missing", "off: 10ms");
}

#[test]
fn bursts_and_pauses_are_not_shorter_than_a_timer_can_play() {
    let error = changed("rate: 500Mbit", "rate: 500Mbit, on: 5ms, off: 50us");
    check(&error, 23, "spec.traffic.y.udp.off", "a time of 50 µs", "write 1 ms or more");
    let error = changed("rate: 500Mbit", "rate: 500Mbit, on: 0s, off: 1ms");
    check(&error, 23, "spec.traffic.y.udp.on", "a time of 0", "leave out both");
    let text = GOOD.replace("rate: 500Mbit", "rate: 500Mbit, on: 1ms, off: 1ms");
    assert!(play(&text, &[]).is_ok());
}

#[test]
fn a_congested_link_exists_and_its_condition_is_one() {
    let error = changed("congested: [core]", "congested: [{link: cor, when: senders > 9}]");
    check(&error, 24, "spec.congested.0.link", "there is no link `cor`", "did you mean `core`?");
    let error = changed("congested: [core]", "congested: [{link: core, when: senders}]");
    check(&error, 24, "spec.congested.0.when", "not a condition", "senders >= 1");
    let error = changed("congested: [core]", "congested: [{link: core, wen: senders > 9}]");
    check(&error, 24, "spec.congested.0.wen", "unknown key `wen`", "did you mean `when`?");
    let error = changed("congested: [core]", "congested: [{when: senders > 9}]");
    check(&error, 24, "spec.congested.0.link", "`link` is missing", "link: core");
}

#[test]
fn an_expectation_is_about_a_mechanism_that_is_played() {
    let with = |label: &str| format!("{{mechanism: {label}, metric: goodput.x");
    let error = changed("{metric: goodput.x", &with("reservation"));
    let field = "spec.expect.0.mechanism";
    let message = "`reservation` is not one of the file's `mechanisms`";
    check(&error, 27, field, message, "known here: none, elasticswitch");
    let error = changed("{metric: goodput.x", &with("[none, \"elasticswitch:fast\"]"));
    check(&error, 27, "spec.expect.0.mechanism.1", "`elasticswitch:fast` is not one", "");
    let error = changed("{metric: goodput.x", &with("elasticswich"));
    check(&error, 27, field, "unknown mechanism", "did you mean `elasticswitch`?");
    let text = GOOD.replace("{metric: goodput.x", &with("elasticswitch"));
    assert!(play(&text, &[("mechanisms", "[none]")]).is_ok(), "an override leaves it unjudged");
}

#[test]
fn a_preset_that_does_not_exist_is_refused_with_its_line() {
    let check_presets = |text: &str| {
        let file = File::parse("bad.yaml", text, &[]).expect("the keys are known");
        file.check_presets()
    };
    let text = GOOD.replace("elasticswitch]", "\"elasticswitch:stedy\"]");
    let error = check_presets(&text).expect_err("a slip");
    let message = "`elasticswitch:stedy`: there is no preset `stedy`";
    check(&error, 25, "spec.mechanisms.1", message, "did you mean `steady`? Known here: paper");
    assert_eq!(check_presets(GOOD), Ok(()));
    assert_eq!(check_presets(&text.replace("stedy", "steady")), Ok(()));
}

#[test]
fn mechanisms_metrics_and_groups_are_known() {
    let error = changed("elasticswitch]", "elasticswich]");
    let help = "did you mean `elasticswitch`?";
    check(&error, 25, "spec.mechanisms.1", "unknown mechanism `elasticswich`", help);
    let error = changed("[none, elasticswitch]", "[\"none:fast\"]");
    check(&error, 25, "spec.mechanisms.0", "`none` has no presets", "write `none`");
    let error = changed("metric: goodput.x", "metric: goodputt.x");
    check(&error, 27, "spec.expect.0.metric", "unknown metric `goodputt.x`", "worst_floor_ratio");
    let error = changed("metric: goodput.x", "metric: goodput.z");
    check(&error, 27, "spec.expect.0.metric", "no group `z`", "known here: x, y");
    let error = changed("when: senders > 0", "when: senders");
    check(&error, 27, "spec.expect.0.when", "not a condition", "senders >= 1");
    let error = changed("congested: [core]", "congested: [cor]");
    check(&error, 24, "spec.congested.0", "there is no link `cor`", "did you mean `core`?");
}

#[test]
fn floors_that_do_not_fit_name_the_link_and_the_largest_entry() {
    let error = changed("share: 450Mbit", "share: 500Mbit");
    let needed = "the floors need 1 Gb/s of link core:left>right, which can promise 900 Mb/s \
                  (1 Gb/s less 10% headroom); `x-src` adds most: 500 Mb/s";
    let help = "give link `core` at least 1.112Gbit";
    check(&error, 12, "spec.tenants.x.vms.x-src.floor", needed, help);
    let text = GOOD.replace("share: 450Mbit", "share: 500Mbit");
    assert!(play(&text, &[("topology.core", "1.112Gbit")]).is_ok(), "the help helps");
    assert!(play(&text, &[("headroom", "0")]).is_ok(), "headroom limits admission");
    let scaled = play(&text, &[("scale", "0.2")]).unwrap_err();
    assert_eq!(scaled, error, "people read the numbers they wrote");
}

#[test]
fn a_floor_that_nobody_can_use_costs_nothing() {
    for vm in ["right-0", "right-1"] {
        let text = GOOD.replace(&format!("{vm}, floor: share"), &format!("{vm}, floor: 2 * share"));
        assert!(play(&text, &[]).is_ok(), "the senders' side of the cut is the smaller one");
    }
}

#[test]
fn each_direction_has_its_own_cut() {
    let text = GOOD
        .replace("floor: share / max(senders, 1)", "floor_out: 450Mbit\n          floor_in: 10Mbit")
        .replace("right-1, floor: share", "right-1, floor_out: 100Mbit, floor_in: 800Mbit");
    let error = play(&text, &[]).unwrap_err();
    // x needs 450 Mbit/s and y the 800 Mbit/s that y-dst may receive; line 21, one was added.
    let message = "1.25 Gb/s of link core:left>right";
    check(&error, 21, "spec.tenants.y.vms.y-dst.floor_in", message, "at least 1.389Gbit");
}

#[test]
fn a_mistake_at_one_point_of_a_sweep_names_the_point() {
    let text = GOOD
        .replace("  duration: 30s", "  sweep: {senders: [0, 1, 3]}\n  duration: 30s")
        .replace("share / max(senders, 1)", "300Mbit")
        .replace("right-1, floor: share", "right-1, floor: 200Mbit * senders");
    let error = play(&text, &[]).unwrap_err();
    assert!(error.message.ends_with("(at senders = 3)"), "{error}");
    assert!(play(&text, &[("senders", "1")]).is_ok(), "an override pins the sweep");
    let text = GOOD.replace("  duration: 30s", "  sweep: {sender: [0, 1]}\n  duration: 30s");
    let error = play(&text, &[]).unwrap_err();
    check(&error, 6, "spec.sweep.sender", "not a parameter", "did you mean `senders`?");
}

#[test]
fn an_override_is_checked_like_the_file() {
    let error = play(GOOD, &[("sender", "3")]).unwrap_err();
    check_set(&error, "sender=3", "sender", "no `sender` to set", "did you mean `senders`?");
    let error = play(GOOD, &[("topology.core", "2Gbps")]).unwrap_err();
    let field = "spec.topology.dumbbell.core";
    check_set(&error, "topology.core=2Gbps", field, "octets to tc", "");
    let error = play(GOOD, &[("topology.colour", "red")]).unwrap_err();
    let field = "spec.topology.dumbbell.colour";
    check_set(&error, "topology.colour=red", field, "unknown key", "known here: left, right");
    let error = play(GOOD, &[("tenants.z.vms.x-src.floor", "1Mbit")]).unwrap_err();
    let set = "tenants.z.vms.x-src.floor=1Mbit";
    check_set(&error, set, "tenants.z.vms.x-src.floor", "to set", "tenants.x.vms.x-src.floor");
    let error = play(GOOD, &[("mechanisms", "[none")]).unwrap_err();
    check_set(&error, "mechanisms=[none", "", "not valid YAML", "");
    let error = play(GOOD, &[("params.colour", "3")]).unwrap_err();
    check_set(&error, "params.colour=3", "params.colour", "no `params.colour`", "senders, share");
}

/// The error after X's TCP was replaced by `kind`.
fn traffic(kind: &str) -> Error {
    changed("tcp: {connections: 1}", kind)
}

#[test]
fn traffic_that_comes_and_goes_is_checked_like_the_rest() {
    let x = |rest: &str| format!("spec.traffic.x.{rest}");
    let error = traffic("request: {size: 100B, response: 1kB}");
    check(&error, 22, &x("request"), "none of `rate`, `outstanding`", "write one of");
    let error = traffic("request: {size: 100B, response: 0B, rate: 5}");
    check(&error, 22, &x("request.response"), "an answer of no octets", "20kB");
    let error = traffic("request: {size: 1B, response: 1B, outstanding: 2, spacing: fixed}");
    check(&error, 22, &x("request.spacing"), "`spacing` beside `outstanding`", "leave it out");
    let error = traffic("request: {size: 1B, response: 1B, rate: 5, connections: some}");
    check(&error, 22, &x("request.connections"), "`some` is neither", "`kept` or `new`");
    let error = traffic("flows: {rate: 0, size: 1kB}");
    check(&error, 22, &x("flows.rate"), "0 starts per second", "above 0");
    let error = traffic("flows: {rate: 50Mbit, size: 1kB}");
    check(&error, 22, &x("flows.rate"), "is a rate, not a plain number", "without a unit");
    let error = traffic("flows: {rate: 5, sizes: nowhere.cdf}");
    check(&error, 22, &x("flows.sizes"), "nowhere.cdf cannot be read", "scenario's directory");
    let error = traffic("shuffle: {octets: 10Mbit}");
    check(&error, 22, &x("shuffle.octets"), "is a rate, not a size", "128kB");
    let error = traffic("shuffle: {octets: 1MB}, udp: {rate: 1Mbit}");
    check(&error, 22, "spec.traffic.x", "has more than one of", "write one of");
}

#[test]
fn a_memcached_is_asked_what_it_can_hold_and_say() {
    let of = |rest: &str| traffic(&format!("memcached: {{rate: 100, {rest}}}"));
    let x = |field: &str| format!("spec.traffic.x.memcached.{field}");
    check(&of("key: 9B"), 22, &x("value"), "is missing", "value: 6kB");
    check(&of("value: 0B"), 22, &x("value"), "a value of no octets", "20kB");
    check(&of("value: 600kB"), 22, &x("value"), "values of 600000 octets", "at most 500000B");
    let error = of("value: 400kB, keys: 3000");
    check(&error, 22, &x("value"), "3000 keys with values of 400000", "fewer `keys`");
    check(&of("value: 1B, key: 7B"), 22, &x("key"), "a key of 7 octets", "8B to 250B");
    check(&of("value: 1B, key: 251B"), 22, &x("key"), "a key of 251 octets", "8B to 250B");
    check(&of("value: 1B, sets: 1.5"), 22, &x("sets"), "1.5 of the requests", "a part of all");
    check(&of("value: 1B, keys: 0"), 22, &x("keys"), "is 0", "from 1");
    let error = of("value: 1B, connections: 1001");
    check(&error, 22, &x("connections"), "1001 connections of one client", "1 to 1000");
    check(&of("value: 1B, spacing: even"), 22, &x("spacing"), "`even` is neither", "`poisson`");
    let error = traffic("memcached: {rate: 0, value: 1B}");
    check(&error, 22, &x("rate"), "0 starts per second", "above 0");
}

#[test]
fn a_program_is_words_and_has_its_receiver_for_itself() {
    let error = traffic("exec: {server: iperf3 -s, client: 'iperf3 -c \"{to}\"'}");
    check(&error, 22, "spec.traffic.x.exec.client", "not a plain command line", "{port}");
    let error = traffic("exec: {server: iperf3 -s, client: 'iperf3 -c {host}'}");
    check(&error, 22, "spec.traffic.x.exec.client", "not a plain command line", "{seconds}");
    let text = GOOD.replacen("tcp: {connections: 1}", "exec: {server: a, client: b}", 1);
    assert_eq!(play(&text, &[]).map(|p| p.len()).unwrap_or_else(|e| panic!("{e}")), 1);
    let text = text.replacen("from: y-src, to: y-dst", "from: y-dst, to: x-dst", 1);
    let error = play(&text, &[]).expect_err("x-dst has other traffic");
    check(&error, 22, "spec.traffic.x.group", "has other traffic, of `y`", "a VM of its own");
}

#[test]
fn a_number_is_held_against_one_that_is_there() {
    let expect = |rest: &str| changed("{metric: goodput.x, at_least: 400Mbit", rest);
    let error = expect("{metric: goodput.x, of: reservation, at_least: 1");
    check(&error, 27, "spec.expect.0.of", "is not one of the file's `mechanisms`", "none");
    let error = expect("{metric: goodput.x, of: goodput.z, at_least: 1");
    check(&error, 27, "spec.expect.0.of", "there is no group `z`", "x");
    let error = expect("{metric: goodput.x, of: none, at_least: 1Mbit");
    check(&error, 27, "spec.expect.0.at_least", "is a rate, not a plain number", "");
    let error = expect("{metric: goodput.x, over: none, at_least: 1");
    check(&error, 27, "spec.expect.0.at_least", "`1` has no unit", "450Mbit");
    let error = expect("{metric: goodput.x, over: none, of: none, at_least: 1");
    check(&error, 27, "spec.expect.0.over", "`over` beside `of`", "keep one");
    let error = expect("{metric: latency.x.p98, at_least: 1ms");
    check(&error, 27, "spec.expect.0.metric", "unknown metric `latency.x.p98`", "latency.GROUP");
    let error = expect("{metric: latency.x.p99, at_most: 3");
    check(&error, 27, "spec.expect.0.at_most", "`3` has no unit: a time is wanted", "30s");
}

#[test]
fn what_ports_cannot_do_is_refused_where_it_is_written() {
    let dumbbell = "core: 1Gbit}";
    let with = |keys: &str| changed(dumbbell, &format!("core: 1Gbit, {keys}}}"));
    let at = "spec.topology.dumbbell";
    let cases = [
        ("ecn: 1MB", "ecn", "a threshold of 1000000 B at a buffer of 128000 B", "128000B"),
        ("links: {cor: {ecn: 9kB}}", "links.cor", "there is no link `cor`", "did you mean `core`"),
        ("links: {core: {red: {min: 9kB, max: 8kB}}}", "links.core.red", "RED from", "min < max"),
        (
            "links: {core: {ecn: 9kB, red: {min: 9kB, max: 19kB}}}",
            "links.core.ecn",
            "`ecn` beside `red`",
            "keep `ecn` or `red`",
        ),
        (
            "links: {core: {red: {min: 9kB, max: 19kB, weight: 0}}}",
            "links.core.red.weight",
            "is zero",
            "0.002",
        ),
        ("links: {core: {loss: 2}}", "links.core.loss", "a part of 2", "from 0 to 1"),
        ("links: {core: {paths: {skew: 0s}}}", "links.core.paths.skew", "same length", "200us"),
        (
            "links: {core: {paths: {skew: 1ms, by: flows}}}",
            "links.core.paths.by",
            "paths by `flows`",
            "did you mean `flow`",
        ),
        (
            "links: {core: {paths: {skew: 1ms, count: 17}}}",
            "links.core.paths.count",
            "17 paths",
            "2 to 16",
        ),
        (
            "ecn: 20kB, links: {core: {buffer: 9kB}}",
            "links.core.buffer",
            "below the threshold of 20000 B",
            "ecn: 0",
        ),
    ];
    for (keys, field, message, help) in cases {
        check(&with(keys), 8, &format!("{at}.{field}"), message, help);
    }
}

#[test]
fn a_point_to_compare_with_is_one_of_the_sweep() {
    let expects = |of: &str| {
        let swept =
            GOOD.replacen("  duration: 30s\n", "  duration: 30s\n  sweep: {senders: [0, 2]}\n", 1);
        let line = "{metric: goodput.x, at_least: 400Mbit, when: senders > 0}";
        play(&swept.replacen(line, &format!("{{metric: goodput.x, at_least: 0.9, {of}}}"), 1), &[])
    };
    let field = |error: &Error, field: &str, message: &str, help: &str| {
        check(error, 28, &format!("spec.expect.0{field}"), message, help);
    };
    let error = |of: &str| expects(of).expect_err("a mistake");
    field(&error("at: {senders: 3}"), ".at", "no point with senders = 3", "`when`");
    field(&error("at: {sender: 0}"), ".at.sender", "`sender` is not swept", "senders");
    field(&error("at: {share: 1Mbit}"), ".at.share", "`share` is not swept", "senders");
    field(&error("at: senders"), ".at", "is", "map");
    field(&error("over: none, at: {senders: 0}"), ".at", "`at` beside `over`", "keep one");
    // Where it does not hold, no such point is needed; at the point itself there is nothing to
    // compare.
    let points = expects("at: {senders: senders - 2}, when: senders >= 2").expect("sound");
    assert!(points[0].expect.is_empty());
    let there = points[1].expect[0].at.clone().expect("compared");
    assert_eq!(there, points[0].point);
    assert_eq!(points[1].expect[0].at_least, Some(0.9), "a part, not a rate");
    let points = expects("at: {senders: 0}").expect("sound");
    assert_eq!((points[0].expect.len(), points[1].expect.len()), (0, 1));
    assert!(points[1].expect[0].against.is_none());
}

#[test]
fn who_plays_other_points_is_not_told_that_one_is_missing() {
    let swept =
        GOOD.replacen("  duration: 30s\n", "  duration: 30s\n  sweep: {senders: [0, 2]}\n", 1);
    let line = "{metric: goodput.x, at_least: 400Mbit, when: senders > 0}";
    let text = swept.replacen(line, "{metric: goodput.x, at_least: 0.9, at: {senders: 0}}", 1);
    for set in [("senders", "2"), ("sweep", "[{senders: 2}]")] {
        let points = play(&text, &[set]).expect("sound");
        assert_eq!((points.len(), points[0].expect.len()), (1, 0), "{set:?}");
    }
}

#[test]
fn topologies_with_equal_ways_say_what_they_cannot_be() {
    let at = |kind: &str, key: &str| format!("spec.topology.{kind}.{key}");
    let error = links("fat-tree: {k: 5, link: 1G}");
    check(&error, 8, &at("fat-tree", "k"), "a fat tree of 5", "an even number from 2 to 34");
    let error = links("fat-tree: {k: 34, hosts_per_edge: 30, link: 1G}");
    check(
        &error,
        8,
        &at("fat-tree", "hosts_per_edge"),
        "17340 hosts are too many",
        "at most 10000",
    );
    let error = links("fat-tree: {k: 4, link: 1G, oversubscription: 0.5}");
    check(
        &error,
        8,
        &at("fat-tree", "oversubscription"),
        "an oversubscription of 0.5",
        "1 is none",
    );
    let error = links("fat-tree: {k: 4, link: 1G, ecmp: flows}");
    check(&error, 8, &at("fat-tree", "ecmp"), "equal ways by `flows`", "flow");
    let error =
        links("leaf-spine: {leaves: 200, spines: 100, hosts_per_leaf: 2, link: 1G, uplink: 1G}");
    check(&error, 8, &at("leaf-spine", "leaves"), "under 100 spines are too many", "10000 uplinks");
}

/// A host under two spines of 500 Mb/s: a floor of 900 Mb/s fits if both spines are used, not if
/// the first is used alone.
#[test]
fn floors_are_admitted_on_all_equal_ways_together() {
    let text = |ecmp: &str| {
        format!(
            "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 9s, \
             topology: {{leaf-spine: {{leaves: 2, spines: 2, hosts_per_leaf: 1, link: 2Gbit, \
             uplink: 500Mbit, ecmp: {ecmp}}}}}, mechanisms: none, tenants: [{{name: a, vms: [\
             {{name: s, host: host-0-0, floor: 900Mbit}}, {{name: r, host: host-1-0, floor: 900Mbit}}]}}]}}}}"
        )
    };
    assert!(play(&text("flow"), &[]).is_ok());
    assert!(play(&text("packet"), &[]).is_ok());
    let error = play(&text("none"), &[]).expect_err("half of it");
    assert!(error.message.contains("leaf-0-spine-0"), "{}", error.message);
    assert!(
        play(&text("flow").replace("floor: 900Mbit", "floor: 901Mbit"), &[]).is_err(),
        "exactly"
    );
}

/// Links of 800 and 200 Mb/s side by side: spread evenly they carry twice the slower one, and all
/// that they have where hosts choose.
#[test]
fn uneven_links_side_by_side_are_one_that_depends_on_who_chooses() {
    let text = |ecmp: &str, floor: u32| {
        format!(
            "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 9s,              topology: {{links: {{hosts: [h, i], switches: [a, b], ecmp: {ecmp}, links: [             {{a: h, b: a, rate: 2G}}, {{a: i, b: b, rate: 2G}}, {{name: wide, a: a, b: b, rate: 800M}},              {{name: narrow, a: a, b: b, rate: 200M}}]}}}}, mechanisms: none, tenants: [{{name: a, vms: [             {{name: s, host: h, floor: {floor}Mbit}}, {{name: r, host: i, floor: {floor}Mbit}}]}}]}}}}"
        )
    };
    for (ecmp, most, link) in [
        ("none", 720, "wide"),
        ("flow", 360, "narrow"),
        ("packet", 360, "narrow"),
        ("host", 900, ""),
    ] {
        let most = play(&text(ecmp, most), &[]).map(|_| most);
        assert!(most.is_ok(), "{ecmp}: {}", most.expect_err("refused").message);
        let more = play(&text(ecmp, most.expect("admitted") + 1), &[]);
        let message = more.expect_err("one more").message;
        assert!(message.contains(link), "{ecmp}: {message}");
    }
}

#[test]
fn a_trace_is_of_tcp_that_lasts_and_bounded() {
    let entry = "{group: x, from: x-src, to: x-dst, tcp: {connections: 1}}";
    let with =
        |rest: &str| changed(entry, &format!("{{group: x, from: x-src, to: x-dst, {rest}}}"));
    let field = "spec.traffic.x.trace";
    let error = with("udp: {rate: 1Mbit}, trace: 10ms");
    check(&error, 22, field, "a trace of `udp`", "only `tcp` lasts");
    check(&with("tcp: {}, trace: 1ms"), 22, field, "a look every 1 ms", "2 ms to 1 s");
    let error = with("tcp: {connections: 1000}, trace: 10ms");
    check(&error, 22, field, "a trace of 3000000 looks", "at most 1000000");
    let error = changed("goodput.x, at_least: 400Mbit", "window_low.x, at_least: 0.45");
    check(&error, 27, "spec.expect.0.metric", "no connection of `x` is traced", "trace: 10ms");
}

#[test]
fn a_misdirected_frame_is_addressed_to_a_third_vm_and_no_other_frame_is() {
    let attack = |body: &str| {
        let attacks = format!(
            "  attacks:\n    - {{name: astray, from: y-dst, frames: {{{body}, per_second: 100}}}}\n  congested"
        );
        play(&GOOD.replacen("  congested", &attacks, 1), &[])
    };
    let field = "spec.attacks.astray.frames";
    let cases = [
        ("kind: misdirected, to: x-dst", ".kind", "addressed to nobody", "`addressed: fence`"),
        (
            "kind: misdirected, to: x-dst, addressed: x-dst",
            ".addressed",
            "the attacker or the victim itself",
            "a third VM",
        ),
        (
            "kind: broadcast, to: x-dst, addressed: x-src",
            ".addressed",
            "have an address already",
            "leave `addressed` out",
        ),
    ];
    for (body, at, message, help) in cases {
        let error = attack(body).expect_err(body);
        check(&error, 25, &format!("{field}{at}"), message, help);
    }
    let sound = attack("kind: misdirected, to: x-dst, addressed: x-src").expect("a third VM");
    let weir_model::scenario::AttackKind::Frames { to, addressed, .. } = sound[0].attacks[0].kind
    else {
        panic!("{:?}", sound[0].attacks[0].kind)
    };
    assert_eq!((to, addressed), (1, Some(0)));
}
