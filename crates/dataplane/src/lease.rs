//! The heartbeat: a page that the agent and the guardian share. The agent renews it, and the
//! guardian watches it. The file is allocated before it is mapped.

use crate::error::{Context, Error};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;

/// Written by the agent: any value that changes with every beat. Zero before the first.
const BEAT: usize = 0;
/// Written by the agent: nonzero once it has closed cleanly.
const CLOSED: usize = 1;
/// Written by the guardian: number of reclaims.
const RECLAIMED: usize = 2;
/// Written by guardians: number of guardians so far. The last one watches.
const GUARDIANS: usize = 3;

/// The page, mapped.
#[derive(Debug)]
pub(crate) struct Lease {
    words: *const AtomicU64,
}

// SAFETY: the page is shared between processes anyway and touched by atomic operations only.
unsafe impl Send for Lease {}

impl Lease {
    /// Maps the page; the agent creates it, the guardian only finds it.
    pub(crate) fn open(path: &Path, create: bool) -> Result<Self, Error> {
        let action = || format!("mapping {}", path.display());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .open(path)
            .during(action)?;
        // A file with a hole would end a process that touches it (SIGBUS) when the file system is
        // full.
        // SAFETY: a live descriptor; no pointers.
        let ret = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, PAGE as libc::off_t) };
        if ret != 0 {
            return Err(io::Error::from_raw_os_error(ret)).during(action);
        }
        // SAFETY: a fresh shared mapping of a file that is PAGE long; the result is checked.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).during(action);
        }
        Ok(Self { words: base.cast() })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: `index` is one of the constants above: inside the page, aligned, and
        // every access is atomic.
        unsafe { &*self.words.add(index) }
    }

    /// Renews it.
    pub(crate) fn beat(&self, value: u64) {
        self.word(BEAT).store(value, Ordering::Release);
    }

    /// The last beat.
    pub(crate) fn last_beat(&self) -> u64 {
        self.word(BEAT).load(Ordering::Acquire)
    }

    /// Marks that the agent has closed cleanly.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.word(CLOSED).store(closed.into(), Ordering::Release);
    }

    /// Whether the agent has closed cleanly.
    pub(crate) fn is_closed(&self) -> bool {
        self.word(CLOSED).load(Ordering::Acquire) != 0
    }

    /// Notes that everything borrowed was taken back.
    pub(crate) fn count_reclaim(&self) {
        self.word(RECLAIMED).fetch_add(1, Ordering::AcqRel);
    }

    /// A guardian begins; returns its number.
    pub(crate) fn next_guardian(&self) -> u64 {
        self.word(GUARDIANS).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The guardian that watches.
    pub(crate) fn guardian(&self) -> u64 {
        self.word(GUARDIANS).load(Ordering::Acquire)
    }

    /// Number of reclaims.
    pub(crate) fn reclaims(&self) -> u64 {
        self.word(RECLAIMED).load(Ordering::Acquire)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`, unmapped once.
        unsafe { libc::munmap(self.words.cast_mut().cast(), PAGE) };
    }
}
