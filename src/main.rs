//! kitfox on the command line. Exit codes: 0 success, 1 a run that failed, 2 bad usage.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::Cli::read() {
        Ok(cli) => cli::run(cli),
        Err(error) => cli::usage(&error),
    }
}
