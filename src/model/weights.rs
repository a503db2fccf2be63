//! Where each tensor of a checkpoint goes: rows of stacked matrices, words of vector buffers.
//!
//! Rows with a common input are stacked in one matrix so that one dispatch makes them all. A matrix is cut in parts of at most
//! 128 MiB (WebGPU's default binding) and where the element type changes. Rows are as wide as whole blocks of their type: what a
//! tensor does not fill stays zero, as all buffers are at first.

use crate::graph::{BufferId, Program, Role};
use crate::kernel::layout::{Part, WeightType};

/// Rows of one tensor that lie together in one part.
#[derive(Clone, Debug)]
pub struct Segment {
    /// First row, in the tensor.
    pub first_row: usize,
    /// Number of rows.
    pub n_rows: usize,
    /// The part they go to.
    pub part: Part,
    /// Their first row there.
    pub at_row: usize,
}

/// Where a tensor's numbers go.
#[derive(Clone, Debug)]
pub enum Place {
    /// Rows of matrices, in the parts' own element type.
    Rows(Vec<Segment>),
    /// f32 words from `at_word` on, the whole tensor `repeat` times.
    Words {
        /// Of f32 vectors, shared by many tensors.
        buffer: BufferId,
        /// First word.
        at_word: usize,
        /// How many times: the shared weight of q and k norm serves every head.
        repeat: usize,
    },
}

/// A tensor that the model needs.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its canonical (GGUF) name.
    pub name: String,
    /// Outermost first.
    pub shape: Vec<usize>,
    /// Where it goes.
    pub place: Place,
}

/// A stacked matrix `[rows, k]` in parts.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// In order of their rows.
    pub parts: Vec<Part>,
}

/// A tensor of a stack: canonical name, rows, element type.
pub struct TensorRows {
    /// Canonical name.
    pub name: String,
    /// Rows of its part of the stack.
    pub n_rows: usize,
    /// Element type in memory.
    pub ty: WeightType,
}

fn part(program: &mut Program, name: &str, ty: WeightType, n_rows: usize, k: usize) -> Part {
    let k = ty.padded(k);
    let data = program.buffer(name, ty.data_words(n_rows, k), Role::Weight);
    let scales = ty.scale_words(n_rows, k);
    let scales = (scales > 0).then(|| program.buffer(format!("{name} scales"), scales, Role::Weight));
    Part { ty, n_rows, k, data, scales }
}

impl Matrix {
    /// Stacks tensors of width `k`, one after the other.
    pub fn stack(program: &mut Program, wanted: &mut Vec<Wanted>, name: &str, tensors: &[TensorRows], k: usize) -> Self {
        // Runs of rows of one type, cut to the binding limit.
        let mut sizes: Vec<(WeightType, usize)> = Vec::new();
        for tensor in tensors {
            let mut left = tensor.n_rows;
            while left > 0 {
                let limit = tensor.ty.max_rows(tensor.ty.padded(k));
                match sizes.last_mut() {
                    Some((ty, rows)) if *ty == tensor.ty && *rows < limit => {
                        let taken = left.min(limit - *rows);
                        *rows += taken;
                        left -= taken;
                    }
                    _ => sizes.push((tensor.ty, 0)),
                }
            }
        }
        let parts: Vec<Part> = sizes.iter().map(|(ty, rows)| part(program, name, *ty, *rows, k)).collect();
        // Hand the rows out again, in the same order.
        let (mut ix, mut at_row) = (0, 0);
        for tensor in tensors {
            let (mut segments, mut first_row) = (Vec::new(), 0);
            while first_row < tensor.n_rows {
                if at_row == parts[ix].n_rows {
                    (ix, at_row) = (ix + 1, 0);
                }
                let n_rows = (tensor.n_rows - first_row).min(parts[ix].n_rows - at_row);
                segments.push(Segment { first_row, n_rows, part: parts[ix], at_row });
                (first_row, at_row) = (first_row + n_rows, at_row + n_rows);
            }
            wanted.push(Wanted { name: tensor.name.clone(), shape: vec![tensor.n_rows, k], place: Place::Rows(segments) });
        }
        Self { parts }
    }

    /// Stacks two tensors of the same size and type so that each part holds rows a..b of the first, then a..b of the second: a
    /// gated product finds both rows of a pair in one part. Rows up to `n_padded`, an even number, are there and zero.
    pub fn pairs(
        program: &mut Program,
        wanted: &mut Vec<Wanted>,
        name: &str,
        [first, second]: [TensorRows; 2],
        n_padded: usize,
        k: usize,
    ) -> Self {
        let (n, ty) = (first.n_rows, first.ty);
        let step = (ty.max_rows(ty.padded(k)) / 2).max(2) & !1;
        let (mut parts, mut places) = (Vec::new(), [Vec::new(), Vec::new()]);
        for first_row in (0..n_padded).step_by(step) {
            let n_rows = step.min(n_padded - first_row);
            let part = part(program, name, ty, 2 * n_rows, k);
            for (place, at_row) in places.iter_mut().zip([0, n_rows]) {
                place.push(Segment { first_row, n_rows: n_rows.min(n.saturating_sub(first_row)), part, at_row });
            }
            parts.push(part);
        }
        for (tensor, segments) in [first, second].into_iter().zip(places) {
            wanted.push(Wanted { name: tensor.name, shape: vec![n, k], place: Place::Rows(segments) });
        }
        Self { parts }
    }

    /// Parts with the first of their rows in the whole matrix.
    pub fn with_first_rows(&self) -> impl Iterator<Item = (usize, &Part)> {
        self.parts.iter().scan(0, |first, part| {
            let here = *first;
            *first += part.n_rows;
            Some((here, part))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::MAX_BINDING_WORDS;

    #[test]
    fn a_head_of_294_mib_is_cut_in_parts_within_the_binding_limit() {
        let (mut program, mut wanted) = (Program::default(), Vec::new());
        let rows = TensorRows { name: "output.weight".into(), n_rows: 50_257, ty: WeightType::F32 };
        let matrix = Matrix::stack(&mut program, &mut wanted, "head", &[rows], 1536);
        assert_eq!(matrix.parts.len(), 3);
        assert!(program.buffers.iter().all(|buffer| buffer.words <= MAX_BINDING_WORDS));
        let Place::Rows(segments) = &wanted[0].place else { unreachable!("rows") };
        assert_eq!(segments.iter().map(|segment| segment.n_rows).sum::<usize>(), 50_257);
        assert!(segments.iter().all(|segment| segment.first_row.is_multiple_of(2)));
    }

    #[test]
    fn tensors_of_two_types_land_in_two_parts() {
        let (mut program, mut wanted) = (Program::default(), Vec::new());
        let rows = |name: &str, ty| TensorRows { name: name.into(), n_rows: 64, ty };
        let tensors = [rows("q", WeightType::Q4_0), rows("k", WeightType::Q4_0), rows("v", WeightType::F16)];
        let matrix = Matrix::stack(&mut program, &mut wanted, "proj", &tensors, 64);
        assert_eq!(matrix.with_first_rows().map(|(first, part)| (first, part.n_rows)).collect::<Vec<_>>(), [(0, 128), (128, 64)]);
    }

    #[test]
    fn odd_sizes_are_padded_to_whole_blocks_and_tensors_keep_theirs() {
        let (mut program, mut wanted) = (Program::default(), Vec::new());
        let rows = |name: &str, n_rows| TensorRows { name: name.into(), n_rows, ty: WeightType::F16 };
        let down = Matrix::stack(&mut program, &mut wanted, "down", &[rows("down", 64)], 30);
        assert_eq!((down.parts[0].k, &wanted[0].shape[..]), (32, &[64, 30][..]));
        let pairs = Matrix::pairs(&mut program, &mut wanted, "gate_up", [rows("gate", 30), rows("up", 30)], 32, 64);
        assert_eq!((pairs.parts[0].n_rows, &wanted[1].shape[..]), (64, &[30, 64][..]));
        let Place::Rows(segments) = &wanted[2].place else { unreachable!("rows") };
        assert_eq!((segments[0].at_row, segments[0].n_rows), (32, 30));
    }
}
