//! One command switches an agent between enforcing and observing.
//!
//! Problem   What an agent does has to be what its file says, also after its next start.
//! Approach  The file gets the mode, and the running agent is asked to read it. If that refuses,
//!           the file gets back what it had.
//! Promises  Nothing else of the file changes; a reader finds the old text or the new one, whole.

use crate::client;
use anyhow::{Context, Result, bail};
use std::path::Path;
use weir_model::agent::{AgentConfig, Mode};
use weir_model::status::{Reply, Request};

/// Writes `mode` into `agent.toml` at `config` and makes its agent take it up. Says what became of
/// it.
///
/// # Errors
///
/// A file that is none, or an agent that does not answer or refuses: the file is then as it was.
pub fn set_mode(config: &Path, mode: Mode) -> Result<String> {
    let (file, text) = crate::config::read_with_text(config)?;
    // A host that has not joined yet has no such file.
    let said = crate::follow::home(&file).and_then(|home| home.kept().ok()?.mode);
    if said.is_some() {
        bail!(
            "{}: the controller decides for this host: `weir host mode` on a machine with client.toml",
            config.display()
        );
    }
    let next = with_mode(&text, mode);
    let now = toml::from_str::<AgentConfig>(&next)
        .with_context(|| format!("{}: the mode could not be written", config.display()))?;
    assert_eq!(now.mode, mode, "the line that was written is read");
    write(config, &next)?;
    let socket = client::socket_path(&file.run_dir, &file.instance);
    match client::ask(&socket, &Request::Reload) {
        Ok(Reply::Done { message }) => Ok(message),
        Ok(Reply::Error { message }) => {
            write(config, &text)?;
            bail!("{message}");
        }
        Ok(_) => bail!("{}: the agent is of a version without modes; restart it", socket.display()),
        Err(why) => {
            write(config, &text)?;
            Err(why)
        }
    }
}

fn write(config: &Path, text: &str) -> Result<()> {
    let action = || format!("{}: cannot be written", config.display());
    let beside = config.with_extension("toml.new");
    std::fs::write(&beside, text).with_context(action)?;
    let like = std::fs::metadata(config).with_context(action)?.permissions();
    std::fs::set_permissions(&beside, like).with_context(action)?;
    std::fs::rename(&beside, config).with_context(action)
}

/// The text with the mode in the place of the one that it has, or as its first line.
fn with_mode(text: &str, mode: Mode) -> String {
    let name = match mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
    };
    let line = format!("mode = \"{name}\"");
    // A field of the file's own stands before its first table.
    let is_table = |line: &str| line.trim_start().starts_with('[');
    let is_mode = |line: &str| {
        line.split_once('=').is_some_and(|(key, _)| matches!(key.trim(), "mode" | "\"mode\""))
    };
    let at = text.lines().take_while(|line| !is_table(line)).position(is_mode);
    let mut lines: Vec<&str> = text.lines().collect();
    match at {
        Some(at) => lines[at] = &line,
        None => lines.insert(0, &line),
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_written_where_it_was_or_first_and_nothing_else_changes() {
        let text = "# mine\ninstance = \"a\"\n[[vm]]\nmode = 3\n";
        let observing = "mode = \"observe\"\n# mine\ninstance = \"a\"\n[[vm]]\nmode = 3\n";
        assert_eq!(with_mode(text, Mode::Observe), observing);
        let enforcing = observing.replace("observe", "enforce");
        assert_eq!(with_mode(observing, Mode::Enforce), enforcing);
        assert_eq!(with_mode(&enforcing, Mode::Observe), observing);
    }
}
