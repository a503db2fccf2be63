//! What a load would take, for JavaScript.

use super::options::JsLoadOptions;
use super::{JsSource, Read, object, set, to_js};
use crate::format;
use crate::session::load::plan::plan;
use wasm_bindgen::prelude::*;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
export interface EnginePlan {
  fileBytes: number; deviceBytes: number; kvBytesPool: number; contextTokens: number; chunkTokens: number; vocab: number;
  matrixTypes: string; hasTokenizer: boolean; reason?: string;
}
"#;

#[wasm_bindgen]
extern "C" {
    /// What [`plan_model`] gives.
    #[wasm_bindgen(typescript_type = "EnginePlan")]
    pub type EnginePlan;
}

/// Plans the load of a GGUF model from the header of a stream: on a GPU in `hardware`, or on anything else.
#[wasm_bindgen(js_name = planModel)]
pub async fn plan_model(
    read: Read,
    length: Option<f64>,
    name: String,
    options: JsLoadOptions,
    hardware: bool,
) -> Result<EnginePlan, JsValue> {
    let planned = async {
        let options = options.read()?;
        let source = Box::new(JsSource { read, reopen: None, name, len: length.map(|bytes| bytes as u64) });
        plan(&format::read(source).await?, &options, hardware)
    };
    let plan = planned.await.map_err(|error| to_js(&error))?;
    let out = object(&[
        ("fileBytes", (plan.file_bytes as f64).into()),
        ("deviceBytes", (plan.device_bytes as f64).into()),
        ("kvBytesPool", (plan.kv_bytes_pool as f64).into()),
        ("contextTokens", plan.context.into()),
        ("chunkTokens", plan.chunk.into()),
        ("vocab", plan.vocab.into()),
        ("matrixTypes", plan.matrix_types.into()),
        ("hasTokenizer", plan.has_tokenizer.into()),
    ]);
    if let Some(refusal) = plan.refusal {
        set(&out, "reason", refusal.to_string().into());
    }
    Ok(out.unchecked_into())
}
