//! Names of things as small integers; the text that people wrote lives in `weir-model`.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A virtual machine, pod or container: whatever has one port on one host.
    VmId, "vm"
);
id!(
    /// A host that runs an agent.
    HostId, "host"
);
id!(
    /// A tenant. VMs of one tenant share a hose; others do not.
    TenantId, "tenant"
);
id!(
    /// A hose that only some VMs of a tenant share, beside the one that all of them share.
    HoseId, "hose"
);
id!(
    /// One of the ways to another host that a host can tell apart, counted from 0. Which links it has,
    /// the host does not know.
    PathId, "path"
);

/// All traffic from one VM to another, whatever its flows: what a limiter limits (ElasticSwitch §3).
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct PairId {
    /// The sending VM.
    pub src: VmId,
    /// The receiving VM.
    pub dst: VmId,
}

impl PairId {
    /// The pair `src` → `dst`.
    pub const fn new(src: VmId, dst: VmId) -> Self {
        Self { src, dst }
    }

    /// The opposite direction, where the acknowledgements flow.
    pub const fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src }
    }
}

impl fmt::Display for PairId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}→{}", self.src, self.dst)
    }
}
