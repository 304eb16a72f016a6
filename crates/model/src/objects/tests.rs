use super::*;
use serde_json::{Value, json};
use weir_units::Rate;

fn vm(spec: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "VM", "metadata": {"name": "web-1"}, "spec": spec})
}

/// The field and the reason of a mistake.
fn mistake(document: Value) -> (String, String) {
    let error = read(document).expect_err("a mistake");
    (error.field, error.reason)
}

#[test]
fn a_vm_is_read_with_its_hose_and_its_defaults() {
    let wish = read(vm(json!({"tenant": "acme", "floor": {"out": "100M", "in": "50Mbit"}})));
    let Spec::Vm(spec) = wish.expect("a VM").spec else { panic!("not a VM") };
    assert_eq!(spec.floor.out.0, Rate::from_mbps(100));
    assert_eq!(spec.floor.inward.0, Rate::from_mbps(50));
    assert_eq!((spec.host, spec.external), (None, None));
}

#[test]
fn every_mistake_names_its_field_and_its_reason() {
    let head = |kind: &str, name: &str, spec: Value| json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let reserved = |vms: Value| json!({"tenant": "t", "vms": vms});
    let one = json!({"name": "a", "host": "h0"});
    for (document, field, reason) in [
        (json!([]), ".", "invalid"),
        (json!({"kind": "VM"}), "apiVersion", "missing field"),
        (json!({"apiVersion": "v2", "kind": "VM", "metadata": {}}), "apiVersion", "write weir/v1"),
        (head("Pod", "a", json!({})), "kind", "Topology, Host, Link, Switch, Tenant, VM"),
        (
            json!({"apiVersion": API_VERSION, "kind": "VM", "metadata": {}}),
            "metadata.name",
            "missing",
        ),
        (head("VM", "a/b", json!({})), "metadata.name", "is not a name"),
        (head("VM", "", json!({})), "metadata.name", "is not a name"),
        (vm(json!({})), "spec.tenant", "missing field"),
        (vm(json!({"tenant": "t", "colour": 1})), "spec.colour", "unknown field `colour`"),
        (vm(json!({"tenant": "t", "floor": {"out": "100"}})), "spec.floor.out", "has no unit"),
        (vm(json!({"tenant": "t", "floor": {"in": "100Mbps"}})), "spec.floor.in", "octets to tc"),
        (vm(json!({"tenant": "t", "floor": {"out": 5}})), "spec.floor.out", "has no unit"),
        (vm(json!({"tenant": "t", "floor": {"out": true}})), "spec.floor.out", "expected a string"),
        (
            vm(json!({"tenant": "t", "floor": {"out": "900T"}})),
            "spec.floor.out",
            "more than any link",
        ),
        (vm(json!({"tenant": "t", "host": "-"})), "spec.host", "is not a name"),
        (
            head("Host", "h", json!({"switch": "s", "rate": "0bit", "slots": 1})),
            "spec.rate",
            "carries",
        ),
        (
            head("Link", "l", json!({"lower": "s", "upper": "s", "rate": "1G"})),
            "spec.upper",
            "both ends",
        ),
        (head("Topology", "x", json!({})), "metadata.name", "`default`"),
        (head("Topology", "default", json!({"headroomPercent": 91})), "spec.headroomPercent", "90"),
        (head("Reservation", "r", reserved(json!([]))), "spec.vms", "1 to 1000"),
        (head("Reservation", "r", reserved(json!([one, one]))), "spec.vms[1].name", "twice"),
        (head("Reservation", "r", reserved(json!([{"name": "a"}]))), "spec.vms[0].host", "missing"),
        (head("Reservation", "r", json!({"tenant": "t", "vms": [one], "holdFor": "2min"})), "", ""),
        (
            head("Reservation", "r", json!({"tenant": "t", "vms": [one], "holdFor": "61min"})),
            "spec.holdFor",
            "is not between 1s and 3600s",
        ),
    ] {
        if field.is_empty() {
            read(document).expect("two minutes are fine");
            continue;
        }
        let (at, why) = mistake(document.clone());
        assert_eq!(at, field, "{document}: {why}");
        assert!(why.contains(reason), "{document}: {why}");
    }
}

#[test]
fn a_switch_and_its_queues_are_read_and_each_mistake_names_its_field() {
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let with = |change: Value| {
        let mut spec = json!({"driver": "sonic", "address": "redis://192.0.2.7:6379", "queues": 8,
            "free": [0, 2, 5], "ports": [{"name": "Ethernet0", "host": "h0"},
            {"name": "Ethernet4", "link": "up"}]});
        for (key, value) in change.as_object().expect("fields") {
            spec[key] = value.clone();
        }
        object("Switch", "leaf1", spec)
    };
    let Spec::Switch(switch) = read(with(json!({}))).expect("sound").spec else { panic!("none") };
    assert_eq!(switch.free_queues(), [0, 2, 5].into());
    assert_eq!(switch.tenant_classes(), Some([0, 2, 5].into()));
    let written = serde_json::to_value(Spec::Switch(switch.clone())).expect("JSON");
    assert_eq!(read_spec(Kind::Switch, written).expect("the same"), Spec::Switch(switch));
    let two = |second: Value| with(json!({"ports": [{"name": "e0", "host": "h0"}, second]}));
    let queues = |spec: Value| object("Topology", "default", json!({"queues": spec}));
    read(queues(json!({"codePoints": [10, 12], "interval": "4s"}))).expect("sound");
    let fixed = |interval: &str| {
        queues(
            json!({"codePoints": [1], "mode": "static", "sharedWeight": 2, "interval": interval}),
        )
    };
    read(fixed("100ms")).expect("no switch is written to");
    read(object("Tenant", "gold", json!({"queue": "pinned"}))).expect("sound");
    for (document, field, reason) in [
        (with(json!({"queues": 17})), "spec.queues", "1 to 16"),
        (with(json!({"free": [0, 8]})), "spec.free[1]", "write 0 to 7"),
        (with(json!({"free": [1, 1]})), "spec.free[1]", "listed twice"),
        (with(json!({"reservedCodePoints": [64]})), "spec.reservedCodePoints[0]", "0 to 63"),
        (with(json!({"mostWeight": 101})), "spec.mostWeight", "1 to 100"),
        (with(json!({"mostWeight": 0})), "spec.mostWeight", "1 to 100"),
        (with(json!({"address": null})), "spec.address", "redis://HOST:PORT"),
        (with(json!({"address": "192.0.2.7"})), "spec.address", "redis://HOST:PORT"),
        (with(json!({"driver": "linux-tc"})), "spec.address", "path of a namespace"),
        (with(json!({"driver": "ssh"})), "spec.driver", "unknown variant"),
        (with(json!({"ports": []})), "spec.ports", "1 to 1024"),
        (two(json!({"name": "e0", "host": "h1"})), "spec.ports[1].name", "listed twice"),
        (two(json!({"name": "e1", "host": "h0"})), "spec.ports[1].host", "another port"),
        (two(json!({"name": "e1"})), "spec.ports[1].host", "leads nowhere"),
        (two(json!({"name": "e1", "host": "h1", "link": "l"})), "spec.ports[1].link", "already"),
        (queues(json!({"codePoints": []})), "spec.queues.codePoints", "none are named"),
        (queues(json!({"codePoints": [0]})), "spec.queues.codePoints[0]", "1 to 63"),
        (queues(json!({"codePoints": [1], "interval": "10ms"})), "spec.queues.interval", "1s"),
        (queues(json!({"codePoints": [1], "interval": "100ms"})), "spec.queues.interval", "1s"),
        (fixed("99ms"), "spec.queues.interval", "100ms"),
        (queues(json!({"codePoints": [1], "mode": "static"})), "spec.queues.sharedWeight", "needs"),
        (
            queues(json!({"codePoints": [1], "sharedWeight": 2})),
            "spec.queues.sharedWeight",
            "itself",
        ),
        (object("Tenant", "gold", json!({"queue": "always"})), "spec.queue", "unknown variant"),
    ] {
        let (at, why) = mistake(document.clone());
        assert_eq!(at, field, "{document}: {why}");
        assert!(why.contains(reason), "{document}: {why}");
    }
}

#[test]
fn a_written_object_is_read_back_and_may_be_applied_as_it_is() {
    let wish = read(vm(json!({"tenant": "acme", "floor": {"out": "100M"}}))).expect("a VM");
    let mut object = Object { metadata: wish.metadata, spec: wish.spec, status: Status::default() };
    object.metadata.resource_version = Some("7".into());
    object.metadata.creation_timestamp = Some(Moment::from_millis(1_795_592_795_120));
    object.status.host = Some("h0".into());
    object.status.set(Condition {
        name: "Admitted".into(),
        status: Truth::True,
        reason: "Fits".into(),
        message: String::new(),
        last_transition_time: Moment::from_millis(5),
    });
    let written = serde_json::to_value(&object).expect("an object is JSON");
    assert_eq!(written["spec"]["floor"]["out"], "100Mbit");
    assert_eq!(written["kind"], "VM");
    assert_eq!(Object::read(written.clone()), Ok(object.clone()));
    assert_eq!(read(written).expect("a wish").spec, object.spec);
}

#[test]
fn a_condition_keeps_the_time_of_its_last_transition_while_only_the_reason_changes() {
    let condition = |status, reason: &str, ms| Condition {
        name: "Admitted".into(),
        status,
        reason: reason.into(),
        message: String::new(),
        last_transition_time: Moment::from_millis(ms),
    };
    let mut status = Status::default();
    status.set(condition(Truth::False, "LinkFull", 1));
    status.set(condition(Truth::False, "HostDead", 2));
    let now = status.condition("Admitted").expect("it was set");
    assert_eq!((now.reason.as_str(), now.last_transition_time.as_millis()), ("HostDead", 1));
    status.set(condition(Truth::True, "Fits", 3));
    assert_eq!(status.conditions.len(), 1);
    assert_eq!(status.conditions[0].last_transition_time.as_millis(), 3);
}

#[test]
fn people_may_name_a_kind_as_they_like() {
    for (text, kind) in
        [("VM", Kind::Vm), ("vms", Kind::Vm), ("Topology", Kind::Topology), ("HOSTS", Kind::Host)]
    {
        assert_eq!(Kind::named(text), Some(kind), "{text}");
    }
    assert_eq!(Kind::named("pods"), None);
}
