//! Virtual time, links without packets, real hosts: where laws are fitted first.
//!
//! Problem   A law that meets the kernel before it is understood is tuned to the kernel.
//! Approach  Octets are real numbers. Each step of 1 ms every pair sends what its limiter allows; a
//!           link that is asked for more fills its buffer, then loses the excess, shared among its
//!           pairs by a stated rule; whole segments of loss are shown to the receiver's agent as a
//!           gap counter would show them. Control messages take time and can be lost.
//! Promises  Same world, same seed, same result. The agents are those of the lab and of real hosts.
//! Not here  TCP: a pair always sends all it may (or its stated demand), so nothing of TCP's own
//!           reaction to loss, time-outs or its unfairness is seen here.
//! Source    The laws' constants are compared with ElasticSwitch Fig. 2 and Table 2.
//!
//! [`World`] is ElasticSwitch's: one shared link, limiters set once in a while. EyeQ counts in tenths of
//! milliseconds and lives off the links of hosts, in and out: its world is [`eyeq`].

pub mod eyeq;
mod hosts;
pub mod meters;
mod random;
mod world;

pub use world::{Loss, Outcome, PairSpec, World};
