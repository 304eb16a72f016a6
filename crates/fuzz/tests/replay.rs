//! Every target over its corpus and some thousand damaged copies of it, in a minute.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use weir_fuzz::mutate::{LONGEST, Random, mutate};
use weir_fuzz::{Limits, TARGETS, Target, corpus, replay, target};

/// What the whole test program may have used at its peak, whatever it was fed.
const MEMORY_KB: u64 = 1 << 20;

/// The CPU time of this thread: a busy machine makes an input slow, and costs it no CPU time.
fn clock() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("time since the thread began")
}

/// `WEIR_FUZZ_SEED` and `WEIR_FUZZ_MUTATIONS` try others, and more.
fn limits(mutations: u32) -> Limits {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    Limits {
        mutations: number("WEIR_FUZZ_MUTATIONS").map_or(mutations, |n| n as u32),
        seed: number("WEIR_FUZZ_SEED").unwrap_or(1),
        each: Duration::from_secs(5),
        clock,
    }
}

fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("the kernel says it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Runs one target, and sees that it did not take the machine's memory.
fn run(name: &str, mutations: u32) {
    let limits = limits(mutations);
    // As much stack as the main thread of a program has; a test's thread has a quarter of it.
    let tried = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(8 << 20);
        let thread = thread.spawn_scoped(scope, || replay(target(name), &limits));
        thread.expect("a thread").join()
    });
    let tried = tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    println!("{name}: {} inputs, {} beyond the first check", tried.inputs, tried.reached);
    assert!(tried.inputs > limits.mutations as usize);
    // Damage that never gets beyond the first check tests nothing else.
    assert!(tried.reached * 20 >= tried.inputs, "{name}: {tried:?}");
    let peak = peak_kb();
    assert!(peak < MEMORY_KB, "{name} and its neighbours have used {peak} kB");
}

#[test]
fn no_octets_are_a_datagram_of_two_forms_or_believed_without_the_key() {
    run("datagram", 20_000);
}

#[test]
fn no_network_delivers_a_message_twice_or_damaged_whatever_keys_and_agents_do() {
    run("session", 1_000);
}

#[test]
fn no_feedback_is_believed_without_its_key_or_twice_or_damaged() {
    run("feedback", 5_000);
}

#[test]
fn a_key_file_is_a_ring_or_an_error_that_names_its_line_and_no_key() {
    run("key_file", 20_000);
}

#[test]
fn a_network_file_hangs_together_or_has_a_line_that_does_not() {
    run("network", 20_000);
}

#[test]
fn a_scenario_is_sound_or_has_a_line_that_is_not() {
    run("scenario", 1_500);
}

#[test]
fn an_expression_has_a_value_or_a_column_that_is_wrong() {
    run("expression", 3_000);
}

#[test]
fn what_is_set_on_the_command_line_is_sound_or_named() {
    run("assignment", 3_000);
}

#[test]
fn an_agents_configuration_starts_it_or_says_why_not() {
    run("agent_config", 5_000);
}

#[test]
fn a_directory_is_read_or_has_a_line_that_is_wrong() {
    run("directory", 5_000);
}

#[test]
fn a_quantity_is_read_back_as_it_is_shown() {
    run("quantity", 20_000);
}

#[test]
fn results_are_read_back_or_have_a_line_that_is_wrong() {
    run("results", 5_000);
}

#[test]
fn a_question_or_answer_on_the_socket_is_read_back() {
    run("socket", 20_000);
}

#[test]
fn a_domain_is_handed_to_no_agent_and_what_is_imported_is_read() {
    run("domain", 20_000);
}

#[test]
fn a_table_of_sizes_gives_sizes_or_has_a_line_that_is_wrong() {
    run("cdf", 20_000);
}

#[test]
fn a_damaged_journal_tells_no_deed_that_was_not_done() {
    run("journal", 20_000);
}

#[test]
fn a_recording_replays_as_it_was_written_or_its_first_wrong_record_is_named() {
    run("recording", 3_000);
}

#[test]
fn a_frame_is_marked_in_its_ecn_field_and_nowhere_else() {
    run("frame", 50_000);
}

#[test]
fn an_answer_of_the_kernel_is_never_read_beyond_its_end() {
    run("netlink", 50_000);
}

#[test]
fn a_datagram_of_a_prober_is_read_as_it_is_written() {
    run("verify", 50_000);
}

/// `WEIR_WRITE_CORPUS=1` writes the files of the seeds anew.
#[test]
fn the_corpus_holds_every_seed_and_every_target_has_a_program() {
    let fuzz = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for target in TARGETS {
        let folder = fuzz.join("corpus").join(target.name);
        for (name, octets) in (target.seeds)() {
            let file = folder.join(name);
            if std::env::var_os("WEIR_WRITE_CORPUS").is_some() {
                std::fs::create_dir_all(&folder).expect("a folder");
                std::fs::write(&file, &octets).expect("written");
            }
            assert_eq!(std::fs::read(&file).ok(), Some(octets), "{}", file.display());
        }
        assert!(corpus(&target).len() >= 4, "{}: too few inputs to start from", target.name);
        let program = fuzz.join("fuzz_targets").join(format!("{}.rs", target.name));
        let text = std::fs::read_to_string(&program).expect("every target has a program");
        assert!(text.contains(&format!("\"{}\"", target.name)), "{}", program.display());
        let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).expect("a manifest");
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
    }
}

/// The corpus alone.
fn unharmed(clock: fn() -> Duration) -> Limits {
    Limits { mutations: 0, seed: 0, each: Duration::from_secs(1), clock }
}

#[test]
#[should_panic(expected = "more than 1s")]
fn an_input_that_takes_too_long_is_an_error() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NOW: AtomicU64 = AtomicU64::new(0);
    let clock = || Duration::from_secs(NOW.fetch_add(2, Ordering::Relaxed));
    replay(target("quantity"), &unharmed(clock));
}

#[test]
#[should_panic(expected = "a broken promise")]
fn a_broken_promise_is_an_error() {
    let run = |_: &[u8]| panic!("a broken promise");
    replay(&Target { run, ..*target("quantity") }, &unharmed(|| Duration::ZERO));
}

#[test]
fn the_same_seed_gives_the_same_damage_and_another_seed_another() {
    let run = |seed| {
        let mut random = Random::new(seed);
        let many = (0..200).map(|_| mutate(&mut random, b"a: 1\nb: 2\n", b"c: [3]", &["word"]));
        many.collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!(run(1).iter().all(|octets| octets.len() <= LONGEST));
}

#[test]
fn nothing_at_all_can_be_damaged_too() {
    let mut random = Random::new(3);
    for _ in 0..1000 {
        mutate(&mut random, b"", b"", &[]);
    }
}
