//! The wasm surface: two classes, `Engine` (a model) and `Layer`, that web/worker.ts drives. Nothing is decided here: options come
//! in, pieces and numbers go out, errors become JavaScript `Error`s with the word of [`Error::code`] as their `code`.
//!
//! Every method that computes is async and does one step (a chunk of tokens, a token, a layer), so that its caller can go through
//! the event loop between two of them. A panic aborts: it is handed to the callback of [`on_panic`], because a future that has trapped
//! settles no promise.

use crate::format::{self, BoxFuture, Source};
use crate::session::generate::check_ids;
use crate::session::sampler::SamplerOptions;
use crate::session::{Device, DeviceChoice, FinishReason, GenerateOptions, Generation, KvType, LoadOptions, Model};
use crate::{Error, Result};
use js_sys::{Function, Object, Promise, Reflect, Uint8Array};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

mod host;
mod layer;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** Reads `n` bytes at an offset; fewer only at the end. Offsets do not fall. */
export type Read = (at: number, n: number) => Promise<Uint8Array>;
/** Bytes of weights in place, and in all. A throw ends the load. */
export type OnProgress = (doneBytes: number, totalBytes: number) => void;
export interface LoadOptions {
  device: 'auto' | 'gpu' | 'cpu'; context?: number | undefined; kv?: 'f16' | 'f32' | undefined; scores?: boolean | undefined;
}
export interface StartOptions {
  maxTokens: number; temperature?: number; topK?: number; topP?: number; minP?: number; repeatPenalty?: number; seed: number;
  stop: readonly string[];
}
export interface Prefilled { done: number; total: number }
/** `finish` comes with the last piece, `stop` with a stop text. */
export interface EnginePiece { text: string; ids: number[]; finish?: 'length' | 'eos' | 'stop' | 'context'; stop?: string }
export interface EngineInfo {
  device: string; deviceFeatures: string; deviceNote?: string; gpu: boolean; contextTokens: number; chunkTokens: number; vocab: number; deviceBytes: number;
}
"#;

#[wasm_bindgen]
extern "C" {
    /// Reads bytes of the model file.
    #[wasm_bindgen(typescript_type = "Read", extends = Function)]
    pub type Read;
    /// Hears how far a load has come.
    #[wasm_bindgen(typescript_type = "OnProgress", extends = Function)]
    pub type OnProgress;

    /// Options of [`Engine::load`].
    #[wasm_bindgen(typescript_type = "LoadOptions")]
    pub type JsLoadOptions;
    #[wasm_bindgen(method, getter)]
    fn device(this: &JsLoadOptions) -> String;
    #[wasm_bindgen(method, getter)]
    fn context(this: &JsLoadOptions) -> Option<f64>;
    #[wasm_bindgen(method, getter)]
    fn kv(this: &JsLoadOptions) -> Option<String>;
    #[wasm_bindgen(method, getter)]
    fn scores(this: &JsLoadOptions) -> Option<bool>;

    /// Options of [`Engine::start`].
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
    #[wasm_bindgen(method, getter)]
    fn seed(this: &StartOptions) -> f64;
    #[wasm_bindgen(method, getter)]
    fn stop(this: &StartOptions) -> Vec<String>;

    /// What [`Engine::prefill`] gives.
    #[wasm_bindgen(typescript_type = "Prefilled")]
    pub type Prefilled;
    /// What [`Engine::next`] gives.
    #[wasm_bindgen(typescript_type = "EnginePiece")]
    pub type EnginePiece;
    /// What [`Engine::info`] gives.
    #[wasm_bindgen(typescript_type = "EngineInfo")]
    pub type EngineInfo;
}

thread_local! {
    static ON_PANIC: RefCell<Option<Function>> = const { RefCell::new(None) };
}

/// Runs when the module is instantiated: panics are printed with their stack and told to the callback.
#[wasm_bindgen(start)]
pub fn start() {
    crate::gpu::set_host(Rc::new(host::Browser));
    std::panic::set_hook(Box::new(|panic| {
        console_error_panic_hook::hook(panic);
        ON_PANIC.with_borrow(|callback| {
            // The callback's own error has nowhere to go: this instance is ending.
            let _ = callback.as_ref().map(|callback| callback.call1(&JsValue::NULL, &panic.to_string().into()));
        });
    }));
}

/// Sets who is told of a panic. The instance must not be called again after one.
#[wasm_bindgen(js_name = onPanic)]
pub fn on_panic(callback: Function) {
    ON_PANIC.set(Some(callback));
}

/// A loaded model and at most one generation of it, or one list of ids whose logits are asked for.
#[wasm_bindgen]
pub struct Engine {
    model: Model,
    generation: Option<Generation>,
    logits: Option<Logits>,
}

/// Ids, and how many of them were read.
struct Logits {
    ids: Vec<u32>,
    n_read: usize,
    decode: bool,
}

#[wasm_bindgen]
impl Engine {
    /// Loads a GGUF model from a stream of `length` bytes, if that is known, named `name` in errors.
    pub async fn load(
        read: Read,
        length: Option<f64>,
        name: String,
        options: JsLoadOptions,
        on_progress: OnProgress,
    ) -> Result<Engine, JsValue> {
        let kv = match options.kv().as_deref() {
            None => KvType::default(),
            Some("f16") => KvType::F16,
            Some("f32") => KvType::F32,
            Some(other) => return Err(to_js(&Error::argument("kv", "f16 or f32", other))),
        };
        let options = LoadOptions {
            device: device_choice(&options.device()).map_err(|error| to_js(&error))?,
            context: options.context().map(|tokens| tokens as usize),
            kv,
            scores: options.scores().unwrap_or_default(),
            ..LoadOptions::default()
        };
        let source = Box::new(JsSource { read, name, len: length.map(|bytes| bytes as u64) });
        let model = async {
            let checkpoint = format::read(source).await?;
            let mut progress = |at: crate::session::Progress| {
                let told = on_progress.call2(&JsValue::NULL, &(at.done_bytes as f64).into(), &(at.total_bytes as f64).into());
                told.map(|_| ()).map_err(|_| Error::Aborted)
            };
            Model::load(checkpoint, options, &mut progress).await
        };
        Ok(Self { model: model.await.map_err(|error| to_js(&error))?, generation: None, logits: None })
    }

    /// Begins a text; what is left of the one before is dropped.
    pub fn start(&mut self, prompt: &str, options: &StartOptions) -> Result<(), JsValue> {
        let default = SamplerOptions::default();
        let sampler = SamplerOptions {
            temperature: options.temperature().map_or(default.temperature, |value| value as f32),
            top_k: options.top_k().map_or(default.top_k, |k| k as usize),
            top_p: options.top_p().map_or(default.top_p, |value| value as f32),
            min_p: options.min_p().map_or(default.min_p, |value| value as f32),
            repeat_penalty: options.repeat_penalty().map(|value| value as f32),
            seed: options.seed() as u64,
            ..default
        };
        let options = GenerateOptions {
            max_tokens: options.max_tokens() as usize,
            sampler,
            stop: options.stop(),
            ..GenerateOptions::default()
        };
        (self.generation, self.logits) = (None, None);
        self.generation = Some(Generation::new(&self.model, prompt, options).map_err(|error| to_js(&error))?);
        Ok(())
    }

    /// Reads one chunk of the prompt.
    pub async fn prefill(&mut self) -> Result<Prefilled, JsValue> {
        let Some(generation) = &mut self.generation else { return Err(not_started()) };
        let (done, total) = generation.prefill(&mut self.model).await.map_err(|error| to_js(&error))?;
        Ok(object(&[("done", done.into()), ("total", total.into())]).unchecked_into())
    }

    /// Generates a token, or the several that a GPU gives at once. The piece with `finish` is the last; the text of an answer that held nothing back ends with an empty one.
    pub async fn next(&mut self) -> Result<EnginePiece, JsValue> {
        let Some(generation) = &mut self.generation else { return Err(not_started()) };
        let piece = generation.next(&mut self.model).await.map_err(|error| to_js(&error))?.unwrap_or_default();
        let ids = piece.ids.iter().map(|id| JsValue::from(*id)).collect::<js_sys::Array>();
        let out = object(&[("text", piece.text.into()), ("ids", ids.into())]);
        if let Some(finish) = generation.finish() {
            set(&out, "finish", finish.word().into());
            if let FinishReason::Stop(text) = finish {
                set(&out, "stop", text.into());
            }
        }
        Ok(out.unchecked_into())
    }

    /// Begins a list of ids, nothing in front of it; with `decode`, token by token through the graph that generates.
    #[wasm_bindgen(js_name = startLogits)]
    pub fn start_logits(&mut self, ids: Vec<u32>, decode: bool) -> Result<(), JsValue> {
        (self.generation, self.logits) = (None, None);
        check_ids("ids", &ids, self.model.vocab()).map_err(|error| to_js(&error))?;
        if ids.len() > self.model.context() {
            return Err(to_js(&Error::ContextFull { needed: ids.len(), available: self.model.context() }));
        }
        self.model.reset();
        self.logits = Some(Logits { ids, n_read: 0, decode });
        Ok(())
    }

    /// Reads the next ids and gives the logits after each, row by row; none when all were read.
    pub async fn logits(&mut self) -> Result<Vec<f32>, JsValue> {
        let Some(Logits { ids, n_read, decode }) = &mut self.logits else { return Err(not_started()) };
        let (start, most) = (*n_read, if *decode { 1 } else { self.model.chunk() });
        let part = &ids[start..ids.len().min(start + most)];
        *n_read += part.len();
        let rows = match part {
            [] => Ok(Vec::new()),
            [id] if *decode => self.model.step(*id).await,
            part => self.model.score(part).await,
        };
        rows.map_err(|error| to_js(&error))
    }

    /// What is known of the model.
    pub fn info(&self) -> EngineInfo {
        let model = &self.model;
        let features = match model.device() {
            Device::Gpu(executor) => executor.gpu().features().to_string(),
            Device::Cpu(_) => String::new(),
        };
        let out = object(&[
            ("device", model.device_name().into()),
            ("deviceFeatures", features.into()),
            ("gpu", matches!(model.device(), Device::Gpu(_)).into()),
            ("contextTokens", model.context().into()),
            ("chunkTokens", model.max_chunk().into()),
            ("vocab", model.vocab().into()),
            ("deviceBytes", (model.bytes() as f64).into()),
        ]);
        if let Some(note) = model.device_note() {
            set(&out, "deviceNote", note.into());
        }
        out.unchecked_into()
    }
}

fn not_started() -> JsValue {
    to_js(&Error::argument("generation", "a call of start before", "none"))
}

fn device_choice(word: &str) -> Result<DeviceChoice> {
    match word {
        "auto" => Ok(DeviceChoice::Auto),
        "gpu" => Ok(DeviceChoice::Gpu),
        "cpu" => Ok(DeviceChoice::Cpu),
        other => Err(Error::argument("device", "auto, gpu or cpu", other)),
    }
}

/// A file behind a JavaScript function.
struct JsSource {
    read: Read,
    name: String,
    len: Option<u64>,
}

impl Source for JsSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        self.len
    }

    fn read<'a>(&'a mut self, at: u64, n: usize) -> BoxFuture<'a, Result<Vec<u8>>> {
        let promise = self.read.call2(&JsValue::NULL, &(at as f64).into(), &n.into());
        Box::pin(async move {
            let bytes = match promise {
                Ok(promise) => JsFuture::from(Promise::resolve(&promise)).await,
                Err(thrown) => Err(thrown),
            };
            let bytes = bytes.and_then(|bytes| bytes.dyn_into::<Uint8Array>());
            bytes.map(|bytes| bytes.to_vec()).map_err(|thrown| {
                let reason =
                    thrown.dyn_ref::<js_sys::Error>().map_or_else(|| format!("{thrown:?}"), |error| error.message().into());
                Error::Io { file: self.name.clone(), action: "read", reason }
            })
        })
    }
}

fn to_js(error: &Error) -> JsValue {
    let out = js_sys::Error::new(&error.to_string());
    set(&out, "code", error.code().into());
    out.into()
}

fn object(entries: &[(&str, JsValue)]) -> Object {
    let out = Object::new();
    for (name, value) in entries {
        set(&out, name, value.clone());
    }
    out
}

fn set(object: &Object, name: &str, value: JsValue) {
    let done = Reflect::set(object, &name.into(), &value);
    done.unwrap_or_else(|_| unreachable!("a plain object takes any property"));
}
