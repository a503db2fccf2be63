//! The wasm surface: two classes, `Engine` (a model) and `Layer`, that web/worker.ts drives. Nothing is decided here: options come
//! in, pieces and numbers go out, errors become JavaScript `Error`s with the word of [`Error::code`] as their `code`.
//!
//! The only room that names JavaScript. It may name every room but the command line; it never names wgpu, opens no file (bytes come from
//! functions of the page), and keeps nothing that `session` does not know.
//!
//! Every method that computes is async and does one step (a chunk of tokens, a token, a layer), so that its caller can go through
//! the event loop between two of them. A panic aborts: it is handed to the callback of [`on_panic`], because a future that has trapped
//! settles no promise.

use crate::format::{self, BoxFuture, Source};
use crate::session::bench::{Bench, busy};
use crate::session::generate::check_ids;
use crate::session::{Device, FinishReason, Generation, Model, Scoring, Sequences};
use crate::text::token_texts;
use crate::{Error, Result};
use js_sys::{Array, Function, Object, Promise, Reflect, Uint8Array};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_time::{Duration, Instant};

mod attention;
mod host;
mod layer;
mod options;
mod plan;
mod session;
mod words;

use options::{JsBenchOptions, JsLoadOptions, StartOptions};

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** Reads `n` bytes at an offset; fewer only at the end. Offsets do not fall. */
export type Read = (at: number, n: number) => Promise<Uint8Array>;
/** Opens the file again, to be read from its start: the GPU's device was lost, and what it held. */
export type Reopen = () => Promise<void>;
/** Bytes of weights in place, and in all. A throw ends the load. */
export type OnProgress = (doneBytes: number, totalBytes: number) => void;
export interface Prefilled { done: number; total: number }
/** `finish` comes with the last piece, `stop` with a stop text, `logprobs` if they were asked for; the bytes as far as they are known. */
export interface EnginePiece {
  text: string; ids: number[]; logprobs?: number[]; finish?: 'length' | 'eos' | 'stop' | 'context'; stop?: string; kvBytesLive: number; kvBytesFreed: number;
}
/** What the text that has ended took; `cpuUsPerToken` if it had tokens. */
export interface Cost { kvBytesLive: number; kvBytesFreed: number; cpuUsPerToken?: number }
/** All but log f: `u` where something bounds the scores, `window` where the model has one, `prune` where pages die by it. */
export interface EngineGates {
  ids: number[]; tokens: string[]; completedBy: number[]; layers: number; heads: number; kvHeads: number; u?: Float32Array; window?: number;
  prune?: number;
}
/** `report` comes with the last phase: a JSON object. */
export interface Measured { done: number; total: number; report?: string }
export interface EngineInfo {
  device: string; deviceFeatures: string; deviceNote?: string; gpu: boolean; notes: string[]; contextTokens: number; chunkTokens: number;
  vocab: number; prune?: number; dispatchesPerToken: number; deviceBytes: number; kvBytesPool: number; recoveries: number;
}
"#;

#[wasm_bindgen]
extern "C" {
    /// Reads bytes of the model file.
    #[wasm_bindgen(typescript_type = "Read", extends = Function)]
    pub type Read;
    /// Opens the model file again.
    #[wasm_bindgen(typescript_type = "Reopen", extends = Function)]
    pub type Reopen;
    /// Hears how far a load has come.
    #[wasm_bindgen(typescript_type = "OnProgress", extends = Function)]
    pub type OnProgress;

    /// What [`Engine::prefill`] gives.
    #[wasm_bindgen(typescript_type = "Prefilled")]
    pub type Prefilled;
    /// What [`Engine::next`] gives.
    #[wasm_bindgen(typescript_type = "EnginePiece")]
    pub type EnginePiece;
    /// What [`Engine::cost`] gives.
    #[wasm_bindgen(typescript_type = "Cost")]
    pub type Cost;
    /// What [`Engine::start_gates`] gives.
    #[wasm_bindgen(typescript_type = "EngineGates")]
    pub type EngineGates;
    /// What [`Engine::bench`] gives.
    #[wasm_bindgen(typescript_type = "Measured")]
    pub type Measured;
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
    crate::gpu::set_host(Rc::new(host::Browser::here()));
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

/// Sets where what a start finds out about an adapter is kept: `recall(name)` gives the words or undefined, `remember(name, words)` keeps
/// them.
#[wasm_bindgen(js_name = keepWith)]
pub fn keep_with(recall: Function, remember: Function) {
    crate::gpu::set_host(Rc::new(host::Browser::here().keeping(recall, remember)));
}

/// A loaded model, its sessions, and at most one generation, one list of ids whose logits, gates or scores are asked for, or one measurement.
#[wasm_bindgen]
pub struct Engine {
    model: Model,
    generation: Option<Generation>,
    reading: Option<Reading>,
    bench: Option<Bench>,
    scoring: Option<Scoring>,
    sequences: Sequences,
    /// The session that the generation belongs to.
    speaker: Option<u32>,
    /// Tokens of all answers, and how long they took.
    n_generated: u64,
    generating: Duration,
    /// Of this thread, on the generation's tokens.
    spent: Duration,
}

/// Ids, and how many of them were read.
struct Reading {
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
        reopen: Reopen,
    ) -> Result<Engine, JsValue> {
        let watched = options.is_watched();
        let options = options.read().map_err(|error| to_js(&error))?;
        let source = Box::new(JsSource { read, reopen: Some(reopen), name, len: length.map(|bytes| bytes as u64) });
        let model = async {
            let checkpoint = format::read(source).await?;
            let mut progress = |at: crate::session::Progress| {
                let told = on_progress.call2(&JsValue::NULL, &(at.done_bytes as f64).into(), &(at.total_bytes as f64).into());
                told.map(|_| ()).map_err(|_| Error::Aborted)
            };
            let mut model = Model::load(checkpoint, options, &mut progress).await?;
            if watched {
                model.watch()?;
            }
            Ok(model)
        };
        Ok(Self {
            model: model.await.map_err(|error| to_js(&error))?,
            generation: None,
            reading: None,
            bench: None,
            scoring: None,
            sequences: Sequences::default(),
            speaker: None,
            n_generated: 0,
            generating: Duration::ZERO,
            spent: Duration::ZERO,
        })
    }

    /// Begins a text; what is left of the one before is dropped.
    pub async fn start(&mut self, prompt: String, options: StartOptions) -> Result<(), JsValue> {
        self.end();
        let generation = session::check_text(&prompt).and_then(|()| Generation::new(&self.model, &prompt, options.read()));
        let generation = generation.map_err(|error| to_js(&error))?;
        self.leave().await?;
        self.generation = Some(generation);
        Ok(())
    }

    /// Reads one chunk of the prompt.
    pub async fn prefill(&mut self) -> Result<Prefilled, JsValue> {
        let Some(generation) = &mut self.generation else { return Err(not_started()) };
        let (done, total) = generation.prefill(&mut self.model).await.map_err(|error| to_js(&error))?;
        Ok(done_of(done, total).unchecked_into())
    }

    /// Generates a token, or the several that a GPU gives at once. The piece with `finish` is the last; the text of an answer that held nothing back ends
    /// with an empty one.
    pub async fn next(&mut self) -> Result<EnginePiece, JsValue> {
        let Some(generation) = &mut self.generation else { return Err(not_started()) };
        let since = Instant::now();
        let (piece, spent) = busy(generation.next(&mut self.model)).await;
        self.spent += spent;
        self.generating += since.elapsed();
        let piece = piece.map_err(|error| to_js(&error))?.unwrap_or_default();
        self.n_generated += piece.ids.len() as u64;
        let ids = piece.ids.iter().map(|id| JsValue::from(*id)).collect::<Array>();
        let known = self.model.kv_bytes_known();
        let out = object(&[
            ("text", piece.text.into()),
            ("ids", ids.into()),
            ("kvBytesLive", (known.live as f64).into()),
            ("kvBytesFreed", (known.freed as f64).into()),
        ]);
        if !piece.logprobs.is_empty() {
            let logprobs = piece.logprobs.iter().map(|logprob| JsValue::from(*logprob)).collect::<Array>();
            set(&out, "logprobs", logprobs.into());
        }
        if let Some(finish) = generation.finish() {
            set(&out, "finish", finish.word().into());
            if let FinishReason::Stop(text) = finish {
                set(&out, "stop", text.into());
            }
        }
        Ok(out.unchecked_into())
    }

    /// What the text took, once it has ended.
    pub async fn cost(&mut self) -> Result<Cost, JsValue> {
        let Some(generation) = &self.generation else { return Err(not_started()) };
        let kv_bytes = self.model.kv_bytes_live().await.map_err(|error| to_js(&error))?;
        let freed = self.model.kv_bytes_known().freed;
        let out = object(&[("kvBytesLive", (kv_bytes as f64).into()), ("kvBytesFreed", (freed as f64).into())]);
        let n = generation.generated_ids().len();
        if n > 0 {
            set(&out, "cpuUsPerToken", (self.spent.as_secs_f64() * 1e6 / n as f64).into());
        }
        Ok(out.unchecked_into())
    }

    /// Begins a measurement.
    #[wasm_bindgen(js_name = startBench)]
    pub async fn start_bench(&mut self, options: JsBenchOptions) -> Result<(), JsValue> {
        self.end();
        let options = options.read();
        let counted = options.text.as_deref().map_or(Ok(()), session::check_text);
        let bench = counted.and_then(|()| Bench::new(&self.model, options)).map_err(|error| to_js(&error))?;
        self.leave().await?;
        self.bench = Some(bench);
        Ok(())
    }

    /// Measures one phase.
    pub async fn bench(&mut self) -> Result<Measured, JsValue> {
        let Some(bench) = &mut self.bench else { return Err(not_started()) };
        let (done, total) = bench.measure(&mut self.model).await.map_err(|error| to_js(&error))?;
        let out = done_of(done, total);
        if done == total {
            set(&out, "report", bench.report(&self.model).to_string().into());
        }
        Ok(out.unchecked_into())
    }

    /// Drops what the last start left. What was said in a session becomes part of it.
    fn end(&mut self) {
        if let (Some(generation), Some(session)) = (&self.generation, self.speaker) {
            // They came from the model, and fitted; a session that was closed meanwhile needs them no more.
            let _ = self.sequences.append(&self.model, session, generation.generated_ids());
        }
        (self.generation, self.reading, self.bench, self.spent) = (None, None, None, Duration::ZERO);
        (self.scoring, self.speaker) = (None, None);
    }

    /// Saves the session that the model holds, so that something else may use it.
    async fn leave(&mut self) -> Result<(), JsValue> {
        self.sequences.leave(&mut self.model).await.map_err(|error| to_js(&error))
    }

    /// Begins to read ids into an empty sequence, in the place of the session that the model holds.
    async fn begin(&mut self, ids: Vec<u32>, decode: bool) -> Result<(), JsValue> {
        check_ids("ids", &ids, self.model.vocab()).map_err(|error| to_js(&error))?;
        if ids.len() > self.model.context() {
            return Err(to_js(&Error::ContextFull { needed: ids.len(), available: self.model.context() }));
        }
        self.leave().await?;
        self.model.reset();
        self.reading = Some(Reading { ids, n_read: 0, decode });
        Ok(())
    }

    /// Begins a list of ids, nothing in front of it; with `decode`, token by token through the graph that generates.
    #[wasm_bindgen(js_name = startLogits)]
    pub async fn start_logits(&mut self, ids: Vec<u32>, decode: bool) -> Result<(), JsValue> {
        self.end();
        self.begin(ids, decode).await
    }

    /// Reads the next ids and gives the logits after each, row by row; none when all were read.
    pub async fn logits(&mut self) -> Result<Vec<f32>, JsValue> {
        let Some(Reading { ids, n_read, decode }) = &mut self.reading else { return Err(not_started()) };
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

    /// Begins the gates of a text behind the begin token, or of ids.
    #[wasm_bindgen(js_name = startGates)]
    pub async fn start_gates(&mut self, text: Option<String>, ids: Option<Vec<u32>>) -> Result<EngineGates, JsValue> {
        self.end();
        let tokenizer = self.model.tokenizer("gates").map_err(|error| to_js(&error))?;
        let ids = match text {
            Some(text) => {
                session::check_text(&text).and_then(|()| self.model.ids_of("gates", &text)).map_err(|error| to_js(&error))?
            }
            None => ids.unwrap_or_default(),
        };
        let texts = token_texts(tokenizer, &ids).map_err(|error| to_js(&error))?;
        let tokens = texts.iter().map(|token| JsValue::from(&token.text[..])).collect::<Array>();
        let completed_by = texts.iter().map(|token| JsValue::from(token.completed_by)).collect::<Array>();
        let numbers = ids.iter().map(|id| JsValue::from(*id)).collect::<Array>();
        self.begin(ids, false).await?;
        let config = self.model.config();
        let out = object(&[
            ("tokens", tokens.into()),
            ("completedBy", completed_by.into()),
            ("ids", numbers.into()),
            ("layers", config.n_layers.into()),
            ("heads", config.n_heads.into()),
            ("kvHeads", config.n_kv_heads.into()),
        ]);
        if let Some(ln_epsilon) = self.model.log_pruning_tolerance() {
            set(&out, "prune", ln_epsilon.exp().into());
        }
        if let Some(bounds) = self.model.score_bounds() {
            let u: Vec<f32> = bounds.iter().map(|u| (*u as f32).next_up()).collect();
            set(&out, "u", js_sys::Float32Array::from(&u[..]).into());
        }
        if let Some(window) = config.window {
            set(&out, "window", window.into());
        }
        Ok(out.unchecked_into())
    }

    /// Reads the next ids and gives log f of each layer, head and token of them; none when all were read.
    pub async fn gates(&mut self) -> Result<Vec<f32>, JsValue> {
        let Some(Reading { ids, n_read, .. }) = &mut self.reading else { return Err(not_started()) };
        let part = &ids[*n_read..ids.len().min(*n_read + self.model.chunk())];
        *n_read += part.len();
        if part.is_empty() {
            return Ok(Vec::new());
        }
        let gates = self.model.gates(part, &mut |_| Ok(())).await.map_err(|error| to_js(&error))?;
        Ok(gates.log_f().to_vec())
    }

    /// What is known of the model.
    pub fn info(&self) -> EngineInfo {
        let model = &self.model;
        let (features, mut notes) = match model.device() {
            Device::Gpu(executor) => (executor.gpu().features().to_string(), executor.gpu().notes()),
            Device::Cpu(_) => (String::new(), Vec::new()),
        };
        notes.extend(model.pruning_note().into_iter().chain(model.context_note()).map(str::to_owned));
        let out = object(&[
            ("device", model.device_name().into()),
            ("deviceFeatures", features.into()),
            ("gpu", matches!(model.device(), Device::Gpu(_)).into()),
            ("notes", notes.into_iter().map(JsValue::from).collect::<Array>().into()),
            ("contextTokens", model.context().into()),
            ("chunkTokens", model.max_chunk().into()),
            ("vocab", model.vocab().into()),
            ("dispatchesPerToken", model.dispatches_per_token().into()),
            ("deviceBytes", (model.bytes() as f64).into()),
            ("kvBytesPool", (model.kv_bytes_pool() as f64).into()),
            ("recoveries", (model.recoveries() as f64).into()),
        ]);
        if let Some(ln_epsilon) = model.log_pruning_tolerance() {
            set(&out, "prune", ln_epsilon.exp().into());
        }
        if let Some(note) = model.device_note() {
            set(&out, "deviceNote", note.into());
        }
        out.unchecked_into()
    }
}

fn not_started() -> JsValue {
    to_js(&Error::argument("generation", "a call of start before", "none"))
}

/// A file behind a JavaScript function.
struct JsSource {
    read: Read,
    reopen: Option<Reopen>,
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

    fn reopen(&mut self) -> BoxFuture<'_, Result<()>> {
        let promise = self.reopen.as_ref().map(|reopen| reopen.call0(&JsValue::NULL));
        Box::pin(async move {
            match settled(promise.unwrap_or_else(|| Err("it is read once".into()))).await {
                Ok(_) => Ok(()),
                Err(reason) => Err(Error::Io { file: self.name.clone(), action: "open", reason }),
            }
        })
    }

    fn read<'a>(&'a mut self, at: u64, n: usize) -> BoxFuture<'a, Result<Vec<u8>>> {
        let promise = self.read.call2(&JsValue::NULL, &(at as f64).into(), &n.into());
        Box::pin(async move {
            let bytes = settled(promise).await;
            let bytes = bytes.and_then(|bytes| bytes.dyn_into::<Uint8Array>().map_err(|other| format!("{other:?}")));
            bytes.map(|bytes| bytes.to_vec()).map_err(|reason| Error::Io { file: self.name.clone(), action: "read", reason })
        })
    }
}

/// What a call's promise gives, or the words of what it threw.
async fn settled(called: Result<JsValue, JsValue>) -> Result<JsValue, String> {
    let settled = match called {
        Ok(promise) => JsFuture::from(Promise::resolve(&promise)).await,
        Err(thrown) => Err(thrown),
    };
    settled
        .map_err(|thrown| thrown.dyn_ref::<js_sys::Error>().map_or_else(|| format!("{thrown:?}"), |error| error.message().into()))
}

fn to_js(error: &Error) -> JsValue {
    let out = js_sys::Error::new(&words::sentence(error));
    set(&out, "code", error.code().into());
    out.into()
}

/// How far something is that is done step by step.
fn done_of(done: usize, total: usize) -> Object {
    object(&[("done", done.into()), ("total", total.into())])
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
