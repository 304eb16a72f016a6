//! Whether the kernel's HTB sends by bursts, for as long as somebody needs it.
//!
//! Problem   `htb_hysteresis` is one setting of the whole machine. Who emulates links with HTB, or measures
//!           it, depends on what the host was told.
//! Approach  A value that sets it, and sets it back when it goes.
//! Promises  It is back after errors and panics, and after signals that are caught; not after SIGKILL. It is not written if it
//!           is as wanted, so of two at a time the first decides.
//! Not here  What a host that runs agents should have: decision 10, and its unit.

use std::path::Path;
use std::{fs, io};

const SETTING: &str = "/sys/module/sch_htb/parameters/htb_hysteresis";

/// HTB sends as somebody wanted, as long as this lives. The kernel's classes look at the setting with each packet.
#[derive(Debug)]
pub struct SendsByBursts {
    /// `None` if nothing had to be changed.
    before: Option<&'static str>,
}

impl SendsByBursts {
    /// A burst at a time, or a packet at a time as kernels do if nobody asks otherwise.
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
