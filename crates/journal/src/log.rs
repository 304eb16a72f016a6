//! The writing side: rows into chunks, chunks to a thread, chunks into files.
//!
//! Problem   A disk may be slow, full or gone, and floors depend on the driver's next turn.
//! Approach  The driver encodes into memory and hands chunks to a thread over a bounded queue. Without room the
//!           rows since the last chunk are dropped, and the next segment begins once there is room. A write that fails
//!           ends the journal.
//! Promises  The driver neither waits nor fails, unless it asked to wait ([`Pace::Waits`]). What was dropped and what
//!           was removed is counted.

use crate::frame::{self, Chain};
use crate::{Ending, Row, SUFFIX};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_core::host::{Call, HostLoop, Work};
use weir_units::Time;

/// A chunk of this many octets is handed over, also between heartbeats.
const CHUNK: usize = 16 << 10;
/// Chunks that may wait for the disk.
const QUEUE: usize = 256;
/// How long the end of a driver may wait for the disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// The bounds of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// A segment of this many octets is followed by another. One more chunk or snapshot may be in it.
    pub segment: usize,
    /// Segments kept; the oldest is removed for the next.
    pub segments: usize,
    /// What happens when the disk is slower than the driver.
    pub pace: Pace,
}

/// Whether a driver waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Rows are dropped instead: the driver has a datapath to see to.
    Drops,
    /// It waits: its time is virtual.
    Waits,
}

impl Options {
    /// 32 segments of 8 MiB.
    pub const fn new(pace: Pace) -> Self {
        Self { segment: 8 << 20, segments: 32, pace }
    }
}

/// What became of a journal so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Records handed to the disk.
    pub records: u64,
    /// Records dropped because the disk was slow, or had failed.
    pub dropped: u64,
    /// Segments removed because there were too many.
    pub removed: u64,
    /// Whether a write failed: nothing is recorded any more.
    pub ended: bool,
}

/// What driver and writer share.
#[derive(Debug, Default)]
struct Shared {
    waiting: AtomicUsize,
    removed: AtomicU64,
    failure: Mutex<Option<String>>,
}

/// Octets for the disk.
struct Chunk {
    /// The first one of a segment.
    begins: bool,
    octets: Vec<u8>,
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Log {
    options: Options,
    shared: Arc<Shared>,
    /// `None`: it has ended.
    queue: Option<SyncSender<Chunk>>,
    done: Receiver<()>,
    /// The segment as far as it was handed over; `None`: the next row begins one.
    sent: Option<Chain>,
    /// The same with what is in `chunk`.
    chain: Option<Chain>,
    /// Octets of the segment so far.
    length: usize,
    chunk: Vec<u8>,
    begins: bool,
    records: u64,
    dropped: u64,
    /// Of these, since the last segment ended.
    lost: u64,
    has_told: bool,
}

impl Log {
    /// A journal in the folder `dir`, which is made. Segments that are there stay, and count.
    ///
    /// # Errors
    /// The folder cannot be made or read, or no thread can be started.
    pub fn open_in(dir: &Path, options: Options) -> std::io::Result<Self> {
        fs::create_dir_all(dir)?;
        let numbers = numbers(dir)?;
        let shared = Arc::new(Shared::default());
        let (queue, chunks) = sync_channel(QUEUE);
        let (finished, done) = sync_channel(1);
        let writer = Writer {
            dir: dir.to_owned(),
            next: numbers.last().map_or(1, |last| last + 1),
            numbers,
            most: options.segments.max(1),
            shared: Arc::clone(&shared),
        };
        std::thread::Builder::new().name("journal".into()).spawn(move || {
            writer.write_all(&chunks);
            // Nobody may wait any more.
            let _ = finished.try_send(());
        })?;
        Ok(Self::new(options, shared, queue, done))
    }

    fn new(
        options: Options,
        shared: Arc<Shared>,
        queue: SyncSender<Chunk>,
        done: Receiver<()>,
    ) -> Self {
        Self {
            options,
            shared,
            queue: Some(queue),
            done,
            sent: None,
            chain: None,
            length: 0,
            chunk: Vec::new(),
            begins: false,
            records: 0,
            dropped: 0,
            lost: 0,
            has_told: false,
        }
    }

    /// What became of it so far.
    pub fn counts(&self) -> Counts {
        Counts {
            records: self.records,
            dropped: self.dropped,
            removed: self.shared.removed.load(Relaxed),
            ended: self.failure().is_some(),
        }
    }

    /// Why it ended, the first time that it is asked after it did.
    pub fn news(&mut self) -> Option<String> {
        let failure = self.failure().filter(|_| !self.has_told)?;
        self.has_told = true;
        Some(failure)
    }

    fn failure(&self) -> Option<String> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins a segment with the state of `host`, unless one has room.
    pub(crate) fn open(&mut self, host: &HostLoop) {
        let mut goes_on = false;
        if self.chain.is_some() && self.length + self.chunk.len() >= self.options.segment {
            self.append(&Row::<(), (), ()>::End(Ending::Full));
            self.hand_over();
            goes_on = self.chain.is_some();
            (self.chain, self.sent) = (None, None);
        }
        if self.chain.is_some() || !self.has_room() {
            return;
        }
        if self.lost > 0 && self.sent.is_some() {
            // The segment that rows are missing of is complete up to there.
            self.chain = self.sent;
            self.append(&Row::<(), (), ()>::End(Ending::Lost(self.lost)));
            self.hand_over();
        }
        (self.lost, self.begins, self.length) = (0, true, 0);
        self.chain = Some(frame::begin(&mut self.chunk));
        self.append(&Row::<_, (), ()>::Snapshot(host, goes_on));
    }

    pub(crate) fn call(&mut self, host: &HostLoop, now: Time, call: &Call<'_>) {
        self.open(host);
        self.append(&Row::<(), _, ()>::Call(now, call));
        if self.chunk.len() >= CHUNK || matches!(call, Call::Beat) {
            self.hand_over();
        }
    }

    pub(crate) fn work(&mut self, host: &HostLoop, now: Time, work: &Work) {
        self.append(&Row::<(), (), _>::Work(now, work, host.next_deadline()));
        if self.chunk.len() >= CHUNK {
            self.hand_over();
        }
    }

    /// Ends the segment; the next row begins another.
    pub(crate) fn close(&mut self) {
        if self.chain.is_some() {
            self.append(&Row::<(), (), ()>::End(Ending::Closed));
            self.hand_over();
            (self.chain, self.sent) = (None, None);
        }
    }

    fn append(&mut self, row: &impl Serialize) {
        match &mut self.chain {
            Some(chain) => frame::append(&mut self.chunk, chain, row),
            None => {
                self.dropped += 1;
                self.lost += 1;
            }
        }
    }

    fn has_room(&self) -> bool {
        let is_full = || self.shared.waiting.load(Relaxed) + 2 >= QUEUE;
        self.queue.is_some() && (self.options.pace == Pace::Waits || !is_full())
    }

    /// Gives the chunk to the disk, or drops it.
    fn hand_over(&mut self) {
        let (Some(chain), Some(queue)) = (self.chain, &self.queue) else { return };
        let octets = std::mem::take(&mut self.chunk);
        let length = octets.len();
        let chunk = Chunk { begins: std::mem::take(&mut self.begins), octets };
        let begun = chunk.begins;
        self.shared.waiting.fetch_add(1, Relaxed);
        let is_sent = match self.options.pace {
            Pace::Waits => queue.send(chunk).is_ok(),
            Pace::Drops => queue.try_send(chunk).is_ok(),
        };
        let before = if begun { 0 } else { self.sent.map_or(0, |sent| sent.records) };
        let rows = chain.records - before;
        if is_sent {
            self.records += rows;
            self.length += length;
            self.sent = self.chain;
            return;
        }
        self.shared.waiting.fetch_sub(1, Relaxed);
        self.dropped += rows;
        self.lost += rows;
        self.chain = None;
        if begun {
            self.sent = None;
        }
        if self.failure().is_some() {
            self.queue = None;
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A driver that panics leaves its journal open: the last record is what it could not handle.
        if std::thread::panicking() {
            self.hand_over();
        } else {
            self.close();
        }
        self.queue = None;
        match self.options.pace {
            Pace::Waits => drop(self.done.recv()),
            Pace::Drops => match self.done.recv_timeout(PATIENCE) {
                Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            },
        }
    }
}

/// The thread that waits for the disk.
struct Writer {
    dir: PathBuf,
    /// Segments that are there.
    numbers: BTreeSet<u64>,
    next: u64,
    most: usize,
    shared: Arc<Shared>,
}

impl Writer {
    fn write_all(mut self, chunks: &Receiver<Chunk>) {
        let mut file = None;
        for chunk in chunks {
            self.shared.waiting.fetch_sub(1, Relaxed);
            if let Err(e) = self.write(&mut file, &chunk) {
                let text = format!("{}: {e}", self.dir.display());
                *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                return;
            }
        }
    }

    fn write(&mut self, file: &mut Option<File>, chunk: &Chunk) -> std::io::Result<()> {
        if chunk.begins {
            while self.numbers.len() >= self.most {
                let oldest = self.numbers.pop_first().expect("there are some");
                fs::remove_file(path_of(&self.dir, oldest))?;
                self.shared.removed.fetch_add(1, Relaxed);
            }
            *file = Some(File::create_new(path_of(&self.dir, self.next))?);
            self.numbers.insert(self.next);
            self.next += 1;
        }
        let file = file.as_mut().expect("the first chunk begins a segment");
        file.write_all(&chunk.octets)
    }
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.{SUFFIX}"))
}

/// The numbers of the segments in a folder.
pub(crate) fn numbers(dir: &Path) -> std::io::Result<BTreeSet<u64>> {
    let number = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let is_segment = path.extension().is_some_and(|suffix| suffix == SUFFIX);
        path.file_stem()?.to_str()?.parse().ok().filter(|_| is_segment)
    };
    Ok(fs::read_dir(dir)?.filter_map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Place, drive, host};
    use crate::{Kept, replay, segments};

    #[test]
    fn segments_are_bounded_and_what_was_removed_is_counted() {
        let place = Place::new("bounds");
        let options = Options { segment: 20_000, segments: 3, pace: Pace::Waits };
        let log = Log::open_in(&place.0, options).expect("a folder");
        let mut kept = Kept::new(host(), Some(log));
        drive(&mut kept, 2000);
        let counts = kept.log().expect("there is one").counts();
        assert!(counts.dropped == 0 && !counts.ended && counts.records > 4000, "{counts:?}");
        drop(kept);
        let left = segments(&place.0).expect("written");
        assert_eq!(left.len(), 3);
        let octets: u64 = left.iter().map(|path| fs::metadata(path).expect("there").len()).sum();
        assert!(octets < 3 * (20_000 + 2 * CHUNK as u64), "{octets}");
        let mut said = 0;
        replay(&place.0, &mut |_, found| said += u64::from(found.lost == 0)).expect("it agrees");
        assert_eq!(said, 3);
    }

    #[test]
    fn a_journal_in_a_folder_with_segments_goes_on_after_them() {
        let place = Place::new("again");
        for lives in 1..=3 {
            let log = Log::open_in(&place.0, Options::new(Pace::Waits)).expect("a folder");
            drive(&mut Kept::new(host(), Some(log)), 10);
            assert_eq!(numbers(&place.0).expect("there"), (1..=lives).collect());
        }
        replay(&place.0, &mut |_, _| {}).expect("it agrees");
    }

    #[test]
    fn a_disk_that_fails_ends_the_journal_and_not_the_driver() {
        let place = Place::new("fails");
        let options = Options { segment: 1, segments: 3, pace: Pace::Waits };
        let log = Log::open_in(&place.0, options).expect("a folder");
        fs::remove_dir_all(&place.0).expect("it is ours");
        let (mut kept, mut alone) = (Kept::new(host(), Some(log)), Kept::new(host(), None));
        assert_eq!(drive(&mut kept, 100), drive(&mut alone, 100), "orders are the same");
        let log = kept.log().expect("there is one");
        log.done.recv().expect("the writer has failed");
        drive(&mut kept, 1000);
        let log = kept.log().expect("there is one");
        assert!(log.counts().ended && log.counts().dropped > 0, "{:?}", log.counts());
        assert!(log.news().is_some_and(|why| why.contains("fails")));
        assert_eq!(log.news(), None, "told once");
    }

    #[test]
    fn rows_that_a_slow_disk_has_no_room_for_are_counted_and_a_new_snapshot_follows() {
        let place = Place::new("slow");
        fs::create_dir_all(&place.0).expect("room");
        let (queue, chunks) = sync_channel(QUEUE);
        let (finished, done) = sync_channel(1);
        finished.try_send(()).expect("room for one");
        let shared = Arc::new(Shared::default());
        let options = Options::new(Pace::Drops);
        let log = Log::new(options, Arc::clone(&shared), queue, done);
        let mut kept = Kept::new(host(), Some(log));
        // Nobody takes the chunks.
        drive(&mut kept, 200_000);
        let dropped = kept.log().expect("there is one").counts().dropped;
        assert!(dropped > 0);
        let all: Vec<Chunk> = chunks.try_iter().collect();
        shared.waiting.store(0, Relaxed);
        drive(&mut kept, 100);
        drop(kept);
        let mut writer = Writer {
            dir: place.0.clone(),
            numbers: BTreeSet::new(),
            next: 1,
            most: 9,
            shared: Arc::default(),
        };
        let mut file = None;
        for chunk in all.into_iter().chain(chunks.try_iter()) {
            writer.write(&mut file, &chunk).expect("room");
        }
        drop(file);
        let mut lost = Vec::new();
        replay(&place.0, &mut |_, found| lost.push(found.lost)).expect("both agree");
        assert_eq!(lost, [dropped, 0]);
    }
}
