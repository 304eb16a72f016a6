use super::*;
use crate::args::{Reproduce, WorldName};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn asked(world: World, quick: bool) -> Asked {
    Asked { world, quick, jobs: None, out: PathBuf::new() }
}

#[test]
fn every_figure_of_the_repository_resolves_in_both_worlds() {
    let figures = select(&root().join("reproduce"), &[]).expect("our own files are sound");
    assert!(figures.len() >= 19, "{}", figures.len());
    for figure in &figures {
        for (world, quick) in
            [(World::Sim, false), (World::Sim, true), (World::Lab, false), (World::Lab, true)]
        {
            let ready = play::ready(figure, &asked(world, quick))
                .unwrap_or_else(|error| panic!("{}, {world:?}: {error:#}", figure.id()));
            assert_eq!(ready.len(), figure.spec.play.len());
        }
        let drawn = figure.spec.missing.is_some() || !figure.spec.plots.is_empty();
        assert!(drawn, "{} has neither a plot nor a reason", figure.id());
    }
}

#[test]
fn every_row_of_the_papers_lists_has_a_file() {
    let rows = [
        (
            "elasticswitch",
            "ES-T1 ES-F2 ES-F5 ES-F6 ES-F7 ES-F8a ES-F8b ES-F9 ES-T2 ES-F10a ES-F10b ES-F10c ES-Periods \
             ES-F11 ES-F12 ES-CTRL ES-ECN ES-LOSS ES-GP",
        ),
        (
            "eyeq",
            "EQ-F1 EQ-F2 EQ-F4 EQ-CONV EQ-F6 EQ-F7 EQ-RL EQ-F8 EQ-MC-thr EQ-T1 EQ-F9 EQ-FB EQ-ECN",
        ),
        (
            "vcc",
            "VC-T1 VC-F1 VC-F4 VC-F6a VC-F6b VC-F7a VC-F7b VC-F8 VC-F9 VC-F10 VC-F11 VC-F12 VC-STATE",
        ),
        (
            "qshare",
            "QS-F2a QS-F2b QS-F3c QS-F7a QS-F7b QS-F7c QS-F8 QS-F11b QS-F12 QS-T1 QS-DSCP QS-LOAD QS-F10a QS-F10b \
             QS-FREE QS-LIAR QS-7-4 QS-T2",
        ),
    ];
    for (paper, wanted) in rows {
        let figures = select(&root().join("reproduce"), &[paper.into()]).expect("sound");
        let ids: Vec<&str> = figures.iter().map(Figure::id).collect();
        for id in wanted.split_whitespace() {
            assert!(ids.contains(&id), "{id} is missing in {ids:?}");
        }
    }
}

#[test]
fn every_test_that_a_figure_names_is_there() {
    fn sources(folder: &Path, into: &mut String) {
        for entry in
            fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path())
        {
            match entry.extension() {
                _ if entry.is_dir() => sources(&entry, into),
                Some(extension) if extension == "rs" => {
                    into.push_str(&fs::read_to_string(&entry).expect("text"));
                }
                _ => {}
            }
        }
    }
    let mut code = String::new();
    sources(&root().join("crates"), &mut code);
    for figure in select(&root().join("reproduce"), &[]).expect("sound") {
        for test in figure.spec.shown_by.iter().filter_map(|by| by.test.as_ref()) {
            let found = code.contains(&format!("fn {}(", test.value));
            assert!(found, "{}: no test is called {}", figure.id(), test.value);
        }
    }
}

#[test]
fn every_figure_of_eyeq_that_needs_no_kernel_is_played_in_the_simulator() {
    let figures = select(&root().join("reproduce"), &["eyeq".into()]).expect("sound");
    for figure in &figures {
        let ready = play::ready(figure, &asked(World::Sim, false)).expect("sound");
        let refused: Vec<_> = ready.iter().filter_map(|part| part.not.as_ref()).collect();
        let real = ["EQ-T1", "EQ-MC-thr"].contains(&figure.id());
        assert_eq!(!refused.is_empty(), real, "{}: {refused:?}", figure.id());
    }
    let missing = figures.iter().filter(|figure| figure.spec.missing.is_some());
    let missing: BTreeSet<&str> = missing.map(Figure::id).collect();
    assert_eq!(missing, ["EQ-CONV", "EQ-F4", "EQ-F7", "EQ-FB", "EQ-RL"].into());
}

#[test]
fn the_table_of_a_real_memcached_is_played_in_the_lab() {
    let figures = select(&root().join("reproduce"), &["EQ-T1".into()]).expect("there");
    let ready = play::ready(&figures[0], &asked(World::Lab, false)).expect("sound");
    assert_eq!(ready.iter().map(|part| part.not.as_deref()).collect::<Vec<_>>(), [None]);
}

#[test]
fn what_vcc_shows_of_shares_and_losses_is_played_in_both_worlds() {
    let figures = select(&root().join("reproduce"), &["vcc".into()]).expect("sound");
    for (figure, world) in figures.iter().flat_map(|f| [(f, World::Sim), (f, World::Lab)]) {
        let ready = play::ready(figure, &asked(world, false)).expect("sound");
        let refused: Vec<_> = ready.iter().filter_map(|part| part.not.as_ref()).collect();
        assert!(refused.is_empty(), "{}: {refused:?}", figure.id());
    }
    let missing = figures.iter().filter(|figure| figure.spec.missing.is_some());
    assert_eq!(missing.map(Figure::id).collect::<Vec<_>>(), ["VC-T1", "VC-STATE"]);
}

#[test]
fn datacenters_of_tenants_are_played_by_the_simulator_alone() {
    let figures = select(&root().join("reproduce"), &["QS-T1".into()]).expect("there");
    for (world, is_played) in [(World::Sim, true), (World::Lab, false)] {
        let ready = play::ready(&figures[0], &asked(world, false)).expect("sound");
        assert!(ready.len() > 1 && ready.iter().all(|part| part.not.is_none() == is_played));
        assert_eq!(ready[0].hosts().count(), 0);
    }
}

#[test]
fn the_simulator_plays_fig08_on_all_servers_of_the_paper_and_the_lab_on_a_third() {
    let figures = select(&root().join("reproduce"), &["ES-F8a".into()]).expect("there");
    for (world, hosts) in [(World::Sim, 44), (World::Lab, 16)] {
        for part in play::ready(&figures[0], &asked(world, false)).expect("sound") {
            assert!(part.hosts().all(|count| count == hosts), "{}, {world:?}", part.name);
        }
    }
}

#[test]
fn a_name_that_is_no_paper_and_no_figure_is_an_error_that_lists_them() {
    let from = root().join("reproduce");
    let one = select(&from, &["es-f5".into()]).expect("ids are found in any case");
    assert_eq!(one.len(), 1);
    let error = select(&from, &["ES-F55".into()]).expect_err("unknown").to_string();
    assert!(error.contains("`ES-F55`") && error.contains("ES-F5,"), "{error}");
    let error = format!("{:#}", select(Path::new("/nowhere"), &[]).expect_err("no folder"));
    assert!(error.contains("/nowhere") && error.contains("--from DIR"), "{error}");
}

#[test]
fn the_simulator_says_what_it_does_not_play() {
    let figures = select(&root().join("reproduce"), &["ES-F12".into()]).expect("there");
    let ready = play::ready(&figures[0], &asked(World::Sim, false)).expect("sound");
    assert!(ready.iter().all(|part| part.not.is_some()));
    let text = list(&figures, &[ready], World::Sim);
    assert!(text.contains("does not play") && text.contains("virtual time"), "{text}");
}

#[test]
fn arguments_have_defaults() {
    use clap::Parser as _;
    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        args: Reproduce,
    }
    let args = Only::parse_from(["x"]).args;
    assert_eq!((args.world, args.quick, args.what.len()), (WorldName::Sim, false, 0));
}
