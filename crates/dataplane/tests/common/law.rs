//! A law by itself in the kernel, as `bpf/*_law.bpf.c` are made: for tests that hold C and Rust
//! equal.

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};

/// The object, aligned as the ELF reader wants it.
#[repr(align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

/// Inputs of one call at most; as in the programs.
pub(crate) const STEPS: usize = 65_536;

/// A loaded object of one program.
pub(crate) struct Law(Object);

impl Law {
    pub(crate) fn load(object: &[u8]) -> Self {
        let open = ObjectBuilder::default().open_memory(object).unwrap();
        Self(open.load().expect("this test loads BPF programs: run it as root"))
    }

    fn map(&self, name: &str) -> impl MapCore {
        self.0.maps().find(|m| m.name() == name).expect("the object has it")
    }

    /// The outputs of so many inputs, one after the other, and what one took, in nanoseconds.
    pub(crate) fn run(&self, count: usize, inputs: &[u8]) -> (Vec<Vec<u8>>, u128) {
        assert!(count <= STEPS);
        let (wanted, count) = (count, count as u32);
        let keys: Vec<u8> = (0..count).flat_map(u32::to_ne_bytes).collect();
        let any = MapFlags::ANY;
        self.map("law_inputs").update_batch(&keys, inputs, count, any, any).unwrap();
        let zero = 0u32.to_ne_bytes();
        self.map("law_next").update(&zero, &zero, any).unwrap();
        let program = self.0.progs_mut().next().expect("the object has one program");
        let input =
            ProgramInput { data_in: Some(&[0; 64]), repeat: count, ..ProgramInput::default() };
        let ran = program.test_run(input).unwrap();
        assert_eq!(ran.return_value, 0, "the last run had no input");
        let next = self.map("law_next").lookup(&zero, any).unwrap().expect("one entry");
        assert_eq!(next, count.to_ne_bytes(), "every run takes one input");
        let outputs = self.map("law_outputs");
        let outputs = outputs.lookup_batch(count, any, any).unwrap().take(wanted);
        (outputs.map(|(_, value)| value).collect(), ran.duration.as_nanos())
    }
}
