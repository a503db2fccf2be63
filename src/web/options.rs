//! Options as JavaScript has them, and what they mean to a session. Names are those of the package's own; ranges are the session's.

use crate::session::bench::BenchOptions;
use crate::session::sampler::SamplerOptions;
use crate::session::{DeviceChoice, GenerateOptions, KvType, LoadOptions, Overflow, Pruning};
use crate::{Error, Result};
use wasm_bindgen::prelude::*;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
export interface LoadOptions {
  device: 'auto' | 'gpu' | 'cpu'; context?: number; chunk?: number; kv?: 'f16' | 'f32'; prune?: 'off' | number;
  overflow?: 'error' | 'slide'; baseline?: boolean; scores?: boolean; check?: boolean;
}
export interface StartOptions {
  maxTokens: number; temperature?: number; topK?: number; topP?: number; minP?: number; repeatPenalty?: number; repeatLastN?: number;
  seed: number; stop: readonly string[]; ignoreEos?: boolean; inFlight?: number; logprobs?: boolean;
  biasedIds?: Uint32Array; biases?: Float32Array;
}
export interface BenchOptions { context?: number; n?: number; runs?: number; inFlight?: number; floor?: boolean; text?: string }
"#;

#[wasm_bindgen]
extern "C" {
    /// Options of [`super::Engine::load`].
    #[wasm_bindgen(typescript_type = "LoadOptions")]
    pub type JsLoadOptions;
    #[wasm_bindgen(method, getter)]
    fn device(this: &JsLoadOptions) -> String;
    #[wasm_bindgen(method, getter)]
    fn context(this: &JsLoadOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter)]
    fn chunk(this: &JsLoadOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter)]
    fn kv(this: &JsLoadOptions) -> Option<String>;
    #[wasm_bindgen(method, getter)]
    fn prune(this: &JsLoadOptions) -> JsValue;
    #[wasm_bindgen(method, getter)]
    fn overflow(this: &JsLoadOptions) -> Option<String>;
    #[wasm_bindgen(method, getter)]
    fn baseline(this: &JsLoadOptions) -> Option<bool>;
    #[wasm_bindgen(method, getter)]
    fn scores(this: &JsLoadOptions) -> Option<bool>;
    #[wasm_bindgen(method, getter)]
    fn check(this: &JsLoadOptions) -> Option<bool>;

    /// Options of [`super::Engine::start`].
    #[wasm_bindgen(typescript_type = "StartOptions")]
    pub type StartOptions;
    #[wasm_bindgen(method, getter, js_name = maxTokens)]
    fn max_tokens(this: &StartOptions) -> f64;
    #[wasm_bindgen(method, getter)]
    fn temperature(this: &StartOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter, js_name = topK)]
    fn top_k(this: &StartOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter, js_name = topP)]
    fn top_p(this: &StartOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter, js_name = minP)]
    fn min_p(this: &StartOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter, js_name = repeatPenalty)]
    fn repeat_penalty(this: &StartOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter, js_name = repeatLastN)]
    fn repeat_last_n(this: &StartOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter)]
    fn seed(this: &StartOptions) -> f64;
    #[wasm_bindgen(method, getter)]
    fn stop(this: &StartOptions) -> Vec<String>;
    #[wasm_bindgen(method, getter, js_name = ignoreEos)]
    fn ignore_eos(this: &StartOptions) -> Option<bool>;
    #[wasm_bindgen(method, getter, js_name = inFlight)]
    fn in_flight(this: &StartOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter)]
    fn logprobs(this: &StartOptions) -> Option<bool>;
    #[wasm_bindgen(method, getter, js_name = biasedIds)]
    fn biased_ids(this: &StartOptions) -> Option<Vec<u32>>;
    #[wasm_bindgen(method, getter)]
    fn biases(this: &StartOptions) -> Option<Vec<f32>>;

    /// Options of [`super::Engine::start_bench`].
    #[wasm_bindgen(typescript_type = "BenchOptions")]
    pub type JsBenchOptions;
    #[wasm_bindgen(method, getter)]
    fn context(this: &JsBenchOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter)]
    fn n(this: &JsBenchOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter)]
    fn runs(this: &JsBenchOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter, js_name = inFlight)]
    fn in_flight(this: &JsBenchOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter)]
    fn floor(this: &JsBenchOptions) -> Option<bool>;
    #[wasm_bindgen(method, getter)]
    fn text(this: &JsBenchOptions) -> Option<String>;
}

fn count(number: Option<f64>) -> Option<usize> {
    number.map(|n| n as usize)
}

impl JsLoadOptions {
    /// Whether each dispatch is to be compared with its twin.
    pub(super) fn is_watched(&self) -> bool {
        self.check().unwrap_or_default()
    }

    /// # Errors
    /// [`Error::Argument`] for a word that is none of an option's.
    pub(super) fn read(&self) -> Result<LoadOptions> {
        let kv = match self.kv().as_deref() {
            None => KvType::default(),
            Some("f16") => KvType::F16,
            Some("f32") => KvType::F32,
            Some(other) => return Err(Error::argument("kv", "f16 or f32", other)),
        };
        let overflow = match self.overflow().as_deref() {
            None => Overflow::default(),
            Some("error") => Overflow::Error,
            Some("slide") => Overflow::Slide,
            Some(other) => return Err(Error::argument("overflow", "error or slide", other)),
        };
        let prune = self.prune();
        let prune = match (prune.as_f64(), prune.as_string().as_deref()) {
            _ if prune.is_undefined() => Pruning::Model,
            (Some(epsilon), _) => Pruning::Epsilon(epsilon),
            (None, Some("off")) => Pruning::Off,
            (None, other) => {
                return Err(Error::argument("prune", "off, or a number between 0 and 1", other.unwrap_or("neither")));
            }
        };
        Ok(LoadOptions {
            device: device_choice(&self.device())?,
            baseline: self.baseline().unwrap_or_default(),
            context: count(self.context()),
            kv,
            scores: self.scores().unwrap_or_default(),
            chunk: count(self.chunk()),
            prune,
            overflow,
            gates: None,
        })
    }
}

impl StartOptions {
    pub(super) fn read(&self) -> GenerateOptions {
        let default = SamplerOptions::default();
        let sampler = SamplerOptions {
            temperature: self.temperature().map_or(default.temperature, |value| value as f32),
            top_k: count(self.top_k()).unwrap_or(default.top_k),
            top_p: self.top_p().map_or(default.top_p, |value| value as f32),
            min_p: self.min_p().map_or(default.min_p, |value| value as f32),
            repeat_penalty: self.repeat_penalty().map(|value| value as f32),
            repeat_last_n: count(self.repeat_last_n()).unwrap_or(default.repeat_last_n),
            seed: self.seed() as u64,
            logit_bias: self.biased_ids().unwrap_or_default().into_iter().zip(self.biases().unwrap_or_default()).collect(),
        };
        GenerateOptions {
            max_tokens: self.max_tokens() as usize,
            sampler,
            stop: self.stop(),
            ignore_eos: self.ignore_eos().unwrap_or_default(),
            in_flight: count(self.in_flight()),
            logprobs: self.logprobs().unwrap_or_default(),
        }
    }
}

impl JsBenchOptions {
    pub(super) fn read(&self) -> BenchOptions {
        let default = BenchOptions::default();
        BenchOptions {
            context: count(self.context()).unwrap_or(default.context),
            n: count(self.n()).unwrap_or(default.n),
            runs: count(self.runs()).unwrap_or(default.runs),
            in_flight: count(self.in_flight()),
            floor: self.floor().unwrap_or(default.floor),
            text: self.text(),
        }
    }
}

/// # Errors
/// [`Error::Argument`] for a word that names no device.
pub(super) fn device_choice(word: &str) -> Result<DeviceChoice> {
    match word {
        "auto" => Ok(DeviceChoice::Auto),
        "gpu" => Ok(DeviceChoice::Gpu),
        "cpu" => Ok(DeviceChoice::Cpu),
        other => Err(Error::argument("device", "auto, gpu or cpu", other)),
    }
}
