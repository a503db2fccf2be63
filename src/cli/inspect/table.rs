//! F or A as a table in long form: `layer,head,i,j,f` (or `a`), a line for each key j that row i sees; layers, heads and tokens count from 0.
//! What is not there is 0.

use super::matrix::{Selection, Which};
use crate::cli::new_file::NewFile;
use crate::cli::output::file_error;
use kitfox::model::Forgetting;
use kitfox::session::AttentionRow;
use kitfox::{Error, Result};
use std::io::Write;
use std::ops::Range;

/// Lines that a table has at most: some 400 MB of text.
const MOST_LINES: usize = 1 << 24;

/// The rows that a table has: one, or all.
pub fn rows(selection: &Selection, only: Option<usize>) -> Range<usize> {
    only.map_or(0..selection.n_tokens, |row| row..row + 1)
}

/// Whether the table has a size that can be meant.
///
/// # Errors
/// [`Error::Argument`] naming what makes it smaller.
pub fn check_size(selection: &Selection, only: Option<usize>) -> Result<()> {
    let keys = rows(selection, only).map(|i| i + 1).fold(0usize, usize::saturating_add);
    let n_lines = selection.n_pairs().saturating_mul(keys);
    if n_lines <= MOST_LINES {
        return Ok(());
    }
    let expected = format!("a table of at most {MOST_LINES} lines (fewer with --layer, --head, --row or --context)");
    Err(Error::argument("output", expected, format!("{n_lines} lines")))
}

/// The table of F.
pub fn write_f(new: &NewFile<'_>, forgetting: &Forgetting<'_>, selection: &Selection, only: Option<usize>) -> Result<()> {
    write(new, Which::F, |line| {
        for (layer, head) in selection.pairs() {
            for i in rows(selection, only) {
                let first = forgetting.first_key(i);
                for (j, f) in forgetting.row(layer, head, i).enumerate().skip(first) {
                    line([layer, head, i, j], f)?;
                }
            }
        }
        Ok(())
    })
}

/// The table of A, from its rows in any order.
pub fn write_a(new: &NewFile<'_>, mut rows: Vec<AttentionRow>) -> Result<()> {
    rows.sort_by_key(|row| (row.layer, row.head, row.i));
    write(new, Which::A, |line| {
        for AttentionRow { layer, head, i, first, weights } in &rows {
            for (j, weight) in (*first..).zip(weights) {
                line([*layer, *head, *i, j], *weight)?;
            }
        }
        Ok(())
    })
}

fn write(
    new: &NewFile<'_>,
    which: Which,
    lines: impl FnOnce(&mut dyn FnMut([usize; 4], f64) -> std::io::Result<()>) -> std::io::Result<()>,
) -> Result<()> {
    new.write(|out, name| {
        let written = writeln!(out, "layer,head,i,j,{}", which.name().to_lowercase())
            .and_then(|()| lines(&mut |[layer, head, i, j], value| writeln!(out, "{layer},{head},{i},{j},{:e}", value as f32)));
        written.map_err(|error| file_error(name, "write", &error))
    })
}
