//! The wasm class `Layer`: one layer of the encoder family, from plain matrices or from a file.

use super::options::device_choice;
use super::{JsSource, Read, object, set, to_js};
use crate::format::layer::{Layer, LayerConfig, LayerFloats, Mode};
use crate::format::layer_gguf;
use crate::session::{Device, ForgettingAttentionLayer, LayerOptions};
use crate::{Error, Result};
use js_sys::Float32Array;
use wasm_bindgen::prelude::*;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
export interface LayerWeights {
  hiddenSize: number; numHeads: number; mode: 'encoder' | 'decoder'; bitnet: boolean;
  qProj: Float32Array; kProj: Float32Array; vProj: Float32Array; fProj: Float32Array; fBias?: Float32Array | undefined;
  outProj: Float32Array;
}
export interface LayerOptions { device: 'auto' | 'gpu' | 'cpu'; maxTokens?: number | undefined }
export interface EngineLayerInfo {
  device: string; deviceNote?: string; gpu: boolean; hiddenSize: number; numHeads: number; mode: 'encoder' | 'decoder';
  bitnet: boolean; maxTokens: number; deviceBytes: number; matrixBytes: number; recoveries: number;
}
"#;

#[wasm_bindgen]
extern "C" {
    /// Matrices of [`EngineLayer::load`], and what they do not say.
    #[wasm_bindgen(typescript_type = "LayerWeights")]
    pub type LayerWeights;
    #[wasm_bindgen(method, getter, js_name = hiddenSize)]
    fn hidden_size(this: &LayerWeights) -> f64;
    #[wasm_bindgen(method, getter, js_name = numHeads)]
    fn num_heads(this: &LayerWeights) -> f64;
    #[wasm_bindgen(method, getter)]
    fn mode(this: &LayerWeights) -> String;
    #[wasm_bindgen(method, getter)]
    fn bitnet(this: &LayerWeights) -> bool;
    #[wasm_bindgen(method, getter, js_name = qProj)]
    fn q_proj(this: &LayerWeights) -> Float32Array;
    #[wasm_bindgen(method, getter, js_name = kProj)]
    fn k_proj(this: &LayerWeights) -> Float32Array;
    #[wasm_bindgen(method, getter, js_name = vProj)]
    fn v_proj(this: &LayerWeights) -> Float32Array;
    #[wasm_bindgen(method, getter, js_name = fProj)]
    fn f_proj(this: &LayerWeights) -> Float32Array;
    #[wasm_bindgen(method, getter, js_name = fBias)]
    fn f_bias(this: &LayerWeights) -> Option<Float32Array>;
    #[wasm_bindgen(method, getter, js_name = outProj)]
    fn out_proj(this: &LayerWeights) -> Float32Array;

    /// Options of a load.
    #[wasm_bindgen(typescript_type = "LayerOptions")]
    pub type JsLayerOptions;
    #[wasm_bindgen(method, getter)]
    fn device(this: &JsLayerOptions) -> String;
    #[wasm_bindgen(method, getter, js_name = maxTokens)]
    fn max_tokens(this: &JsLayerOptions) -> Option<f64>;

    /// What [`EngineLayer::info`] gives.
    #[wasm_bindgen(typescript_type = "EngineLayerInfo")]
    pub type LayerInfo;
}

/// A loaded layer.
#[wasm_bindgen(js_name = Layer)]
pub struct EngineLayer {
    layer: ForgettingAttentionLayer,
}

#[wasm_bindgen(js_class = Layer)]
impl EngineLayer {
    /// Loads plain matrices; with `bitnet` they are rounded to ternary ones.
    pub async fn load(weights: LayerWeights, options: JsLayerOptions) -> Result<EngineLayer, JsValue> {
        let load = async { on_device(&from_weights(&weights)?, &options).await };
        load.await.map_err(|error| to_js(&as_written(error)))
    }

    /// Loads a layer's GGUF file, `length` bytes if that is known, named `name` in errors.
    pub async fn read(read: Read, length: Option<f64>, name: String, options: JsLayerOptions) -> Result<EngineLayer, JsValue> {
        let source = Box::new(JsSource { read, reopen: None, name, len: length.map(|bytes| bytes as u64) });
        let load = async { on_device(&layer_gguf::read(source).await?, &options).await };
        load.await.map_err(|error| to_js(&as_written(error)))
    }

    /// [T, d] to [T, d], row by row.
    pub async fn run(&mut self, x: Vec<f32>) -> Result<Vec<f32>, JsValue> {
        self.layer.run(&x).await.map_err(|error| to_js(&as_written(error)))
    }

    /// What is known of the layer.
    pub fn info(&self) -> LayerInfo {
        let layer = &self.layer;
        let LayerConfig { hidden_size, num_heads, mode, bitnet } = *layer.config();
        let out = object(&[
            ("device", layer.device_name().into()),
            ("gpu", matches!(layer.device(), Device::Gpu(_)).into()),
            ("hiddenSize", hidden_size.into()),
            ("numHeads", num_heads.into()),
            ("mode", if mode == Mode::Encoder { "encoder" } else { "decoder" }.into()),
            ("bitnet", bitnet.into()),
            ("maxTokens", layer.max_tokens().into()),
            ("deviceBytes", (layer.bytes() as f64).into()),
            ("matrixBytes", (layer.matrix_bytes() as f64).into()),
            ("recoveries", (layer.recoveries() as f64).into()),
        ]);
        if let Some(note) = layer.device_note() {
            set(&out, "deviceNote", note.into());
        }
        out.unchecked_into()
    }
}

async fn on_device(layer: &Layer, options: &JsLayerOptions) -> Result<EngineLayer> {
    let device = device_choice(&options.device())?;
    let options = LayerOptions { device, max_tokens: options.max_tokens().map(|tokens| tokens as usize) };
    Ok(EngineLayer { layer: ForgettingAttentionLayer::load(layer, options).await? })
}

fn from_weights(weights: &LayerWeights) -> Result<Layer> {
    let mode = match weights.mode().as_str() {
        "encoder" => Mode::Encoder,
        "decoder" => Mode::Decoder,
        other => return Err(Error::argument("mode", "encoder or decoder", other)),
    };
    let config = LayerConfig {
        hidden_size: weights.hidden_size() as usize,
        num_heads: weights.num_heads() as usize,
        mode,
        bitnet: weights.bitnet(),
    };
    config.check()?;
    let f_bias = weights.f_bias().map(|bias| bias.to_vec());
    Layer::new(
        config,
        &LayerFloats {
            q_proj: &weights.q_proj().to_vec(),
            k_proj: &weights.k_proj().to_vec(),
            v_proj: &weights.v_proj().to_vec(),
            f_proj: &weights.f_proj().to_vec(),
            f_bias: f_bias.as_deref(),
            out_proj: &weights.out_proj().to_vec(),
        },
    )
}

/// Options and matrices under the names that JavaScript gives them.
const NAMES: [(&str, &str); 9] = [
    ("hidden_size", "hiddenSize"),
    ("num_heads", "numHeads"),
    ("max_tokens", "maxTokens"),
    ("f_proj.bias", "fBias"),
    ("q_proj", "qProj"),
    ("k_proj", "kProj"),
    ("v_proj", "vProj"),
    ("f_proj", "fProj"),
    ("out_proj", "outProj"),
];

/// An error of an argument, in the words in which the caller wrote it.
fn as_written(error: Error) -> Error {
    let renamed = |text: String| NAMES.iter().fold(text, |text, (ours, theirs)| text.replace(ours, theirs));
    match error {
        Error::Argument { option, expected, got } => {
            Error::Argument { option: renamed(option), expected: renamed(expected), got: renamed(got) }
        }
        Error::NotFinite { place, got } => Error::NotFinite { place: renamed(place), got },
        other => other,
    }
}
