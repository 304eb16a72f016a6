use super::*;
use crate::state::{Action, Actor, Limits, Mode, Request, Role, State};
use serde_json::{Value, json};
use weir_model::objects::{API_VERSION, read};

/// A folder that is removed at the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-books-{}-{name}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Noon of a day, ms.
const NOON: u64 = 20_000 * 86_400_000 + 43_200_000;

fn at(second: u64) -> Moment {
    Moment::from_millis(NOON + second * 1000)
}

/// Name, tenant and host of VMs.
const VMS: [(&str, &str, &str); 4] =
    [("a", "gold", "h0"), ("b", "gold", "h1"), ("c", "blue", "h2"), ("d", "blue", "h1")];

fn view() -> View {
    view_of(VMS.map(|(vm, tenant, host)| (vm.to_owned(), tenant, host.to_owned())))
}

fn view_of(vms: impl IntoIterator<Item = (String, &'static str, String)>) -> View {
    View::new(&state_with(vms), 100)
}

fn state_with(vms: impl IntoIterator<Item = (String, &'static str, String)>) -> State {
    let mut objects = Vec::new();
    for (vm, tenant, host) in vms {
        let place = json!({"switch": "tor", "rate": "1Gbit", "slots": 10});
        let floor = json!({"out": "80Mbit", "in": "80Mbit"});
        objects.push(("Host", host.clone(), place));
        objects.push(("Tenant", tenant.to_owned(), json!({})));
        objects.push(("VM", vm, json!({"tenant": tenant, "host": host, "floor": floor})));
    }
    state_of(objects)
}

/// The state after these objects, by kind and name.
pub(super) fn state_of(objects: Vec<(&'static str, String, Value)>) -> State {
    let mut state = State::new(Limits::default());
    for (kind, name, spec) in objects {
        let metadata = json!({"name": name});
        let document =
            json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec});
        let wish = Box::new(read(document).expect("a good document"));
        let actor = Actor { name: "op".into(), role: Role::Operator, tenant: None };
        let action = Action::Put { wish, mode: Mode::Apply, seen: None };
        let request = Request { actor, dry_run: false, idempotency: None, action };
        state.handle(at(0), &request).expect("it fits");
    }
    state
}

/// What a host says of a → b after so many windows, of which so many were held.
fn said(life: u64, windows: u64, held: u64) -> Accounts {
    let floor = |vm: &str, out| FloorAccount {
        vm: vm.into(),
        out,
        windows,
        held,
        owed: windows * 10_000_000,
        got: held * 10_000_000,
        all: windows * 11_000_000,
        borrowed: held * 1_000_000,
    };
    let floors = vec![floor("a", true), floor("b", false)];
    Accounts { life, at_ms: 1000, floors, ..Accounts::default() }
}

fn report(books: &Books, view: &View, until: Moment) -> Report {
    let asked = Asked { tenant: Some("gold"), vm: None, from: at(0), until };
    books.report(view, &asked, |_| true, true)
}

/// Windows and held ones: a out, a in, b out, b in.
fn counted(report: &Report) -> Vec<(u64, u64)> {
    report.floors.iter().map(|floor| (floor.windows, floor.held)).collect()
}

#[test]
fn what_agents_count_is_counted_once_whatever_is_lost_repeated_or_begun_anew() {
    let (folder, view) = (Folder::new("once"), view());
    let books = Books::open(&folder.0, 30);
    let take = |books: &Books, life, windows, held, second| {
        books.take("h0", said(life, windows, held), at(second), &view);
    };
    take(&books, 1, 100, 90, 1);
    assert_eq!(counted(&report(&books, &view, at(2)))[0], (0, 0), "it counted before it was known");
    take(&books, 1, 110, 99, 2);
    take(&books, 1, 110, 99, 3);
    // One is lost between these.
    take(&books, 1, 130, 109, 5);
    assert_eq!(counted(&report(&books, &view, at(6))), [(30, 19), (0, 0), (0, 0), (30, 19)]);
    // The agent ends and begins: what it says first is what it counted since, but a host with another life may
    // have counted while nobody listened.
    take(&books, 2, 5, 5, 7);
    take(&books, 2, 8, 7, 9);
    assert_eq!(counted(&report(&books, &view, at(10)))[0], (33, 21));
    // So does the controller, after it wrote; the same five minutes go on.
    books.write(at(11), &view);
    drop(books);
    let books = Books::open(&folder.0, 30);
    take(&books, 2, 20, 19, 20);
    assert_eq!(counted(&report(&books, &view, at(21)))[0], (33, 21), "from the disk");
    take(&books, 2, 21, 20, 22);
    take(&books, 2, 25, 20, 400);
    books.write(at(401), &view);
    take(&books, 2, 26, 21, 402);
    let told = report(&books, &view, at(500));
    assert_eq!(counted(&told)[0], (39, 23));
    let a = &told.floors[0];
    assert_eq!((a.vm.as_str(), a.direction, a.floor), ("a", "out", 80_000_000));
    assert_eq!((a.owed, a.borrowed), (390_000_000, 23_000_000));
    let share = a.share.expect("there were windows");
    assert!((share - 23.0 / 39.0).abs() < 1e-9, "{share}");
    let since = Asked { tenant: None, vm: Some("a"), from: at(350), until: at(500) };
    assert_eq!(
        counted(&books.report(&view, &since, |_| true, true))[0],
        (5, 1),
        "the later five minutes"
    );
    let others = books.report(&view, &since, |tenant| tenant == "blue", false);
    assert!(others.floors.is_empty(), "not of those who may not see it");
}

#[test]
fn days_that_are_too_old_are_dropped_and_others_are_not() {
    let (folder, view) = (Folder::new("days"), view());
    let books = Books::open(&folder.0, 2);
    let day = 86_400;
    for n in 0..5 {
        books.take("h0", said(1, 10 * n, 10 * n), at(n * day), &view);
        books.take("h0", said(1, 10 * n + 1, 10 * n + 1), at(n * day + 1), &view);
        books.write(at(n * day + 2), &view);
    }
    let told = counted(&report(&books, &view, at(4 * day + 100)))[0];
    // Days 2, 3 and 4, each with what was lost of the night before.
    assert_eq!(told, (30, 30));
}

#[test]
fn a_stretch_grows_and_says_which_tenant_borrowed_most_where_it_was_broken() {
    let state = state_with(VMS.map(|(vm, tenant, host)| (vm.to_owned(), tenant, host.to_owned())));
    let (folder, view) = (Folder::new("stretch"), View::new(&state, 100));
    let books = Books::open(&folder.0, 30);
    let pair = |from: &str, to: &str, floor, sent| PairNow {
        from: from.into(),
        to: to.into(),
        floor,
        rate: sent,
        sent,
        ..PairNow::default()
    };
    let flood = Accounts {
        life: 9,
        at_ms: 5000,
        pairs: vec![pair("c", "d", 80, 900)],
        ..Accounts::default()
    };
    books.take("h2", flood, at(0), &view);
    books.survey(Arc::new(state.ways()), &view, at(1));
    let broken = |until_ms, owed| BrokenFloor {
        id: 1,
        from: "a".into(),
        to: "b".into(),
        from_ms: 7000,
        until_ms,
        owed,
        got: owed / 2,
        lost: 12,
        cause: "Lost".into(),
    };
    let with =
        |at_ms, stretch| Accounts { life: 3, at_ms, broken: vec![stretch], ..Accounts::default() };
    books.take("h0", with(8500, broken(8000, 100)), at(10), &view);
    books.detach("h2");
    books.take("h0", with(10_500, broken(10_000, 300)), at(12), &view);
    books.take("h0", with(12_500, broken(10_000, 300)), at(14), &view);
    let told = report(&books, &view, at(20)).broken;
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].owed, told[0].got, told[0].took.as_str()), (300, 150, "blue"));
    assert_eq!(
        (told[0].begin, told[0].end),
        (
            Moment::from_millis(at(8).as_millis() + 500),
            Moment::from_millis(at(11).as_millis() + 500)
        )
    );
    let asked = Asked { tenant: None, vm: None, from: at(0), until: at(20) };
    let seen = books.report(&view, &asked, |tenant| tenant == "gold", false);
    assert_eq!(seen.broken[0].took, "another tenant", "a tenant is not told of others");
    let now = |second| alerts(&books, &view, at(second));
    let is_broken = |second| {
        now(second).iter().any(|alert| alert.name == "WeirFloorBroken" && alert.object == "a")
    };
    assert!(is_broken(20) && !is_broken(60));
    assert!(now(120).iter().any(|alert| alert.name == "WeirHostSilent" && alert.object == "h0"));
    books.write(at(21), &view);
    drop(books);
    // The next controller hears of it once more, by a clock that is another by moments, and it is one still.
    let books = Books::open(&folder.0, 30);
    books.take("h0", with(15_007, broken(10_000, 300)), at(16), &view);
    books.write(at(22), &view);
    books.take("h0", with(16_507, broken(11_000, 400)), at(18), &view);
    books.write(at(23), &view);
    let told = report(&books, &view, at(30)).broken;
    assert_eq!((told.len(), told[0].owed, told[0].took.as_str()), (1, 400, "blue"));
}

#[test]
fn the_course_of_a_vm_has_what_would_be_ideal_and_a_pair_what_it_would_have() {
    let state = state_with(VMS.map(|(vm, tenant, host)| (vm.to_owned(), tenant, host.to_owned())));
    let (folder, view) = (Folder::new("ideal"), View::new(&state, 100));
    let books = Books::open(&folder.0, 30);
    let pair = PairNow {
        from: "a".into(),
        to: "b".into(),
        floor: 80_000_000,
        sent: 90_000_000,
        wants: true,
        ..PairNow::default()
    };
    let told = |windows| Accounts { pairs: vec![pair.clone()], ..said(1, windows, windows) };
    books.take("h0", told(1), at(0), &view);
    books.take("h0", told(5), at(1), &view);
    assert_eq!(books.pairs("a")[0].ideal, None, "nothing is known yet");
    books.survey(Arc::new(state.ways()), &view, at(2));
    assert_eq!(books.pairs("b")[0].ideal, Some(1_000_000_000), "nothing else is on its way");
    let both = [key("gold", "a"), key("gold", "b")];
    let series = books.series(at(12), &both);
    assert_eq!(series.ideal.last(), Some(&Some(1_000_000_000)));
    assert!(series.ideal[..STEPS - 2].iter().all(Option::is_none), "it was not known earlier");
    assert_eq!(books.ideal(&both), [1_000_000_000; 2]);
    // The host's stream ends: its pairs are not known, and nothing is said of them.
    books.detach("h0");
    books.survey(Arc::new(state.ways()), &view, at(3));
    assert_eq!(books.ideal(&both), [0; 2]);
}

#[test]
fn stretches_of_many_hosts_are_kept_once_though_they_are_told_again_and_again() {
    let folder = Folder::new("many");
    let view = view_of((0..10).map(|n| (format!("v{n}"), "gold", format!("host{n}"))));
    let books = Books::open(&folder.0, 30);
    let one = |host: u64, id: u64| BrokenFloor {
        id,
        from: format!("v{host}"),
        to: "v0".into(),
        from_ms: 1000 * id,
        until_ms: 1000 * id + 1000,
        owed: 100,
        ..BrokenFloor::default()
    };
    // More than are in memory.
    for second in 200..203 {
        for host in 0..10 {
            let said = Accounts {
                life: 1,
                // Each message takes another time.
                at_ms: 1000 * second + 7 * second % 13,
                broken: (1..=128).map(|id| one(host, id)).collect(),
                ..Accounts::default()
            };
            books.take(&format!("host{host}"), said, at(second), &view);
        }
        books.write(at(second), &view);
    }
    let (all, is_whole) = books.keeper().stretches(0, at(1000).as_millis(), |_| true);
    assert_eq!((all.len(), is_whole), (1280, true));
}

#[test]
fn a_file_that_is_damaged_is_put_aside() {
    let (folder, view) = (Folder::new("damaged"), view());
    std::fs::write(folder.0.join("accounts.redb"), "no database").expect("written");
    let books = Books::open(&folder.0, 30);
    books.take("h0", said(1, 1, 1), at(0), &view);
    books.take("h0", said(1, 5, 5), at(1), &view);
    books.write(at(2), &view);
    drop(books);
    assert!(folder.0.join("accounts.damaged").exists());
    assert_eq!(counted(&report(&Books::open(&folder.0, 30), &view, at(3)))[0], (4, 4));
}

#[test]
fn a_file_that_cannot_be_opened_is_left_alone_and_tried_again() {
    let (folder, view) = (Folder::new("again"), view());
    let other = redb::Database::create(folder.0.join("accounts.redb")).expect("a file");
    let books = Books::open(&folder.0, 30);
    books.take("h0", said(1, 1, 1), at(0), &view);
    let mut broken = said(1, 5, 5);
    broken.broken =
        vec![BrokenFloor { id: 1, from: "a".into(), to: "b".into(), ..BrokenFloor::default() }];
    books.take("h0", broken, at(1), &view);
    books.write(at(2), &view);
    let told = report(&books, &view, at(3));
    assert_eq!((counted(&told)[0], told.broken.len(), told.incomplete), ((4, 4), 1, true));
    assert!(!folder.0.join("accounts.damaged").exists(), "nothing is wrong with it");
    drop(other);
    books.write(at(32), &view);
    drop(books);
    let told = report(&Books::open(&folder.0, 30), &view, at(33));
    assert_eq!((counted(&told)[0], told.broken.len(), told.incomplete), ((4, 4), 1, false));
}

#[test]
fn a_host_speaks_for_what_its_own_vms_send_and_within_bounds() {
    let (folder, view) = (Folder::new("liar"), view());
    let books = Books::open(&folder.0, 30);
    let floor = |vm: &str, out, n| FloorAccount {
        vm: vm.into(),
        out,
        windows: n,
        all: u64::MAX / 4 * n,
        ..FloorAccount::default()
    };
    let lie = |n| {
        let strange = (0..1000).map(|vm| floor(&format!("x{vm}"), true, n));
        let others = [floor("c", true, n), floor("d", false, n), floor("a", true, n)];
        let broken = |from: &str, to: &str, id| BrokenFloor {
            id,
            from: from.into(),
            to: to.into(),
            cause: format!("\u{1b}[31m{}", "x".repeat(1000)),
            ..BrokenFloor::default()
        };
        let many = (0..1000).map(|id| broken("a", "b", id));
        let pair = |from: &str, to: &str| PairNow {
            from: from.into(),
            to: to.into(),
            sent: u64::MAX,
            ..PairNow::default()
        };
        Accounts {
            life: 1,
            floors: strange.chain(others).collect(),
            broken: [broken("c", "d", 5000), broken("a", "none", 5001)]
                .into_iter()
                .chain(many)
                .collect(),
            pairs: [pair("c", "d"), pair("a", "none")]
                .into_iter()
                .chain(vec![pair("a", "b"); 1000])
                .collect(),
            troubles: vec![Trouble { vm: "c".into(), ..Trouble::default() }],
            ..Accounts::default()
        }
    };
    books.take("h0", lie(0), at(0), &view);
    books.take("h0", lie(3), at(1), &view);
    let asked = Asked { tenant: None, vm: None, from: at(0), until: at(20) };
    let told = books.report(&view, &asked, |_| true, true);
    let windows: Vec<_> =
        told.floors.iter().map(|floor| (floor.vm.as_str(), floor.windows)).collect();
    let all = [("a", 3), ("a", 0), ("b", 0), ("b", 0), ("c", 0), ("c", 0), ("d", 0), ("d", 3)];
    assert_eq!(windows, all, "what others send is theirs to say");
    assert!(
        told.broken.iter().all(|one| one.from == "a" && one.to == "b" && one.cause.len() == 40)
    );
    assert_eq!((told.broken.len(), books.pairs("a").len()), (BROKEN_MOST, PAIRS_MOST));
    assert!(books.pairs("c").is_empty());
    assert!(alerts(&books, &view, at(2)).iter().all(|alert| alert.object != "c"));
    assert_eq!(books.lock().vms.len(), 2, "no VM that is none");
}

#[test]
fn what_a_vm_sent_before_it_moved_away_and_back_is_counted_once() {
    let (folder, view) = (Folder::new("moves"), view());
    let books = Books::open(&folder.0, 30);
    books.take("h0", said(1, 0, 0), at(0), &view);
    books.take("h0", said(1, 5, 5), at(1), &view);
    let away =
        view_of([("a", "h1"), ("b", "h1")].map(|(vm, host)| (vm.into(), "gold", host.into())));
    books.take("h0", said(1, 5, 5), at(2), &away);
    books.take("h0", said(1, 7, 7), at(3), &view);
    assert_eq!(counted(&report(&books, &view, at(4)))[0], (7, 7));
}

#[test]
fn a_vm_with_a_name_that_was_another_tenants_begins_anew() {
    let (folder, view) = (Folder::new("reuse"), view());
    let books = Books::open(&folder.0, 30);
    books.take("h0", said(1, 0, 0), at(0), &view);
    books.take("h0", said(1, 5, 3), at(1), &view);
    books.write(at(2), &view);
    let blue = view_of([("a".to_owned(), "blue", "h0".to_owned())]);
    let asked = Asked { tenant: None, vm: None, from: at(0), until: at(60) };
    let told = books.report(&blue, &asked, |tenant| tenant == "blue", false);
    assert_eq!((told.floors[0].windows, told.floors[0].all), (0, 0));
    assert_eq!(books.total(&key("blue", "a")), <[Sum; 2]>::default());
}

#[test]
fn a_report_since_the_beginning_of_time_reads_no_more_than_is_kept() {
    let (folder, view) = (Folder::new("since"), view());
    let books = Books::open(&folder.0, 2);
    books.take("h0", said(1, 0, 0), at(0), &view);
    books.take("h0", said(1, 5, 3), at(1), &view);
    let asked = Asked { tenant: None, vm: None, from: Moment::from_millis(0), until: at(60) };
    let told = books.report(&view, &asked, |_| true, true);
    assert_eq!(counted(&told)[0], (5, 3));
    let days = (at(60).as_millis() - told.from.as_millis()) / 86_400_000;
    assert_eq!(days, 2);
}

#[test]
fn the_course_of_ten_minutes_has_rates_and_parts_that_were_held() {
    let (folder, view) = (Folder::new("course"), view());
    let books = Books::open(&folder.0, 30);
    books.take("h0", said(1, 0, 0), at(0), &view);
    books.take("h0", said(1, 10, 5), at(5), &view);
    let series = books.series(at(30), &["gold/a".into(), "gold/b".into()]);
    assert_eq!((series.at.len(), series.out.len(), series.held.len()), (59, 59, 59));
    // 110 MB in a step of ten seconds.
    assert_eq!(
        (series.out[56], series.into[56], series.owed[56]),
        (Some(88_000_000), Some(88_000_000), Some(80_000_000))
    );
    assert_eq!((series.held[56], series.held[55]), (Some(0.5), None));
    assert_eq!((series.out[55], series.out[57]), (None, Some(0)), "nothing is known of before");
    let tested = |row: &[Tested]| (row[COLUMNS - 1].windows, row[COLUMNS - 1].held);
    let map = |books: &Books| {
        let (columns, vms) = books.course_of_vms("gold", ["a", "b", "none"].into_iter(), at(30));
        assert_eq!(columns.is_known.iter().filter(|known| **known).count(), 1);
        let (_, tenants) = books.course(["gold", "blue"].into_iter(), at(30));
        let of = |rows: Vec<Vec<Tested>>| rows.iter().map(|row| tested(row)).collect::<Vec<_>>();
        (of(vms), of(tenants))
    };
    // a → b is out of a and into b, which are VMs of one tenant.
    let whole = (vec![(10, 5), (10, 5), (0, 0)], vec![(20, 10), (0, 0)]);
    assert_eq!(map(&books), whole, "of what is not written yet");
    books.write(at(31), &view);
    books.write(at(32), &view);
    assert_eq!(map(&books), whole);

    // The next start adds to what this one wrote.
    drop(books);
    let books = Books::open(&folder.0, 30);
    books.take("h0", said(1, 10, 5), at(33), &view);
    books.take("h0", said(1, 11, 6), at(34), &view);
    books.recall(at(35));
    assert_eq!(map(&books), (vec![(11, 6), (11, 6), (0, 0)], vec![(22, 12), (0, 0)]));
    books.write(at(36), &view);
    drop(books);
    let books = Books::open(&folder.0, 30);
    books.write(at(37), &view);
    assert_eq!(map(&books).1, [(22, 12), (0, 0)]);
}

#[test]
fn few_agents_tell_often_and_many_do_not_drown_the_controller() {
    assert_eq!([0, 1, 1000, 10_000].map(Books::every_ms), [2000, 2000, 2000, 20_000]);
}
