//! The tables of flow sizes that come with the project say of themselves what is in them.

use std::path::Path;
use std::sync::Arc;
use weir_flow::import::cdf;
use weir_model::scenario::Sizes;

/// What a table's header says behind the word `mean`, in octets, and to how many digits.
fn stated(text: &str) -> Option<(f64, f64)> {
    let comment: String = text.lines().filter_map(|line| line.strip_prefix('#')).collect();
    let mut words = comment.split_whitespace().skip_while(|word| *word != "mean").skip(1);
    let (number, unit) = (words.next()?, words.next()?);
    let unit = match unit.trim_end_matches(['.', ';', ',']) {
        "kB" => 1e3,
        "MB" => 1e6,
        _ => return None,
    };
    let digits = number.split_once('.').map_or(0, |(_, digits)| digits.len() as i32);
    Some((number.parse::<f64>().ok()? * unit, 10f64.powi(-digits) * unit))
}

#[test]
fn every_table_is_read_and_has_the_mean_that_it_states() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/workloads");
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let mut tables: Vec<_> = files.map(|file| file.expect("readable").path()).collect();
    tables.sort();
    tables.retain(|path| path.extension().is_some_and(|extension| extension == "cdf"));
    assert!(tables.len() >= 14, "{tables:?}");
    for path in tables {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).expect("text");
        let table = cdf(&name, &text).unwrap_or_else(|error| panic!("{error}"));
        let (mean, digit) = stated(&text).unwrap_or_else(|| panic!("{name} states no mean"));
        let actual = Sizes::Table(Arc::new(table), 1.0).mean().get() as f64;
        assert!((actual - mean).abs() <= 0.6 * digit, "{name}: {actual}, not {mean}");
    }
}
