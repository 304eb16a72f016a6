//! weir
mod judge;
mod verdict;
fn main() {}
