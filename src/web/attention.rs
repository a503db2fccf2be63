//! The attention weights of a text for the worker: a tile of its tokens a step, begun by [`Engine::start_gates`].

use super::{Engine, Reading, not_started, to_js};
use crate::session::AttentionRow;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
impl Engine {
    /// Reads the next ids and gives what each pays to those up to itself, `[layers, heads, Σ (i + 1)]`, row behind row; none when all were read.
    pub async fn attention(&mut self) -> Result<Vec<f32>, JsValue> {
        let Some(Reading { ids, n_read, .. }) = &mut self.reading else { return Err(not_started()) };
        let rows = *n_read..ids.len().min(*n_read + self.model.tile());
        *n_read = rows.end;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let before = |i: usize| i * (i + 1) / 2;
        let (n_layers, n_heads) = (self.model.config().n_layers, self.model.config().n_heads);
        let of_head = before(rows.end) - before(rows.start);
        let mut weights = vec![0.0; n_layers * n_heads * of_head];
        let mut seen = |row: AttentionRow| {
            let at = (row.layer * n_heads + row.head) * of_head + before(row.i) - before(rows.start) + row.first;
            weights[at..].iter_mut().zip(&row.weights).for_each(|(to, from)| *to = *from as f32);
            Ok(())
        };
        let read = self.model.attention(&ids[rows.clone()], rows.clone(), &mut seen, &mut |_| Ok(())).await;
        read.map_err(|error| to_js(&error))?;
        Ok(weights)
    }
}
