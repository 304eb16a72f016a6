//! weir
mod aggregate;
mod judge;
mod report;
mod table;
mod verdict;
fn main() {}
