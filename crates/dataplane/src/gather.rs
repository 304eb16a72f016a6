//! Reads many entries of a table in one call: the agent's side of `bpf/gather.bpf.c`.
//!
//! Problem   No call of the kernel looks up several keys of a hash at once. A call each, for 300
//!           pairs 200 times a second, was half of an agent's CPU.
//! Approach  A program of the same object looks them up. It is run as a test, on an empty frame: no
//!           other way to run a program is as old as the kernels we support and may touch values
//!           with a lock.
//! Promises  The result of a look-up of each key at some moment during the call.
//! Not here  Which keys, and how often: see `table`.

use crate::error::{Context, Error, checked};
use crate::intf::{ASKED, Plain, Told};
use crate::table::CounterArray;
use std::os::fd::{AsRawFd, OwnedFd};
use std::{fmt, io};

/// Place of the mark in `struct __sk_buff`, and the length of the struct up to it.
const MARK: usize = 8;
const CONTEXT: usize = 192;
/// The shortest frame that the kernel runs a program on.
const FRAME: [u8; 14] = [0; 14];

/// Looks up many keys of a table in one call.
pub(crate) trait LookUp<K, V>: fmt::Debug + Send + Sync {
    /// Gives each key's entry, or that there is none, to `each`, with the key's position.
    fn look_up(&mut self, keys: &[K], each: &mut dyn FnMut(usize, Option<V>)) -> Result<(), Error>;
}

/// One of the two programs, with the memory shared with it.
#[derive(Debug)]
pub(crate) struct Gather<K, V> {
    program: OwnedFd,
    asked: CounterArray<K>,
    told: CounterArray<Told<V>>,
}

impl<K: Plain, V: Plain> Gather<K, V> {
    /// `asked` and `told` are mapped from the maps that `program` goes by, of [`ASKED`] entries
    /// each.
    pub(crate) const fn new(
        program: OwnedFd,
        asked: CounterArray<K>,
        told: CounterArray<Told<V>>,
    ) -> Self {
        Self { program, asked, told }
    }

    /// How many of so many keys were answered.
    fn run(&self, count: u32) -> io::Result<u32> {
        let mut context = [0u8; CONTEXT];
        context[MARK..MARK + 4].copy_from_slice(&count.to_ne_bytes());
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: FRAME.as_ptr().cast(),
            data_size_in: FRAME.len() as u32,
            ctx_in: context.as_ptr().cast(),
            ctx_size_in: CONTEXT as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: a live descriptor; the options carry their size, and what they point to outlives
        // the call, which only reads it.
        let ret = unsafe {
            libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options)
        };
        checked(ret)?;
        Ok(options.retval)
    }
}

impl<K, V> LookUp<K, V> for Gather<K, V>
where
    K: Plain + fmt::Debug + Send,
    V: Plain + fmt::Debug + Send,
{
    fn look_up(&mut self, keys: &[K], each: &mut dyn FnMut(usize, Option<V>)) -> Result<(), Error> {
        for (chunk, keys) in keys.chunks(ASKED as usize).enumerate() {
            for (i, key) in keys.iter().enumerate() {
                self.asked.put(i, *key);
            }
            let answered = self.run(keys.len() as u32);
            let answered = answered.during(|| "gathering counters of pairs".to_owned())?;
            if answered as usize != keys.len() {
                // The rest is of an earlier run.
                let why = format!("{answered} of {} pairs were told of", keys.len());
                return Err(io::Error::other(why))
                    .during(|| "gathering counters of pairs".to_owned());
            }
            for i in 0..keys.len() {
                let told = self.told.get(i);
                each(chunk * ASKED as usize + i, (told.is_there != 0).then_some(told.entry));
            }
        }
        Ok(())
    }
}
