//! weir
mod aggregate;
mod experiment;
mod judge;
mod live;
mod report;
mod table;
mod verdict;
mod world;
fn main() {}
