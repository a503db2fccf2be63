//! Sequences of a model, its tokenizer, its scores and its self-test, for the worker: the second half of [`Engine`].

use super::{Engine, Prefilled, StartOptions, done_of, not_started, object, set, to_js};
use crate::Error;
use crate::kernel::KERNELS;
use crate::session::check::{check_kernel, check_kernel_on_cpu};
use crate::session::generate::check_ids;
use crate::session::limits::MAX_TEXT;
use crate::session::{Device, Scoring, Watch};
use js_sys::{Array, Float32Array, Uint8Array, Uint32Array};
use wasm_bindgen::prelude::*;

/// Refuses a text that is too long.
pub fn check_text(text: &str) -> crate::Result<()> {
    match text.len() {
        ..=MAX_TEXT => Ok(()),
        n => Err(Error::argument("text", format_args!("a text of at most {MAX_TEXT} bytes"), n)),
    }
}

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
export interface CheckedKernel { kernel: string; cases: number; nmse: number; maxAbs: number; failures: string[]; done: number; total: number }
/** Of all answers since the load; `kvBytesLive` and `kvBytesFreed` are of what the model holds now, `sessionBytes` of the sessions that wait. */
export interface EngineStats { tokens: number; seconds: number; kvBytesLive: number; kvBytesFreed: number; sessionBytes: number; checkedDispatches: number }
/** `ids` and `logprobs` come with the last chunk. */
export interface Scored { done: number; total: number; ids?: Uint32Array; logprobs?: Float32Array }
"#;

#[wasm_bindgen]
extern "C" {
    /// What [`Engine::score`] gives.
    #[wasm_bindgen(typescript_type = "Scored")]
    pub type Scored;
    /// What [`Engine::check_kernel`] gives.
    #[wasm_bindgen(typescript_type = "CheckedKernel")]
    pub type CheckedKernel;
    /// What [`Engine::stats`] gives.
    #[wasm_bindgen(typescript_type = "EngineStats")]
    pub type EngineStats;
}

#[wasm_bindgen]
impl Engine {
    /// Token ids of a text, nothing put in front.
    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>, JsValue> {
        let ids = check_text(text).and_then(|()| self.model.tokenizer("tokenize")?.encode(text));
        ids.map_err(|error| to_js(&error))
    }

    /// The text of ids.
    pub fn detokenize(&self, ids: &[u32]) -> Result<String, JsValue> {
        let text = self.model.tokenizer("detokenize").and_then(|tokenizer| {
            check_ids("ids", ids, self.model.vocab())?;
            tokenizer.decode(ids)
        });
        text.map_err(|error| to_js(&error))
    }

    /// Begins to score ids.
    #[wasm_bindgen(js_name = startScore)]
    pub async fn start_score(&mut self, ids: Vec<u32>) -> Result<(), JsValue> {
        self.end();
        let scoring = Scoring::new(&self.model, &ids).map_err(|error| to_js(&error))?;
        self.leave().await?;
        self.scoring = Some(scoring);
        Ok(())
    }

    /// Scores the next ids.
    pub async fn score(&mut self) -> Result<Scored, JsValue> {
        let Some(scoring) = &mut self.scoring else { return Err(not_started()) };
        let (done, total) = scoring.read(&mut self.model).await.map_err(|error| to_js(&error))?;
        let out = done_of(done, total);
        if done == total {
            set(&out, "ids", Uint32Array::from(scoring.ids()).into());
            set(&out, "logprobs", Float32Array::from(scoring.logprobs()).into());
        }
        Ok(out.unchecked_into())
    }

    /// A new session: its number.
    #[wasm_bindgen(js_name = openSession)]
    pub fn open_session(&mut self) -> u32 {
        self.end();
        self.sequences.open()
    }

    /// Ends one.
    #[wasm_bindgen(js_name = closeSession)]
    pub fn close_session(&mut self, session: u32) {
        self.end();
        self.sequences.close(session);
    }

    /// Tokens of one.
    #[wasm_bindgen(js_name = sessionTokens)]
    pub fn session_tokens(&mut self, session: u32) -> Result<usize, JsValue> {
        self.end();
        self.sequences.ids(session).map(<[u32]>::len).map_err(|error| to_js(&error))
    }

    /// Puts ids behind one; [`Engine::read_session`] reads them.
    #[wasm_bindgen(js_name = appendToSession)]
    pub fn append_to_session(&mut self, session: u32, ids: &[u32]) -> Result<(), JsValue> {
        self.end();
        self.sequences.append(&self.model, session, ids).map_err(|error| to_js(&error))
    }

    /// The ids of a text for one: with the model's begin token if they are its first.
    #[wasm_bindgen(js_name = tokenizeFor)]
    pub fn tokenize_for(&mut self, session: u32, text: &str) -> Result<Vec<u32>, JsValue> {
        let front = if self.session_tokens(session)? == 0 { self.model.bos() } else { None };
        Ok(front.into_iter().chain(self.tokenize(text)?).collect())
    }

    /// Reads a chunk of what was put behind one.
    #[wasm_bindgen(js_name = readSession)]
    pub async fn read_session(&mut self, session: u32) -> Result<Prefilled, JsValue> {
        let (done, total) = self.sequences.read(&mut self.model, session).await.map_err(|error| to_js(&error))?;
        Ok(done_of(done, total).unchecked_into())
    }

    /// Begins an answer to one, of which it becomes part.
    #[wasm_bindgen(js_name = startInSession)]
    pub async fn start_in_session(&mut self, session: u32, options: StartOptions) -> Result<(), JsValue> {
        self.end();
        let generation = self.sequences.generate(&mut self.model, session, options.read()).await;
        self.generation = Some(generation.map_err(|error| to_js(&error))?);
        self.speaker = Some(session);
        Ok(())
    }

    /// Keeps the way back to here short; the tokens of the session.
    #[wasm_bindgen(js_name = markSession)]
    pub async fn mark_session(&mut self, session: u32) -> Result<usize, JsValue> {
        self.end();
        self.sequences.mark(&mut self.model, session).await.map_err(|error| to_js(&error))
    }

    /// Gives up the mark of so many tokens.
    #[wasm_bindgen(js_name = unmarkSession)]
    pub fn unmark_session(&mut self, session: u32, tokens: usize) -> Result<(), JsValue> {
        self.end();
        self.sequences.unmark(&mut self.model, session, tokens).map_err(|error| to_js(&error))
    }

    /// Goes back to so many tokens.
    #[wasm_bindgen(js_name = rewindSession)]
    pub fn rewind_session(&mut self, session: u32, tokens: usize) -> Result<(), JsValue> {
        self.end();
        self.sequences.rewind(session, tokens).map_err(|error| to_js(&error))
    }

    /// Another session that begins as this one is: its number.
    #[wasm_bindgen(js_name = forkSession)]
    pub async fn fork_session(&mut self, session: u32) -> Result<u32, JsValue> {
        self.end();
        self.sequences.fork(&mut self.model, session).await.map_err(|error| to_js(&error))
    }

    /// One as bytes.
    #[wasm_bindgen(js_name = saveSession)]
    pub async fn save_session(&mut self, session: u32) -> Result<Vec<u8>, JsValue> {
        self.end();
        self.sequences.save(&mut self.model, session).await.map_err(|error| to_js(&error))
    }

    /// Puts saved bytes in the place of one.
    #[wasm_bindgen(js_name = restoreSession)]
    pub async fn restore_session(&mut self, session: u32, bytes: Uint8Array) -> Result<(), JsValue> {
        self.end();
        // Before they are copied.
        let most = self.model.max_session_bytes();
        let n = bytes.length();
        if u64::from(n) > most {
            return Err(to_js(&Error::argument("bytes", format_args!("a session of at most {most} bytes"), n)));
        }
        let bytes = bytes.to_vec();
        self.sequences.restore(&mut self.model, session, &bytes).await.map_err(|error| to_js(&error))
    }

    /// Compares a kernel, by its number, with its twin: on the GPU that the model runs on, else the CPU's fast code of it.
    #[wasm_bindgen(js_name = checkKernel)]
    pub async fn check_kernel(&mut self, ix: usize) -> Result<CheckedKernel, JsValue> {
        let Some(kernel) = KERNELS.get(ix) else {
            return Err(to_js(&Error::argument("kernel", format!("a number below {}", KERNELS.len()), ix)));
        };
        // A device that was lost before is back then.
        self.model.settle().await.map_err(|error| to_js(&error))?;
        let checked = match self.model.device() {
            Device::Gpu(executor) => check_kernel(executor.gpu(), kernel, &mut |_| ()).await.map_err(|error| to_js(&error))?,
            Device::Cpu(_) => check_kernel_on_cpu(kernel),
        };
        let deviations = || checked.iter().flat_map(|case| case.outcome.iter().flatten());
        let nmse = deviations().map(|deviation| deviation.nmse).fold(0.0, f64::max);
        let max_abs = deviations().map(|deviation| deviation.max_abs).fold(0.0, f64::max);
        let failures = checked.iter().filter(|case| !case.passed()).map(|case| {
            let why = match &case.outcome {
                Err(error) => error.to_string(),
                Ok(deviations) => deviations.iter().filter(|deviation| deviation.failed()).map(ToString::to_string).collect(),
            };
            JsValue::from(format!("{} {}: {why}", case.case, case.variant.as_deref().unwrap_or_default()))
        });
        let entries = [
            ("kernel", kernel.name.into()),
            ("cases", checked.len().into()),
            ("nmse", nmse.into()),
            ("maxAbs", max_abs.into()),
            ("failures", failures.collect::<Array>().into()),
            ("done", (ix + 1).into()),
            ("total", KERNELS.len().into()),
        ];
        Ok(object(&entries).unchecked_into())
    }

    /// What the model did so far, and holds now.
    pub async fn stats(&mut self) -> Result<EngineStats, JsValue> {
        self.end();
        let kv_bytes = self.model.kv_bytes_live().await.map_err(|error| to_js(&error))?;
        let entries = [
            ("tokens", (self.n_generated as f64).into()),
            ("seconds", self.generating.as_secs_f64().into()),
            ("kvBytesLive", (kv_bytes as f64).into()),
            ("kvBytesFreed", (self.model.kv_bytes_known().freed as f64).into()),
            ("sessionBytes", self.sequences.bytes_away().into()),
            ("checkedDispatches", self.model.watched().map_or(0, Watch::dispatches).into()),
        ];
        Ok(object(&entries).unchecked_into())
    }
}
