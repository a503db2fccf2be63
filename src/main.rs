//! kitfox on the command line.

fn main() {}
