//! Names that go into paths and to the kernel: refused before anything is made of them.

use crate::mistake::{Mistake, sound};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weir_model::agent::AgentConfig;

/// The kernel's bound on interface names, octets.
const INTERFACE: usize = 15;
/// The bound on names of instances, octets.
const INSTANCE: usize = 32;
/// The kernel's bound on a path, octets, less what we append.
const PATH: usize = 3800;

/// Refuses names that cannot be meant.
pub(crate) fn check(file: &AgentConfig) -> Result<(), Mistake> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let name = &file.instance;
    sound((1..=INSTANCE).contains(&name.len()) && name.chars().all(allowed), || {
        let what = format!(
            "{name:?} is no name of an instance; use letters, digits and hyphens, 1 to {INSTANCE} of \
             them"
        );
        Mistake::config("instance", what)
    })?;
    let paths = [
        ("run_dir", &file.run_dir),
        ("bpffs", &file.bpffs),
        ("key_file", &file.key_file),
        ("directory", &file.directory),
    ];
    if let Some(followed) = &file.controller {
        sound(is_path(&followed.state_dir), || {
            Mistake::config("controller.state_dir", format!("{:?} is no path", followed.state_dir))
        })?;
        weir_rpc::client::Server::parse_all(&followed.address)
            .map_err(|error| Mistake::config("controller.address", error.to_string()))?;
        sound(file.vms.is_empty(), || {
            let what =
                "the controller says which VMs are here: remove all `[[vm]]`, or `[controller]`";
            Mistake::config("vm", what)
        })?;
        sound(file.tenants.is_empty(), || {
            let what = "the controller says which queues tenants have: remove all `[[tenant]]`, or \
                        `[controller]`";
            Mistake::config("tenant", what)
        })?;
        for (field, path) in [("directory", &file.directory), ("key_file", &file.key_file)] {
            sound(path.as_os_str().is_empty(), || {
                Mistake::config(field, "the controller gives this: remove it, or `[controller]`")
            })?;
        }
    }
    for (field, path) in paths {
        if file.controller.is_some() && path.as_os_str().is_empty() {
            continue;
        }
        sound(is_path(path), || Mistake::config(field, format!("{path:?} is no path")))?;
    }
    sound(is_interface(&file.uplink.interface), || {
        Mistake::config("uplink.interface", no_interface(&file.uplink.interface))
    })?;
    for (i, vm) in file.vms.iter().enumerate() {
        sound(is_interface(&vm.port), || {
            Mistake::config(format!("vm[{i}].port"), no_interface(&vm.port))
        })?;
    }
    Ok(())
}

fn is_path(path: &Path) -> bool {
    let octets = path.as_os_str().as_bytes();
    (1..=PATH).contains(&octets.len()) && !octets.contains(&0)
}

/// As the kernel has it (`dev_valid_name`).
pub(crate) fn is_interface(name: &str) -> bool {
    let bad = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
    (1..=INTERFACE).contains(&name.len()) && !name.contains(bad) && name != "." && name != ".."
}

/// Why it is no name of an interface.
pub(crate) fn no_interface(name: &str) -> String {
    format!(
        "{name:?} is no name of a network interface, which has 1 to {INTERFACE} octets without `/`, \
         `:` and spaces; `ip link` lists those of this host"
    )
}

/// A text in which no word is longer than people read: of a longer one its beginning and its length.
pub(crate) fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    const LONGEST: usize = 200;
    let mut out = String::with_capacity(text.len().min(4096));
    for word in text.split_inclusive(char::is_whitespace) {
        if word.len() <= LONGEST {
            out.push_str(word);
            continue;
        }
        out.extend(word.chars().take(SHOWN));
        out.push_str(&format!("… ({} octets)", word.trim_end().len()));
        out.extend(word.chars().next_back().filter(|c| c.is_whitespace()));
    }
    out
}

/// The text of a file, or in which line it is none.
///
/// # Errors
///
/// The first octet that is no UTF-8, or a NUL, with its line.
pub(crate) fn text_of(path: &Path, octets: Vec<u8>) -> anyhow::Result<String> {
    let line = |at: usize| octets[..at].iter().filter(|octet| **octet == b'\n').count() + 1;
    if let Some(at) = octets.iter().position(|octet| *octet == 0) {
        anyhow::bail!("{}:{}: there is a NUL; write plain text", path.display(), line(at));
    }
    if let Err(e) = std::str::from_utf8(&octets) {
        let line = line(e.valid_up_to());
        anyhow::bail!("{}:{line}: this is not UTF-8; write plain text", path.display());
    }
    Ok(String::from_utf8(octets).expect("checked above"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_takes_is_a_name_of_an_interface() {
        for name in ["eth0", "tap7.100", "a", "fifteen-octets-", "ä"] {
            assert!(is_interface(name), "{name:?}");
        }
        let long = "x".repeat(70_000);
        for name in ["", ".", "..", "a/b", "a b", "a:b", "a\0b", "sixteen-octets-x", &long] {
            assert!(!is_interface(name), "{name:?}");
        }
    }

    #[test]
    fn a_long_word_is_shortened_and_the_rest_is_as_it_was() {
        let text = format!("a {}\nb", "x".repeat(70_000));
        let shown = shortened(&text);
        assert_eq!(shown, format!("a {}… (70000 octets)\nb", "x".repeat(60)));
        assert_eq!(shortened("as it  was\n"), "as it  was\n");
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_line() {
        let of = |octets: &[u8]| text_of(Path::new("f"), octets.to_vec());
        assert_eq!(of("ä\n".as_bytes()).unwrap(), "ä\n");
        let error = of(b"a\nb\n\xff").unwrap_err().to_string();
        assert_eq!(error, "f:3: this is not UTF-8; write plain text");
        let error = of(b"a\n\0").unwrap_err().to_string();
        assert_eq!(error, "f:2: there is a NUL; write plain text");
    }
}
