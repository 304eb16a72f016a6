//! All tests of the crate from outside, in one binary: linking one is much cheaper than linking each.
//! `scripts/run-tests` plays each module in a process of its own, and refuses a file that is not named here.
#![allow(clippy::disallowed_methods, reason = "tests read clocks and wait")]

mod common;

mod accounts;
mod budget;
mod eyeq;
mod follow;
mod handed;
mod host_floor;
mod journal;
mod libvirt;
mod moving;
mod nat;
mod plumbing;
mod population;
mod ports;
mod queues;
mod service;
mod survival;
mod translation;
mod tunnel;
mod unprivileged;
mod waits;
