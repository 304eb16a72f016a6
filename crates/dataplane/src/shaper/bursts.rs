//! Sets whether the kernel's HTB sends by bursts, while a user needs it.
//!
//! Problem   `htb_hysteresis` is one setting of the whole machine. An emulation or measurement with
//!           HTB depends on the host's setting.
//! Approach  A value that sets it, and restores it when it is dropped.
//! Promises  It is restored after errors, panics and signals that are caught, but not after
//!           SIGKILL. It is not written if it has the wanted value already, so of two users at a
//!           time the first decides.
//! Not here  The right setting for a host with agents: decision 10, and the unit.

use std::path::Path;
use std::{fs, io};

const SETTING: &str = "/sys/module/sch_htb/parameters/htb_hysteresis";

/// HTB's setting for as long as this lives. The kernel's classes read the setting with each packet.
#[derive(Debug)]
pub struct SendsByBursts {
    /// `None` if nothing had to be changed.
    before: Option<&'static str>,
}

impl SendsByBursts {
    /// Sends a burst at a time, or a packet at a time as kernels do by default.
    ///
    /// # Errors
    ///
    /// The setting cannot be written (that needs root), or bursts are wanted and no HTB is loaded.
    pub fn set(wanted: bool) -> io::Result<Self> {
        let path = Path::new(SETTING);
        let is_set = match fs::read_to_string(path) {
            Ok(text) => text.trim() != "0",
            // Where the module is not loaded yet it comes with its default.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !wanted => false,
            Err(error) => return Err(error),
        };
        if is_set == wanted {
            return Ok(Self { before: None });
        }
        let word = |by_bursts| if by_bursts { "1" } else { "0" };
        fs::write(path, word(wanted))?;
        Ok(Self { before: Some(word(is_set)) })
    }
}

impl Drop for SendsByBursts {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = fs::write(SETTING, before);
        }
    }
}
