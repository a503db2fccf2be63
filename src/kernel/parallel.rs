//! Work on every core, for the `fast` code of the kernels. The one place that knows that wasm has a single thread (the page would
//! need cross-origin isolation for more).

use std::ops::Range;

/// `f` on one of the threads that the other functions here use. Called from any other thread, each of them would wake the threads
/// and sleep until they are done: dozens of times a token.
pub fn among_workers<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    #[cfg(not(target_arch = "wasm32"))]
    return rayon::scope(|_| f());
    #[cfg(target_arch = "wasm32")]
    f()
}

/// `f` of the ranges of `per` (the last may be shorter) that make up `0..n`, in order; in parallel where there are threads.
pub fn map_ranges<T: Send>(n: usize, per: usize, f: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let range = |ix: usize| ix * per..((ix + 1) * per).min(n);
    #[cfg(not(target_arch = "wasm32"))]
    {
        use rayon::iter::{IntoParallelIterator, ParallelIterator};
        (0..n.div_ceil(per)).into_par_iter().map(|ix| f(range(ix))).collect()
    }
    #[cfg(target_arch = "wasm32")]
    (0..n.div_ceil(per)).map(|ix| f(range(ix))).collect()
}

/// `f` of each `per` neighbours of `data` (the last may be fewer) and the index of their first, in parallel where there are threads.
pub fn for_chunks<T: Send>(data: &mut [T], per: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    #[cfg(not(target_arch = "wasm32"))]
    {
        use rayon::iter::{IndexedParallelIterator, ParallelIterator};
        use rayon::slice::ParallelSliceMut;
        data.par_chunks_mut(per).enumerate().for_each(|(ix, chunk)| f(ix * per, chunk));
    }
    #[cfg(target_arch = "wasm32")]
    data.chunks_mut(per).enumerate().for_each(|(ix, chunk)| f(ix * per, chunk));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_everything_in_order() {
        for (n, per) in [(0, 3), (1, 3), (3, 3), (10, 3)] {
            let all: Vec<usize> = map_ranges(n, per, |range| range.collect::<Vec<_>>()).concat();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
            let mut chunks = vec![0; n];
            for_chunks(&mut chunks, per, |first, chunk| {
                chunk.iter_mut().enumerate().for_each(|(at, number)| *number = first + at);
            });
            assert_eq!(chunks, all);
        }
    }
}
