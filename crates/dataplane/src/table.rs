//! BPF maps as typed tables: reads into a reused buffer, and arrays read without a call.
//!
//! A table has room for the most entries that its VMs may have, and is mostly nearly empty. A full
//! read visits every bucket, which takes 80 µs for 16 384 of them, 200 times a second. So a nearly
//! empty table is read by its known keys (see [`Reading`]).

use crate::error::{Context, Error, checked};
use crate::gather::LookUp;
use crate::intf::Plain;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets that the kernel passes over in the time of one look-up by key, in a call of its own
/// (5 ns to 300 and more)
const SPARSE: usize = 64;
/// or in one call with others (5 ns to 100).
const SPARSE_GATHERED: usize = 20;

/// Interval at which a nearly empty table is read whole, which finds pairs without an event.
const SCAN_NS: u64 = 60_000_000;

/// Entries of a table to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// All there are: usually one call, which passes over every bucket the table has.
    Whole,
    /// Those of the last reading and those expected since: a call for each, or one for all of them
    /// where the table has a program for that. What is new besides is not found.
    Known,
}

/// A BPF hash map from `K` to `V`.
#[derive(Debug)]
pub struct Table<K, V> {
    name: &'static str,
    fd: OwnedFd,
    keys: Vec<K>,
    values: Vec<V>,
    /// How many of `keys` were there at the last reading or are expected since.
    known: usize,
    /// When the next whole reading is due, on the monotonic clock.
    scan_ns: u64,
    /// Looks up many keys in one call.
    gather: Option<Box<dyn LookUp<K, V>>>,
}

impl<K: Plain + PartialEq, V: Plain> Table<K, V> {
    /// Takes the map behind `fd`, of at most `capacity` entries. The caller has compared the sizes
    /// of its keys and values with those of `K` and `V`.
    pub(crate) fn new(name: &'static str, fd: OwnedFd, capacity: u32) -> Self {
        let capacity = capacity as usize;
        let (keys, values) = (vec![K::default(); capacity], vec![V::default(); capacity]);
        Self { name, fd, keys, values, known: 0, scan_ns: 0, gather: None }
    }

    /// The same table, read by keys in one call.
    pub(crate) fn gathered_by(self, gather: Box<dyn LookUp<K, V>>) -> Self {
        Self { gather: Some(gather), ..self }
    }

    /// Sets or replaces an entry.
    pub fn put(&self, key: K, value: V) -> Result<(), Error> {
        // SAFETY: key and value are plain and of the map's sizes, and outlive the call.
        let ret = unsafe {
            libbpf_sys::bpf_map_update_elem(
                self.fd.as_raw_fd(),
                (&raw const key).cast(),
                (&raw const value).cast(),
                0,
            )
        };
        checked(ret).map(drop).during(|| format!("writing to BPF map {}", self.name))
    }

    /// The entry, if there is one.
    pub fn get(&self, key: K) -> Result<Option<V>, Error> {
        let mut value = V::default();
        // SAFETY: as in `put`; the kernel writes one value of the map's size.
        let ret = unsafe {
            libbpf_sys::bpf_map_lookup_elem(
                self.fd.as_raw_fd(),
                (&raw const key).cast(),
                (&raw mut value).cast(),
            )
        };
        match checked(ret) {
            Ok(_) => Ok(Some(value)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).during(|| format!("reading BPF map {}", self.name)),
        }
    }

    /// Gives the entries of `keys` to `each`, but for those that there are not; in one call where
    /// the table has a program for that, else in one each. What the next reading finds known stays
    /// as it is.
    pub fn get_each(&mut self, keys: &[K], mut each: impl FnMut(K, V)) -> Result<(), Error> {
        if let Some(gather) = &mut self.gather
            && keys.len() > 1
        {
            let mut found = Vec::with_capacity(keys.len());
            let gathered = gather.look_up(keys, &mut |i, value| {
                found.extend(value.map(|value| (keys[i], value)));
            });
            if gathered.is_ok() {
                found.into_iter().for_each(|(key, value)| each(key, value));
                return Ok(());
            }
            // As in `look_up`.
            self.gather = None;
        }
        for key in keys {
            if let Some(value) = self.get(*key)? {
                each(*key, value);
            }
        }
        Ok(())
    }

    /// Deletes an entry; says whether there was one.
    pub fn delete(&self, key: K) -> Result<bool, Error> {
        // SAFETY: as in `put`.
        let ret = unsafe {
            libbpf_sys::bpf_map_delete_elem(self.fd.as_raw_fd(), (&raw const key).cast())
        };
        match checked(ret) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e).during(|| format!("deleting from BPF map {}", self.name)),
        }
    }

    /// All entries, in the map's own order, usually in one call. Entries that appear meanwhile may
    /// be missing: they are there the next time.
    pub fn read(&mut self) -> Result<impl ExactSizeIterator<Item = (K, V)> + '_, Error> {
        self.read_as(Reading::Whole)
    }

    /// The entries that `reading` says.
    pub fn read_as(
        &mut self,
        reading: Reading,
    ) -> Result<impl ExactSizeIterator<Item = (K, V)> + '_, Error> {
        match reading {
            Reading::Whole => self.scan()?,
            Reading::Known => self.look_up()?,
        }
        let (keys, values) = (&self.keys[..self.known], &self.values[..self.known]);
        Ok(keys.iter().copied().zip(values.iter().copied()))
    }

    /// What to read at `now_ns` (monotonic): the whole table if it is well filled or was not read
    /// whole for 60 ms. The caller does it.
    pub fn due(&mut self, now_ns: u64) -> Reading {
        if self.is_sparse() && now_ns < self.scan_ns {
            return Reading::Known;
        }
        self.scan_ns = now_ns + SCAN_NS;
        Reading::Whole
    }

    /// An entry has appeared: [`Reading::Known`] has it from now on.
    pub fn expect(&mut self, key: K) {
        // A table that is not sparse is read whole the next time.
        if self.is_sparse() && !self.keys[..self.known].contains(&key) {
            self.keys[self.known] = key;
            self.known += 1;
        }
    }

    const fn is_sparse(&self) -> bool {
        let per_key = if self.gather.is_some() { SPARSE_GATHERED } else { SPARSE };
        self.known * per_key < self.keys.len()
    }

    /// Reads the known keys, and forgets those that are gone.
    fn look_up(&mut self) -> Result<(), Error> {
        if let Some(gather) = &mut self.gather {
            let (values, mut gone) = (&mut self.values, Vec::new());
            let gathered = gather.look_up(&self.keys[..self.known], &mut |i, value| match value {
                Some(value) => values[i] = value,
                None => gone.push(i),
            });
            if gathered.is_ok() {
                // From behind, so that what takes a place has not to be looked at again.
                for i in gone.into_iter().rev() {
                    self.known -= 1;
                    self.keys.swap(i, self.known);
                    self.values.swap(i, self.known);
                }
                return Ok(());
            }
            // A kernel that does not run it: slower, and for good.
            self.gather = None;
        }
        let mut i = 0;
        while i < self.known {
            if let Some(value) = self.get(self.keys[i])? {
                self.values[i] = value;
                i += 1;
            } else {
                self.known -= 1;
                self.keys.swap(i, self.known);
            }
        }
        Ok(())
    }

    fn scan(&mut self) -> Result<(), Error> {
        let mut filled = 0;
        let mut cursor = 0u32;
        let mut first = true;
        while filled < self.keys.len() {
            let mut count = (self.keys.len() - filled) as u32;
            let start = if first { ptr::null_mut() } else { (&raw mut cursor).cast() };
            // SAFETY: both buffers have room for `count` more elements of the map's sizes; the
            // kernel writes at most that many and says how many. The cursor is a u32 for hashes.
            let ret = unsafe {
                libbpf_sys::bpf_map_lookup_batch(
                    self.fd.as_raw_fd(),
                    start,
                    (&raw mut cursor).cast(),
                    self.keys.as_mut_ptr().add(filled).cast(),
                    self.values.as_mut_ptr().add(filled).cast(),
                    &raw mut count,
                    ptr::null(),
                )
            };
            first = false;
            match checked(ret) {
                Ok(_) => filled += count as usize,
                // The end of the table: `count` entries came with it.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    filled += count as usize;
                    break;
                }
                Err(e) => return Err(e).during(|| format!("reading BPF map {}", self.name)),
            }
        }
        self.known = filled;
        Ok(())
    }
}

/// A BPF array of structs of 64-bit words, mapped into this process: counters that the kernel
/// writes, or levels that the agent writes.
#[derive(Debug)]
pub struct CounterArray<V> {
    base: *mut AtomicU64,
    octets: usize,
    entries: usize,
    of: PhantomData<V>,
}

// SAFETY: the memory is shared with the kernel anyway and touched by atomic operations only.
unsafe impl<V: Send> Send for CounterArray<V> {}
// SAFETY: the same.
unsafe impl<V: Send> Sync for CounterArray<V> {}

impl<V: Plain> CounterArray<V> {
    /// 64-bit words per entry; also proves that the entry is made of them.
    const WORDS: usize = {
        assert!(size_of::<V>().is_multiple_of(8), "entries are 64-bit words");
        size_of::<V>() / 8
    };

    /// Maps the array behind `fd`, which has `entries` entries of `V`'s size.
    pub(crate) fn map(fd: &OwnedFd, entries: u32) -> io::Result<Self> {
        let entries = entries as usize;
        let octets = (entries * size_of::<V>()).next_multiple_of(4096);
        // SAFETY: a fresh shared mapping of the map's own memory; the result is checked.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                octets,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), octets, entries, of: PhantomData })
    }

    fn words(&self, index: usize) -> &[AtomicU64] {
        assert!(index < self.entries, "no such entry");
        // SAFETY: within the mapping (index checked), aligned to 8 (page plus multiples of 8), and
        // every access by us and by the kernel is atomic.
        unsafe { std::slice::from_raw_parts(self.base.add(index * Self::WORDS), Self::WORDS) }
    }

    /// A copy of an entry. Each counter is whole; together they may be an instant apart.
    pub fn get(&self, index: usize) -> V {
        let mut value = V::default();
        let to = (&raw mut value).cast::<u64>();
        for (i, word) in self.words(index).iter().enumerate() {
            // SAFETY: `V` is plain and WORDS words long; unaligned, as a V may be less aligned.
            unsafe { to.add(i).write_unaligned(word.load(Ordering::Relaxed)) };
        }
        value
    }

    /// Sets one counter of an entry, which the agent alone writes.
    pub fn set(&self, index: usize, word: usize, value: u64) {
        self.words(index)[word].store(value, Ordering::Relaxed);
    }

    /// Takes one word of an entry that the kernel writes, and leaves zero.
    pub(crate) fn swap(&self, index: usize, word: usize) -> u64 {
        self.words(index)[word].swap(0, Ordering::Relaxed)
    }

    /// Sets an entry to zero. Only before a port uses it.
    pub(crate) fn clear(&self, index: usize) {
        self.put(index, V::default());
    }

    /// Sets an entry, in a map that this side writes. Each word is whole at any time; the kernel
    /// may see some of them earlier than others.
    pub fn put(&self, index: usize, value: V) {
        let from = (&raw const value).cast::<u64>();
        for (i, word) in self.words(index).iter().enumerate() {
            // SAFETY: `V` is plain and WORDS words long; unaligned, as a V may be less aligned.
            word.store(unsafe { from.add(i).read_unaligned() }, Ordering::Relaxed);
        }
    }

    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// An array in memory of our own, which no program finds.
    pub(crate) fn in_memory(entries: usize) -> Self {
        let octets = (entries * size_of::<V>()).next_multiple_of(4096);
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        // SAFETY: fresh memory of our own; the result is checked.
        let base = unsafe {
            let null = ptr::null_mut();
            libc::mmap(null, octets, protection, kind | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED, "there is memory for an array");
        Self { base: base.cast(), octets, entries, of: PhantomData }
    }
}

impl<V> Drop for CounterArray<V> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, unmapped once.
        unsafe { libc::munmap(self.base.cast(), self.octets) };
    }
}
