//! Unpacked rows and their products, against the definition of each type.

use super::*;
use crate::kernel::inputs;

#[test]
fn unpacked_rows_are_the_rows_arranged() {
    for ty in WeightType::ALL {
        for k in [32, 36, 44, 96, 512, 768].into_iter().filter(|k| k % ty.block() == 0) {
            let (data, scales) = layout::sample(ty, 3, k, 5);
            let matrix = Matrix { ty, k, data: &data, scales: &scales };
            let x = inputs::floats(6, k, 1.0);
            for row in 0..3 {
                let natural = layout::read_row(ty, k, &data, &scales, row);
                let mut unpacked = vec![f32::NAN; k];
                matrix.unpack_rows(row..row + 1, &mut unpacked);
                assert_eq!(unpacked, arrange(ty, &natural), "{ty:?} {k} {row}");
                let want: f64 = natural.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                let mut product = [f32::NAN];
                matrix.dot_rows(row, &arrange(ty, &x), &mut product);
                for got in [product[0], dot(&unpacked, &arrange(ty, &x))] {
                    assert!((f64::from(got) - want).abs() < 2e-6, "{ty:?} {k} {row}: {got} {want}");
                }
            }
        }
    }
}
