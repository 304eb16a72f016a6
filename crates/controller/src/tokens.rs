//! Secrets of tokens: drawn, shown once, and known only by their hashes.
//!
//! A secret is 256 random bits, so a plain SHA-256 hides it: there is nothing to guess.

use crate::store::backup::hex;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};

/// What secrets begin with, so that scanners of repositories find them.
const PREFIX: &str = "weir_";

/// Draws a secret.
///
/// # Panics
///
/// The system has no random numbers.
pub fn draw() -> String {
    let mut octets = [0; 32];
    SystemRandom::new().fill(&mut octets).expect("the system has random numbers");
    format!("{PREFIX}{}", hex(&octets))
}

/// What the store keeps of a secret.
pub fn hash(secret: &str) -> String {
    hex(digest(&SHA256, secret.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_secrets_differ_and_a_hash_does_not_contain_its_secret() {
        let (a, b) = (draw(), draw());
        assert_ne!(a, b);
        assert_eq!(a.len(), PREFIX.len() + 64);
        assert_ne!(hash(&a), hash(&b));
        assert!(!hash(&a).contains(&a[PREFIX.len()..]));
    }
}
