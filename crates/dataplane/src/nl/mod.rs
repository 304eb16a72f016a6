//! Talks rtnetlink: links, qdiscs, classes, filters.

/// What the kernel refused, and why.
#[derive(Debug, thiserror::Error)]
#[error("{action}: {message}")]
pub struct Error {
    /// What was asked, and of which object.
    pub action: String,
    /// The kernel's words.
    pub message: String,
}
